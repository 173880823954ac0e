"""Decides whether other runs, other load on the hosts, or the hypervisor disturbed a sample. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from kit.errors import StepError
from kit.model.answer import number
from kit.model.run import RUN_ID

# Cores that may be busy on an idle host: its engine, its monitoring, and the look itself.
BUSY_CORES = 0.35
BUSY_SHARE = 0.05
# Share of a host's CPU time that the hypervisor may give to others while the sample runs.
STEAL_SHARE = 0.02
# Fields of the kernel's `cpu` line (proc(5)): user nice system idle iowait irq softirq steal.
_MOST_CORES = 2**20
_IDLE, _WAIT, _STEAL, _FIELDS = 3, 4, 7, 8


class Look(Struct, frozen=True, kw_only=True):
    """A host between two samples. `busy` is cores (0.0 .. cores) over half a second.

    `stolen` and `ticks` are the kernel's clock ticks of all cores since its start.
    `living` and `over` are the ids of its runs, where it is a head.
    """

    cores: int
    busy: float
    stolen: int
    ticks: int
    living: frozenset[str] = frozenset()
    over: frozenset[str] = frozenset()


def parse(text: str) -> Look:
    """Parse the output of load.sh. Raises StepError if it is incomplete."""
    words = [line.split() for line in text.splitlines()]
    rows = {row[0]: row[1:] for row in words if row}
    try:
        cores = number(rows["cores"][0], most=_MOST_CORES)
        before, after = ([number(tick) for tick in rows[name][1 : 1 + _FIELDS]] for name in ("before", "after"))
        rows["end"]
        spent = [b - a for a, b in zip(before, after, strict=True)]
        idle = spent[_IDLE] + spent[_WAIT] + spent[_STEAL]
    except (KeyError, ValueError, IndexError) as error:
        raise StepError("its load cannot be read", hint="check: kit ssh HOST -- cat /proc/stat") from error
    return Look(
        cores=cores,
        busy=cores * (1 - idle / sum(spent)) if sum(spent) else 0.0,
        stolen=after[_STEAL],
        ticks=sum(after),
        living=frozenset(row[1] for row in words if _is_run(row, "living")),
        over=frozenset(row[1] for row in words if _is_run(row, "over")),
    )


def _is_run(row: Sequence[str], state: str) -> bool:
    return len(row) == 2 and row[0] == state and bool(RUN_ID.fullmatch(row[1]))


def disturbed(
    before: Mapping[str, Look], after: Mapping[str, Look], *, hosts: Collection[str], own: Collection[str]
) -> str | None:
    """Return why you should not trust a sample on these hosts, or None. `own` are the sample's own runs."""
    reasons = [*_runs(before, after, own)]
    for when, looks in (("before", before), ("after", after)):
        busy = {host: looks[host] for host in hosts if host in looks and _busy(looks[host])}
        if busy:
            worst = max(busy, key=lambda host: busy[host].busy)
            of = f"{busy[worst].busy:.1f} of {busy[worst].cores} cores of {worst}"
            reasons.append(f"{of}{_more(busy)} were busy with something else {when} it")
    stolen = {host: _stolen(before[host], after[host]) for host in hosts if host in before and host in after}
    stolen = {host: share for host, share in stolen.items() if share > STEAL_SHARE}
    if stolen:
        worst = max(stolen, key=lambda host: stolen[host])
        reasons.append(f"the hypervisor gave {stolen[worst]:.0%} of the CPU time of {worst}{_more(stolen)} to others")
    return "; ".join(reasons) or None


def _busy(look: Look) -> bool:
    return look.busy > BUSY_CORES + BUSY_SHARE * look.cores


def _stolen(before: Look, after: Look) -> float:
    """The share of CPU time, 0.0 .. 1.0, that went to other guests between two looks."""
    ticks = after.ticks - before.ticks
    return (after.stolen - before.stolen) / ticks if ticks > 0 else 0.0


def _more(hosts: Collection[str]) -> str:
    more = len(hosts) - 1
    return f" (and of {more} more host{'' if more == 1 else 's'})" if more else ""


def _runs(before: Mapping[str, Look], after: Mapping[str, Look], own: Collection[str]) -> list[str]:
    """Report other runs that are alive before or after the sample, or that came and went in between."""
    known = {run for look in before.values() for run in (*look.living, *look.over)}
    living = {run for looks in (before, after) for look in looks.values() for run in look.living}
    # Without a look before it, everything would be new.
    came = {run for look in after.values() for run in look.over if run not in known} if before else set()
    others = sorted((living | came) - set(own))
    return [f"another run was on the cluster: {', '.join(others)}"] if others else []
