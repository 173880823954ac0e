"""The whole decision of `kit blame`: from what the hosts showed to who slows the run, or nobody. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from kit.model.blame import BlameResult, Culprit, RankRow, Verdict, Watched
from kit.model.values import replace
from kit.plan.blame.gain import gain
from kit.plan.blame.hostsalone import slow_host
from kit.plan.blame.lateness import LEAST_SHARE, Late, late, needed
from kit.plan.blame.links import SlowLink, slow_link
from kit.plan.blame.reasons import cause
from kit.plan.blame.samples import Sample, Totals, samples, totals
from kit.plan.blame.steady import steady


def judge(watched: Watched) -> BlameResult:
    """Return who slows the run. Of a late rank and a slow link, the one that costs more is named."""
    watched = steady(watched)
    parts = samples(watched)
    whole = totals(watched)
    hosts = {r.rank: name for name, row in watched.hosts.items() for one in row for r in one.ranks}
    rows = _rows(watched, parts, hosts)
    if hosts and len(hosts) < min(watched.np, 2):
        return _result(watched, "too-few-steps", _unseen(watched.np), rows=rows)
    if len(hosts) < 2:
        return _result(watched, "nobody", _ALONE if hosts else _NO_RANK, rows=rows)
    if whole is None:
        counts = any(r.readiness is not None for row in watched.hosts.values() for one in row for r in one.ranks)
        return _result(watched, "too-few-steps", _ONCE, rows=rows) if counts else _of_hosts(watched, rows)
    least = needed(len(set(hosts.values())), len(hosts))
    if len(parts) < least:
        why = _few(len(parts), least, whole) if whole.tensors else _hangs(watched, whole, hosts)
        return _result(watched, "too-few-steps", why, whole=whole, rows=rows)
    behind, link = late(parts, hosts), slow_link(watched, parts)
    if link is not None and (behind is None or link.share > behind.share):
        culprit = _of_link(watched, link, parts, whole, hosts)
    elif behind is not None:
        culprit = _of_rank(watched, behind, parts, whole, hosts=hosts)
    else:
        return _result(watched, "nobody", _balanced(parts), whole=whole, rows=rows)
    return _result(watched, "blamed", "", whole=whole, rows=rows, culprit=culprit)


_UNSEEN = "the ranks do not count with kit's Horovod, so kit cannot see which one is late, and compared hosts alone"
_ALONE = "the run has one rank, which waits for nobody"
# Ranks in a sentence.
_MOST_NAMED = 4
_ONCE = "the run began, ended or was reset, or a connection broke meanwhile, and kit saw the same ranks only once"
_NO_RANK = "no rank of the run was seen on its hosts"


def _unseen(np: int) -> str:
    return f"kit sees one of the run's {np} ranks, and must compare at least two"


def _of_hosts(watched: Watched, rows: tuple[RankRow, ...]) -> BlameResult:
    suspect = slow_host(watched)
    if suspect is None:
        return _result(watched, "hosts-only", _UNSEEN, rows=rows)
    late, why = suspect
    culprit = Culprit(
        host=late.host, ranks=late.ranks, reason=why.reason, share=why.share, evidence=why.evidence, fix=why.fix
    )
    return replace(_result(watched, "blamed", "", rows=rows, culprit=culprit), notes=(_UNSEEN,))


def _few(count: int, least: int, whole: Totals) -> str:
    return f"the ranks ended steps together in {count} of the samples of {whole.seconds:.0f} s, and kit needs {least}"


def _hangs(watched: Watched, whole: Totals, hosts: Mapping[int, str]) -> str:
    """Return why there is no step at all. Who hangs is a rank that has given no tensor while others wait for theirs."""
    last = {r.rank: r.readiness for row in watched.hosts.values() for r in row[-1].ranks if r.readiness is not None}
    missing = [rank for rank, counted in sorted(last.items()) if not counted.pending]
    text = f"no tensor was summed in {whole.seconds:.0f} s, so the run hangs or its steps take longer"
    if not missing or len(missing) == len(last):
        return text
    names = [f"rank {rank} on {hosts[rank]}" for rank in missing[:_MOST_NAMED]]
    more = f" and {len(missing) - len(names)} more" if len(missing) > len(names) else ""
    return f"{text}. The other ranks wait for {', '.join(names)}{more}"


def _balanced(parts: Sequence[Sample]) -> str:
    operation = fmean(fmean(sample.operation.values()) for sample in parts)
    return (
        f"no rank is late in most of {len(parts)} samples, or it costs the others less than {LEAST_SHARE:.0%}, "
        f"and no link is slower than the others. Operations take {operation:.0%} of the time"
    )


def _of_rank(
    watched: Watched, behind: Late, parts: Sequence[Sample], whole: Totals, *, hosts: Mapping[int, str]
) -> Culprit:
    why = cause(watched, behind, _waiting(parts))
    own = fmean(sample.wait[rank] for sample in parts for rank in behind.ranks)
    others = fmean(sample.wait[rank] for sample in parts for rank in sample.wait if rank not in behind.ranks)
    seen = (
        f"last in {behind.wins} of {behind.samples} samples: the other ranks lose {behind.share:.0%} of their time",
        f"a tensor waits {_ms(own)} there, and {_ms(others)} on the other ranks",
    )
    return Culprit(
        host=behind.host,
        ranks=behind.ranks,
        reason=why.reason,
        share=behind.share,
        evidence=(*seen, *why.evidence),
        fix=why.fix,
        gain=gain(parts, whole, ranks=len(hosts), per_host=_per_host(hosts), lost=behind.share),
    )


def _of_link(
    watched: Watched, link: SlowLink, parts: Sequence[Sample], whole: Totals, hosts: Mapping[int, str]
) -> Culprit:
    others = "the other links" if len(watched.hosts) > 2 else "the other direction"
    return Culprit(
        host=link.host,
        ranks=tuple(sorted(rank for rank, host in hosts.items() if host == link.host)),
        reason="link",
        share=link.share,
        evidence=(
            f"slowest in {link.wins} of {link.samples} samples: while bytes are under way, it {link.direction} "
            f"{_rate(link.rate)}, and {others} {_rate(link.usual)}",
        ),
        fix="measure the link: kit doctor --pairs all; look for a limit, another network or a half-duplex port",
        gain=gain(
            parts, whole, ranks=len(hosts), per_host=_per_host(hosts), lost=0.0, link=link.usual / link.rate
        ),
    )  # fmt: skip


def _per_host(hosts: Mapping[int, str]) -> int:
    names = list(hosts.values())
    return max(names.count(name) for name in set(names))


def _waiting(parts: Sequence[Sample]) -> dict[int, float]:
    """Return the share of the time in which each rank had nothing to do but to wait for others.

    It is idle when it has enqueued a step's last tensor. The mean wait of a tensor is the other guess.
    """
    return {
        rank: min(1.0, fmean(max(one.tail[rank], one.wait[rank] * (one.steps or 0.0)) for one in parts))
        for rank in parts[0].wait
    }


def _rows(watched: Watched, parts: Sequence[Sample], hosts: Mapping[int, str]) -> tuple[RankRow, ...]:
    rows = []
    for rank, host in sorted(hosts.items()):
        shares = [r for one in watched.hosts[host] if one.seconds > 0 for r in one.ranks if r.rank == rank]
        if not shares:
            continue
        counts = bool(parts) and rank in parts[0].wait
        rows.append(
            RankRow(
                rank=rank,
                host=host,
                wait=fmean(sample.wait[rank] for sample in parts) if counts else None,
                operation=fmean(sample.operation[rank] for sample in parts) if counts else None,
                cpu=fmean(one.cpu for one in shares),
                delay=fmean(one.delay for one in shares),
                asleep=fmean(one.asleep for one in shares),
            )
        )
    return tuple(rows)


def _result(
    watched: Watched,
    verdict: Verdict,
    why: str,
    *,
    whole: Totals | None = None,
    rows: tuple[RankRow, ...] = (),
    culprit: Culprit | None = None,
) -> BlameResult:
    lengths = [sum(one.seconds for one in row) for row in watched.hosts.values()]
    return BlameResult(
        run=watched.run,
        verdict=verdict,
        why=why,
        seconds=fmean(lengths) if lengths else 0.0,
        steps=whole.steps if whole else None,
        step=1 / whole.steps if whole and whole.steps else None,
        culprit=culprit,
        ranks=rows,
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 0.1 else f"{seconds * 1e3:.0f} ms"


def _rate(bytes_per_second: float) -> str:
    bits = 8 * bytes_per_second
    return f"{bits / 1e9:.2f} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.0f} Mbit/s"
