"""Leaves out what a run did before and after the time in which its ranks were the same and kit saw all hosts. Pure.

A run may begin, end, or be reset while kit watches it. A number may then be that of another rank on another host, and
Horovod's counters begin again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from kit.model.blame import HostInterval, Watched
from kit.model.values import replace

# The part of the time between two breaks of a connection. Ranks, their hosts, and the moments at which their Horovod
# began: None for a rank that does not count.
_World = tuple[int, frozenset[tuple[int, str, int | None]]]


def steady(watched: Watched) -> Watched:
    """Return the part in which the ranks were the same: of several, the one with most ranks for most of the time.

    If any ranks count, only these matter.
    """
    rows = list(zip(*watched.hosts.values(), strict=False))
    worlds = [_world(watched, row) for row in rows]
    if not worlds or all(world == worlds[0] for world in worlds):
        return watched
    parts = [list(part) for _, part in groupby(range(len(rows)), key=worlds.__getitem__)]

    def weight(part: list[int]) -> tuple[float, float, int, int]:
        seconds = sum(one.seconds for number in part[1:] for one in rows[number])
        _, world = worlds[part[0]]
        counting = sum(opened is not None for _, _, opened in world)
        return seconds * counting, seconds * len(world), len(world), part[0]

    best = max(parts, key=weight)
    return replace(watched, hosts={host: _cut(row[best[0] : best[-1] + 1]) for host, row in watched.hosts.items()})


def _world(watched: Watched, row: Sequence[HostInterval]) -> _World:
    ranks = frozenset(
        (rank.rank, host, rank.readiness.opened_us if rank.readiness else None)
        for host, one in zip(watched.hosts, row, strict=True)
        for rank in one.ranks
    )
    return (row[0].part, ranks)


def _cut(row: tuple[HostInterval, ...]) -> tuple[HostInterval, ...]:
    """Return the row with a first look that has no length: what came before it is another world's."""
    return (replace(row[0], seconds=0.0), *row[1:])
