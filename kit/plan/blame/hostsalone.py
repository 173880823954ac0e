"""Decides which host looks slow, for a run whose ranks do not say when they are ready. Pure.

Without Horovod's counters, kit does not know who waits for whom. So it names a host only if something takes time from
its ranks that takes none from the others, in each third of the time.
"""

from __future__ import annotations

from kit.model.blame import Reason, Watched
from kit.model.values import replace
from kit.plan.blame.lateness import Late
from kit.plan.blame.reasons import Cause, cause

# These do not depend on what a rank waits for.
_PLAIN: frozenset[Reason] = frozenset({"gpu-throttle", "cgroup-throttle", "steal", "busy-core"})
# More than what a host usually differs from another one.
LEAST_EXCESS = 0.1
PARTS = 3


def slow_host(watched: Watched) -> tuple[Late, Cause] | None:
    """Return the host whose ranks lose most time to a cause that other hosts do not have, or None."""
    whole = _worst(watched)
    if whole is None:
        return None
    for part in range(PARTS):
        other = _worst(_part(watched, part))
        if other is None or (other[0].host, other[1].reason) != (whole[0].host, whole[1].reason):
            return None
    return whole


def _part(watched: Watched, number: int) -> Watched:
    hosts = {}
    for host, row in watched.hosts.items():
        lengthy = [interval for interval in row if interval.seconds > 0]
        size = len(lengthy) // PARTS
        hosts[host] = tuple(lengthy[number * size : (number + 1) * size])
    return replace(watched, hosts=hosts)


def _worst(watched: Watched) -> tuple[Late, Cause] | None:
    ranks = {host: sorted({r.rank for one in row for r in one.ranks}) for host, row in watched.hosts.items()}
    everyone = [rank for numbers in ranks.values() for rank in numbers]
    suspects = []
    for host, numbers in ranks.items():
        if numbers and len(numbers) < len(everyone):
            late = Late(host=host, ranks=tuple(numbers), share=LEAST_EXCESS, wins=0, samples=0)
            why = cause(watched, late, dict.fromkeys(everyone, 0.0))
            if why.reason in _PLAIN and why.share >= LEAST_EXCESS:
                suspects.append((replace(late, share=why.share), why))
    return max(suspects, key=lambda one: one[0].share, default=None)
