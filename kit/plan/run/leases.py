"""Which slots of which node a run gets: those that no living run holds. Pure; the head checks again when it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kit.errors import NotReadyError
from kit.model.launch import Node, Placement
from kit.model.run import Place, RunRecord
from kit.plan.run.ranks import place


def place_free(
    nodes: Sequence[Node],
    living: Sequence[RunRecord],
    *,
    np: int | None = None,
    npernode: int | None = None,
    wait: bool = False,
) -> tuple[Placement, tuple[Place, ...]]:
    """Place the ranks as kit.plan.run.ranks does, on free slots. Where they do not suffice: NotReadyError naming
    holders, or, with `wait`, the places that the run would have on an empty cluster.

    Raises InputError where they would not fit on an empty cluster either.
    """
    wanted = place(nodes, np=np, npernode=npernode)
    free = {node.name: _free(node, living) for node in nodes}
    found = _fill(nodes, [len(free[node.name]) for node in nodes], wanted.np, npernode)
    if found.np < wanted.np:
        if wait:
            return wanted, places(wanted, {node.name: range(node.slots) for node in nodes})
        raise _taken(wanted, living)
    return found, places(found, free)


def _fill(nodes: Sequence[Node], room: Sequence[int], np: int, npernode: int | None) -> Placement:
    """In order: `npernode` ranks, or as many as there is room for, on each node that has it; the last may get fewer."""
    chosen: list[tuple[Node, int]] = []
    for node, free in zip(nodes, room, strict=True):
        count = min(npernode or free, np)
        if 0 < count <= free:
            chosen.append((node, count))
            np -= count
    return Placement(nodes=tuple(node for node, _ in chosen), counts=tuple(count for _, count in chosen))


def places(placement: Placement, free: Mapping[str, Sequence[int]]) -> tuple[Place, ...]:
    """The first of the free slots of each node. More ranks than slots (--oversubscribe) hold all of them."""
    pairs = zip(placement.nodes, placement.counts, strict=True)
    return tuple(
        Place(node=node.name, address=node.address, ranks=count, slots=tuple(free[node.name][:count]))
        for node, count in pairs
    )


def _free(node: Node, living: Sequence[RunRecord]) -> Sequence[int]:
    held = {slot for run in living for each in run.places if each.node == node.name for slot in each.slots}
    return [slot for slot in range(node.slots) if slot not in held]


def _taken(wanted: Placement, living: Sequence[RunRecord]) -> NotReadyError:
    names = {node.name for node in wanted.nodes}
    holders = [run for run in living if any(each.node in names for each in run.places)] or list(living)
    return taken(wanted.np, holders)


def taken(np: int, holders: Sequence[RunRecord]) -> NotReadyError:
    """The refusal: which runs hold the slots."""
    told = "; ".join(f"{run.id}{f' of {run.by}' if run.by else ''}, {run.np} ranks" for run in holders[:3])
    more = f"; and {len(holders) - 3} more" if len(holders) > 3 else ""
    return NotReadyError(
        f"{np} free slots are needed, and other runs hold them: {told}{more}",
        hint="wait for them with --wait, choose other hosts with -H, or: kit stop ID",
    )
