"""What kit blame finds, as text for a terminal."""

from __future__ import annotations

from kit.cli.text.table import table
from kit.model.blame import BlameResult, Culprit, Reason
from kit.model.text import one_line

REASONS: dict[Reason, str] = {
    "gpu-throttle": "a GPU is throttled",
    "cgroup-throttle": "a CPU limit stops it",
    "steal": "the hypervisor takes its cores",
    "busy-core": "other processes use its cores",
    "disk": "it waits for a disk",
    "loader": "it waits for data",
    "link": "less goes through than through other links",
    "more-work": "it computes longer",
    "unknown": "no reason found",
}
# How many ranks the table has without --verbose.
_ROWS = 16


def text(value: BlameResult, *, width: int | None = None, verbose: bool = False) -> str:
    """Return who slows the run, why, and what that costs; then a table of ranks."""
    step = f", steps of {_time(value.step)}" if value.step else ""
    ranks = "1 rank" if len(value.ranks) == 1 else f"{len(value.ranks)} ranks"
    parts = [f"Run {value.run}: {ranks} watched for {value.seconds:.0f} s{step}."]
    if value.culprit is not None:
        parts.append(_culprit(value.culprit))
    else:
        parts.append(f"Nobody to blame: {value.why}." if value.verdict == "nobody" else f"No answer: {value.why}.")
    if value.ranks:
        parts.append(_table(value, width=width, verbose=verbose))
    parts += [f"Note: {one_line(note)}." for note in value.notes]
    return "\n\n".join(parts)


def who(value: Culprit) -> str:
    """Return `rank 5 on gpu3`, `ranks 4-5 on gpu3`, or `the link of gpu3`."""
    if value.reason == "link":
        return f"the link of {value.host}"
    if not value.ranks:
        return value.host
    first, last = value.ranks[0], value.ranks[-1]
    if len(value.ranks) == 1:
        return f"rank {first} on {value.host}"
    together = last - first + 1 == len(value.ranks)
    numbers = f"{first}-{last}" if together else ",".join(str(rank) for rank in value.ranks)
    return f"ranks {numbers} on {value.host}"


def _culprit(value: Culprit) -> str:
    verb = "slow" if len(value.ranks) > 1 and value.reason != "link" else "slows"
    lines = [f"{who(value)} {verb} all ({value.reason}): {REASONS[value.reason]}"]
    lines += [f"  {one_line(line)}" for line in value.evidence]
    gain = value.gain
    if gain is not None and gain.speedup > 1.005:
        lines.append(f"  without that, {_gain(gain.now, gain.then)}, {gain.how}")
    return "\n".join([*lines, f"→ {value.fix}"])


def _gain(now: float, then: float) -> str:
    return f"a step takes {_time(then)} in place of {_time(now)} ({now / then:.2f} times as fast)"


def _table(value: BlameResult, *, width: int | None, verbose: bool) -> str:
    rows = value.ranks
    waits = any(row.wait is not None for row in rows)
    if len(rows) > _ROWS and not verbose:
        # Those that wait least are the late ones.
        first = sorted(rows, key=lambda row: (row.wait is None, row.wait or 0.0, row.rank))[:_ROWS]
        rows = tuple(sorted(first, key=lambda row: row.rank))
    body: list[tuple[object, ...]] = [
        (
            row.rank,
            row.host,
            "-" if row.wait is None else f"{1e3 * row.wait:.1f}",
            "-" if row.operation is None else f"{row.operation:.0%}",
            f"{row.cpu:.2f}",
            f"{row.delay:.2f}",
            f"{row.asleep:.0%}",
        )
        for row in rows
    ]
    header: tuple[str, ...] = ("RANK", "HOST", "WAITS MS", "OPERATIONS", "CORES", "WITHOUT CORE", "ASLEEP")
    if not waits:
        # Only kit's Horovod counts waits and operations.
        body, header = [(*row[:2], *row[4:]) for row in body], (*header[:2], *header[4:])
    drop = ("WITHOUT CORE", "ASLEEP", "CORES", "OPERATIONS")
    shown = table(body, header, width=width, flexible=("HOST",), drop=drop)
    hidden = len(value.ranks) - len(rows)
    more = f"{hidden} ranks that wait longer" if waits else f"{hidden} more ranks"
    return shown + (f"\n… and {more}, which -v and --json show" if hidden else "")


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.0f} ms"
