"""Places ranks on nodes: slots, np and npernode determine the number of ranks on each node."""

from __future__ import annotations

from collections.abc import Sequence

from kit.errors import InputError
from kit.model.launch import Node, Placement


def place(
    nodes: Sequence[Node], *, np: int | None = None, npernode: int | None = None, oversubscribe: bool = False
) -> Placement:
    """Fill the nodes in order with `npernode` ranks each (default: all slots), until np ranks are placed.

    Without np, every node gets npernode ranks or all its slots. Raises InputError with the arithmetic if the ranks do
    not fit.
    """
    if not nodes:
        raise InputError("no host can run ranks", hint="name hosts with -H, or add some to the hosts file")
    for value, flag in ((np, "--np"), (npernode, "--npernode")):
        if value is not None and value < 1:
            raise InputError(f"{flag} {value} is not a number of ranks", hint=f"use {flag} with a number from 1")
    if np is not None and npernode is not None and npernode * len(nodes) < np:
        raise InputError(
            f"--npernode {npernode} × {len(nodes)} {_hosts(len(nodes))} = {npernode * len(nodes)} ranks, "
            f"fewer than --np {np}",
            hint=f"use --npernode {-(-np // len(nodes))}, or --np {npernode * len(nodes)}",
        )
    slots = sum(node.slots for node in nodes)
    if not oversubscribe:
        _fits(nodes, np=np, npernode=npernode, slots=slots)
    capacity = [npernode if npernode is not None else node.slots for node in nodes]
    wanted = np if np is not None else sum(capacity)
    counts = _fill(capacity, wanted) if sum(capacity) >= wanted else _spread(capacity, wanted)
    chosen = [(node, count) for node, count in zip(nodes, counts, strict=True) if count]
    return Placement(nodes=tuple(node for node, _ in chosen), counts=tuple(count for _, count in chosen))


def _fits(nodes: Sequence[Node], *, np: int | None, npernode: int | None, slots: int) -> None:
    if np is not None and np > slots:
        listing = ", ".join(f"{node.name} {node.slots}" for node in nodes[:8]) + (", …" if len(nodes) > 8 else "")
        raise InputError(
            f"--np {np} is more than the {slots} slots of {len(nodes)} {_hosts(len(nodes))} ({listing})",
            hint=f"use --np {slots}, raise slots= in the hosts file, or ignore the limit with --oversubscribe",
        )
    if npernode is None:
        return
    # The last node may get fewer ranks than npernode.
    counts = _fill([npernode] * len(nodes), npernode * len(nodes) if np is None else np)
    small = [node for node, count in zip(nodes, counts, strict=True) if node.slots < count]
    if small:
        raise InputError(
            f"--npernode {npernode} is more than the {small[0].slots} slots of {small[0].name}",
            hint=f"use --npernode {min(n.slots for n in small)}, raise slots= in the hosts file, "
            "or ignore the limit with --oversubscribe",
        )


def _fill(capacity: Sequence[int], wanted: int) -> list[int]:
    counts = []
    for room in capacity:
        counts.append(min(room, wanted))
        wanted -= counts[-1]
    return counts


def _spread(capacity: Sequence[int], wanted: int) -> list[int]:
    """Place more ranks than slots (--oversubscribe): full rounds over all nodes, then the rest on the first nodes."""
    rounds, rest = divmod(wanted, sum(capacity))
    return [room * rounds + extra for room, extra in zip(capacity, _fill(capacity, rest), strict=True)]


def _hosts(count: int) -> str:
    return "host" if count == 1 else "hosts"
