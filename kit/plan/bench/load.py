"""Whether a sample was disturbed: by other runs, by a load on the hosts that was not ours, by the hypervisor. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kit.errors import StepError

# Cores that a host may have busy while nothing of ours runs: its engine, its monitoring; and the look itself.
BUSY_CORES = 0.35
BUSY_SHARE = 0.05
# Of a host's CPU time that the hypervisor gave to others while the sample ran.
STEAL_SHARE = 0.02
# Fields of the kernel's `cpu` line (proc(5)): user nice system idle iowait irq softirq steal.
_IDLE, _WAIT, _STEAL, _FIELDS = 3, 4, 7, 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
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
    """The output of load.sh. Raises StepError where it is not whole."""
    words = [line.split() for line in text.splitlines()]
    rows = {row[0]: row[1:] for row in words if row}
    try:
        cores = int(rows["cores"][0])
        before, after = ([int(tick) for tick in rows[name][1 : 1 + _FIELDS]] for name in ("before", "after"))
        rows["end"]
        spent = [b - a for a, b in zip(before, after, strict=True)]
        idle = spent[_IDLE] + spent[_WAIT] + spent[_STEAL]
    except (KeyError, ValueError, IndexError) as error:
        raise StepError(
            "its load cannot be read", hint="is there a /proc/stat? kit ssh HOST -- cat /proc/stat"
        ) from error
    return Look(
        cores=cores,
        busy=cores * (1 - idle / sum(spent)) if sum(spent) else 0.0,
        stolen=after[_STEAL],
        ticks=sum(after),
        living=frozenset(row[1] for row in words if row[:1] == ["living"]),
        over=frozenset(row[1] for row in words if row[:1] == ["over"]),
    )


def disturbed(
    before: Mapping[str, Look], after: Mapping[str, Look], *, hosts: Collection[str], own: Collection[str]
) -> str | None:
    """Why a sample on these hosts should not be trusted, None where nothing speaks against it.

    `own` are the runs that the sample itself was.
    """
    told = [*_runs(before, after, own)]
    for when, looks in (("before", before), ("after", after)):
        found = {host: looks[host] for host in hosts if host in looks and _busy(looks[host])}
        if found:
            worst = max(found, key=lambda host: found[host].busy)
            of = f"{found[worst].busy:.1f} of {found[worst].cores} cores of {worst}"
            told.append(f"{of}{_more(found)} were busy with something else {when} it")
    stolen = {host: _stolen(before[host], after[host]) for host in hosts if host in before and host in after}
    stolen = {host: share for host, share in stolen.items() if share > STEAL_SHARE}
    if stolen:
        worst = max(stolen, key=lambda host: stolen[host])
        told.append(f"the hypervisor gave {stolen[worst]:.0%} of the CPU time of {worst}{_more(stolen)} to others")
    return "; ".join(told) or None


def _busy(look: Look) -> bool:
    return look.busy > BUSY_CORES + BUSY_SHARE * look.cores


def _stolen(before: Look, after: Look) -> float:
    """The share of CPU time, 0.0 .. 1.0, that went to other guests between two looks."""
    ticks = after.ticks - before.ticks
    return (after.stolen - before.stolen) / ticks if ticks > 0 else 0.0


def _more(found: Collection[str]) -> str:
    return f" (and of {len(found) - 1} more hosts)" if len(found) > 1 else ""


def _runs(before: Mapping[str, Look], after: Mapping[str, Look], own: Collection[str]) -> list[str]:
    """Runs that live at either end, and those that came and went between."""
    known = {run for look in before.values() for run in (*look.living, *look.over)}
    living = {run for looks in (before, after) for look in looks.values() for run in look.living}
    # Without a look before it, everything would be new.
    came = {run for look in after.values() for run in look.over if run not in known} if before else set()
    others = sorted((living | came) - set(own))
    return [f"another run was on the cluster: {', '.join(others)}"] if others else []
