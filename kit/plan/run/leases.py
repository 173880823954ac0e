"""Chooses slots that no running run holds. The head checks them again when the run starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from kit.errors import NotReadyError
from kit.model.launch import Node, Placement
from kit.model.run import Place, RunRecord
from kit.model.text import plural
from kit.model.values import replace
from kit.plan.run import gpus
from kit.plan.run.owners import named
from kit.plan.run.ranks import place


class Wish(TypedDict):
    """What a run wants of the hosts. The arguments of place_free have the same names."""

    np: int | None
    npernode: int | None
    wait: bool
    share: int


def place_free(
    nodes: Sequence[Node],
    living: Sequence[RunRecord],
    *,
    np: int | None = None,
    npernode: int | None = None,
    wait: bool = False,
    share: int = 0,
) -> tuple[Placement, tuple[Place, ...]]:
    """Place the ranks on free slots, in the way of kit.plan.run.ranks. With `share`, each rank gets that many GPUs.

    If there are too few: with `wait`, return the places on an empty cluster; otherwise raise NotReadyError, which names
    the runs that hold slots. Raises InputError if the ranks do not even fit on an empty cluster.
    """
    if share:
        return _place_alone(nodes, living, share, np=np, npernode=npernode, wait=wait)
    wanted = place(nodes, np=np, npernode=npernode)
    free = {node.name: _free(node, living) for node in nodes}
    placement = _fill(nodes, [len(free[node.name]) for node in nodes], wanted.np, npernode)
    if placement.np < wanted.np:
        if wait:
            return wanted, places(wanted, {node.name: range(node.slots) for node in nodes})
        raise _taken(wanted, living)
    return placement, places(placement, free)


def room(nodes: Sequence[Node], living: Sequence[RunRecord], share: int = 0) -> list[int]:
    """Return how many ranks find a free slot on each node. With `share`, each rank needs that many GPUs."""
    free = {node.name: _free(node, living) for node in nodes}
    if share:
        return [gpus.room(node, gpus.free(node, free[node.name]), share) for node in nodes]
    return [len(free[node.name]) for node in nodes]


def places_on(nodes: Sequence[Node], living: Sequence[RunRecord], share: int = 0) -> tuple[Place, ...]:
    """Return the free slots of each node, as places. With `share`, each rank there gets that many GPUs for itself.

    Raises NotReadyError if a node has none.
    """
    free = {node.name: _free(node, living) for node in nodes}
    placement = Placement(nodes=tuple(nodes), counts=tuple(room(nodes, living, share)))
    if not all(placement.counts):
        raise _taken(replace(placement, counts=tuple(room(nodes, (), share))), living)
    if share:
        return gpus.places_alone(placement, {node.name: gpus.free(node, free[node.name]) for node in nodes}, share)
    return places(placement, free)


def _place_alone(
    nodes: Sequence[Node],
    living: Sequence[RunRecord],
    share: int,
    *,
    np: int | None,
    npernode: int | None,
    wait: bool,
) -> tuple[Placement, tuple[Place, ...]]:
    """Place ranks that each get `share` GPUs for themselves."""
    wanted = gpus.place_alone(nodes, share, np=np, npernode=npernode)
    free = {node.name: gpus.free(node, _free(node, living)) for node in nodes}
    room = [gpus.room(node, free[node.name], share) for node in nodes]
    placement = _fill(nodes, room, wanted.np, npernode)
    if placement.np < wanted.np:
        if wait:
            return wanted, gpus.places_alone(wanted, {node.name: range(node.gpus) for node in nodes}, share)
        raise _taken(wanted, living)
    return placement, gpus.places_alone(placement, free, share)


def _fill(nodes: Sequence[Node], room: Sequence[int], np: int, npernode: int | None) -> Placement:
    """Put `npernode` ranks (default: all free slots) on each node with room, in order. The last may get fewer."""
    chosen: list[tuple[Node, int]] = []
    for node, free in zip(nodes, room, strict=True):
        count = min(npernode or free, np)
        if 0 < count <= free:
            chosen.append((node, count))
            np -= count
    return Placement(nodes=tuple(node for node, _ in chosen), counts=tuple(count for _, count in chosen))


def places(placement: Placement, free: Mapping[str, Sequence[int]]) -> tuple[Place, ...]:
    """Return each node with its first free slots. More ranks than slots (--oversubscribe) hold all slots."""
    pairs = zip(placement.nodes, placement.counts, strict=True)
    return tuple(
        Place(node=node.name, address=node.address, ranks=count, slots=tuple(free[node.name][:count]), of=node.slots)
        for node, count in pairs
    )


def _free(node: Node, living: Sequence[RunRecord]) -> Sequence[int]:
    """Return the slots of a node that no run holds.

    Return no slot if a run holds some of another division of the node, because slots= has changed: those are other
    GPUs.
    """
    there = [place for run in living for place in run.places if place.node == node.name and place.slots]
    if any(place.of not in (0, node.slots) for place in there):
        return []
    held = {slot for place in there for slot in place.slots}
    return [slot for slot in range(node.slots) if slot not in held]


def _taken(wanted: Placement, living: Sequence[RunRecord]) -> NotReadyError:
    names = {node.name for node in wanted.nodes}
    holders = [run for run in living if any(place.node in names for place in run.places)] or list(living)
    return taken(wanted.np, holders)


def needed(np: int) -> str:
    return f"{plural(np, 'free slot')} {'is' if np == 1 else 'are'} needed"


def taken(np: int, holders: Sequence[RunRecord]) -> NotReadyError:
    """Return the error that names the runs that hold the slots."""
    runs = "; ".join(f"{named(run.id, run.by)}, {_extent(run)}" for run in holders[:3])
    more = f"; and {len(holders) - 3} more" if len(holders) > 3 else ""
    hint = "wait with --wait, choose other hosts with -H, or stop a run: kit stop ID"
    if holders and all(run.state == "lost" for run in holders):
        hint = "other hosts end the ranks of a lost run within a minute: run the same again then, or wait with --wait"
    return NotReadyError(f"{needed(np)}, but other runs hold them: {runs}{more}", hint=hint)


def _extent(run: RunRecord) -> str:
    return "which was lost with the head" if run.state == "lost" else plural(run.np, "rank")
