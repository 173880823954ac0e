"""Places a run that does not wait in line so that it does not delay the first run there. The head checks it again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from kit.errors import NotReadyError
from kit.model.launch import Node, Placement
from kit.model.queue import Reserved
from kit.model.run import Place, RunRecord
from kit.plan.run.leases import needed, place_free


def place_past(
    nodes: Sequence[Node],
    living: Sequence[RunRecord],
    first: Reserved,
    *,
    limit: float | None,
    np: int | None = None,
    npernode: int | None = None,
    wait: bool = False,
    share: int = 0,
) -> tuple[Placement, tuple[Place, ...]]:
    """Place ranks as place_free does, on slots that are free and not reserved for the first run in line.

    A run whose time limit, in seconds, ends before they are needed may have reserved ones, too. If there are too few:
    with `wait`, return what place_free returns; otherwise raise NotReadyError, which names the run that waits.
    """

    def placed(holders: Sequence[RunRecord], *, wait: bool = False) -> tuple[Placement, tuple[Place, ...]]:
        return place_free(nodes, holders, np=np, npernode=npernode, wait=wait, share=share)

    for holders in ([*living, _holding(first)], *([living] if in_time(first, limit) else [])):
        with suppress(NotReadyError):
            return placed(holders)
    # Raises an error if other runs hold the slots.
    placement, places = placed(living, wait=wait)
    if wait:
        return placement, places
    raise refusal(placement.np, first)


def _holding(first: Reserved) -> RunRecord:
    """Return a run that would hold the reserved slots."""
    places = tuple(
        Place(node=host, address="", ranks=len(slots), slots=tuple(sorted(slots)))
        for host, slots in first.slots.items()
    )
    return RunRecord(id=first.run, cluster="", image="", command=(), places=places)


def in_time(first: Reserved, limit: float | None) -> bool:
    """Return whether a run with this limit ends before the reserved slots are needed."""
    return limit is not None and first.left is not None and limit <= first.left


def overlaps(first: Reserved, places: Sequence[Place]) -> bool:
    """Return whether the places have slots that are reserved."""
    return any(not first.slots.get(place.node, frozenset()).isdisjoint(place.slots) for place in places)


def check(np: int, places: Sequence[Place], first: Reserved, *, limit: float | None) -> None:
    """Raise NotReadyError if a run on these places would delay the first one in line."""
    if overlaps(first, places) and not in_time(first, limit):
        raise refusal(np, first)


def refusal(np: int, first: Reserved) -> NotReadyError:
    """Return the error for a run that would delay the first one in line."""
    minutes = int((first.left or 0.0) // 60)
    in_time = f"give it a time limit of at most {minutes} minutes with --timeout, " if minutes else ""
    return NotReadyError(
        f"{needed(np)} that are not reserved for run {first.run}, the first in line",
        hint=f"join the line with kit run --queue, {in_time}start first with --now, or let that run wait: "
        f"kit queue hold {first.run}",
    )
