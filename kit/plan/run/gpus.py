"""Deals the GPUs of a host to the slots and ranks there.

A run holds slots. The slots of a host divide its GPUs: with 4 slots on 8 GPUs, slot 0 means GPUs 0 and 1; with 8 slots
on 4 GPUs, slots 0 and 1 both mean GPU 0. GPUs have nvidia-smi's numbers. With MIG, each MIG device counts as a
GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kit.errors import InputError
from kit.model.launch import Node, Placement, RunPolicy, RunRequest
from kit.model.run import Place
from kit.model.spec import ClusterSpec
from kit.plan.run.ranks import place

if TYPE_CHECKING:
    from kit.model.observed import HostFacts, Lease

# kit-rank gives each rank this many of the GPUs that the run holds on its node (images/lib/kitrun/devices.py).
SHARE_VARIABLE = "KIT_GPUS_PER_RANK"
# Set if kit-rank binds each rank to the cores near its GPU.
NEAR_VARIABLE = "KIT_BIND_NEAR"
# Set if kit-rank reports the GPUs and cores of its rank.
REPORT_VARIABLE = "KIT_REPORT_BINDINGS"
# A user's own choice of GPUs.
VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"


def per_rank(request: RunRequest, spec: ClusterSpec) -> int:
    """Return how many GPUs each rank gets for itself; 0 if the ranks choose by themselves.

    Raises InputError for options that conflict.
    """
    count = spec.gpus_per_rank if request.gpus_per_rank is None else request.gpus_per_rank
    if count and request.oversubscribe:
        raise InputError(
            "--oversubscribe starts more ranks than slots, and then a rank cannot have a GPU for itself",
            hint="remove --oversubscribe, or let the ranks share the GPUs: --gpus-per-rank 0",
        )
    return count


def check_idle(policy: RunPolicy, nodes: Iterable[Node]) -> None:
    """Raise InputError for --idle-gpu on a host without GPUs."""
    for node in nodes:
        if policy.idle_gpu is not None and not node.gpus:
            raise InputError(
                f"--idle-gpu ends a run whose GPUs are idle, and {node.name} has no GPU",
                hint="remove --idle-gpu, or choose hosts with GPUs with -H; if GPUs are new, run: kit deploy",
            )


def variables(request: RunRequest, spec: ClusterSpec) -> dict[str, str]:
    """Return the variables by which kit-rank chooses and binds. A user's own choice of GPUs wins over them."""
    count = per_rank(request, spec)
    values = {SHARE_VARIABLE: str(count)} if count else {}
    if count and spec.mpi.bind_to == "auto":
        values[NEAR_VARIABLE] = "1"
    if request.report_bindings:
        values[REPORT_VARIABLE] = "1"
    return values


def of_slot(node: Node, slot: int) -> range:
    """Return the GPUs that a slot of the node means: several if it has more GPUs than slots, none without GPUs."""
    if not node.gpus:
        return range(0)
    first = slot * node.gpus // node.slots
    return range(first, max(first + 1, (slot + 1) * node.gpus // node.slots))


def of_slots(node: Node, slots: Iterable[int]) -> tuple[int, ...]:
    """Return the GPUs that these slots of the node mean. A slot that the node does not have means no GPU."""
    return tuple(sorted({gpu for slot in slots if slot < node.slots for gpu in of_slot(node, slot)}))


def free(node: Node, slots: Iterable[int]) -> tuple[int, ...]:
    """Return the GPUs whose slots are all among `slots`, the free ones."""
    held = set(range(node.slots)) - set(slots)
    taken = of_slots(node, held)
    return tuple(gpu for gpu in range(node.gpus) if gpu not in taken)


def idle(facts: HostFacts, slots: int, leases: Sequence[Lease], ranks: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    """Return the numbers of a host's GPUs that its node sees, that no run holds, and that no program uses.

    `ranks` has the ranks on the host by run. Ranks of a run without a lease, as in the head's shell, count as if each
    used the GPUs of a slot: kit cannot know which.
    """
    # kit run imports this module, and has no use for what reads the lists of nvidia-smi.
    from kit.model.nvidia.listing import numbered  # noqa: PLC0415
    from kit.plan.cluster.gpus import usable  # noqa: PLC0415

    ours = numbered((gpu.uuid, (gpu.uuid,) if gpu.mig is None else gpu.mig) for gpu in facts.gpus)
    total = sum(1 if gpu.mig is None else len(gpu.mig) for gpu in facts.gpus)
    node = Node(name=facts.host.name, address="", slots=max(slots, 1), gpus=total)
    held = set(of_slots(node, {slot for lease in leases for slot in lease.slots.get(node.name, ())}))
    used = {number for process in facts.gpu_processes or () for number in ours.get(process.gpu, ())}
    hidden = [uuid for uuid in usable(facts) if facts.node_gpus is not None and uuid not in facts.node_gpus]
    unseen = {number for uuid in hidden for number in ours[uuid]}
    left = [number for number in range(total) if number not in held | used | unseen]
    known = {lease.run for lease in leases}
    others = sum(len(numbers) for run, numbers in ranks.items() if run not in known)
    # What these ranks use already shows in the list of processes.
    more = max(0, -(-others * total // node.slots) - len(used - held))
    return tuple(left[: max(0, len(left) - more)])


def slots_of(node: Node, gpus: Iterable[int]) -> tuple[int, ...]:
    """Return the slots that mean any of these GPUs. A run that holds them holds the GPUs."""
    wanted = set(gpus)
    return tuple(slot for slot in range(node.slots) if not wanted.isdisjoint(of_slot(node, slot)))


def room(node: Node, gpus: Sequence[int], share: int) -> int:
    """Return how many ranks fit on the node, if each gets `share` of these GPUs for itself."""
    return min(node.slots, len(gpus) // share)


def place_alone(nodes: Sequence[Node], share: int, *, np: int | None, npernode: int | None) -> Placement:
    """Place ranks with `share` GPUs each on empty nodes. Raises InputError, which names a host with too few GPUs."""
    rooms = {node.name: room(node, range(node.gpus), share) for node in nodes}
    most = sum(rooms.values())
    small = [node for node in nodes if not rooms[node.name]]
    if small and (np is None or not most):
        raise InputError(
            f"{small[0].name} has {_gpus(small[0].gpus)}, and each rank gets {share}",
            hint=_instead(most and f"choose the hosts that have enough with -H, or {most} ranks with --np {most}"),
        )
    seats = [Node(name=n.name, address=n.address, slots=rooms[n.name], cores=n.cores) for n in nodes if rooms[n.name]]
    placement = place(seats, np=np, npernode=npernode, oversubscribe=True)
    for node, count in zip(placement.nodes, placement.counts, strict=True):
        if count > node.slots:
            whole = next(n for n in nodes if n.name == node.name)
            fits = f"--npernode {min(seat.slots for seat in seats)}" if npernode and not np else f"--np {most}"
            if count * share <= whole.gpus:
                slots = "1 slot" if whole.slots == 1 else f"{whole.slots} slots"
                raise InputError(
                    f"{node.name} has {slots}, fewer than {count} ranks",
                    hint=f"use {fits}, or raise slots= in the hosts file",
                )
            raise InputError(
                f"{node.name} has {_gpus(whole.gpus)}, and {count} ranks there with {_gpus(share)} each need "
                f"{count * share}",
                hint=_instead(f"use {fits}"),
            )
    by_name = {node.name: node for node in nodes}
    return Placement(nodes=tuple(by_name[node.name] for node in placement.nodes), counts=placement.counts)


def _instead(first: str | int) -> str:
    others = "let the ranks share the GPUs: --gpus-per-rank 0; if GPUs are new, run: kit deploy"
    return f"{first}; or {others}" if first else others


def places_alone(placement: Placement, gpus: Mapping[str, Sequence[int]], share: int) -> tuple[Place, ...]:
    """Return each node with the slots of its first free GPUs, `share` for each rank there."""
    pairs = zip(placement.nodes, placement.counts, strict=True)
    return tuple(
        Place(
            node=node.name,
            address=node.address,
            ranks=count,
            slots=slots_of(node, gpus[node.name][: count * share]),
            of=node.slots,
        )
        for node, count in pairs
    )


def held(placement: Placement, places: Sequence[Place]) -> dict[str, tuple[int, ...]]:
    """Return the GPUs of the slots that the run holds, by node; without the nodes that have no GPU."""
    nodes = {node.name: node for node in placement.nodes}
    return {p.node: of_slots(nodes[p.node], p.slots) for p in places if nodes[p.node].gpus}


def of_ranks(placement: Placement, places: Sequence[Place], share: int) -> list[tuple[int, str, tuple[int, ...]]]:
    """Return (rank, node, its GPUs) for each rank: its own `share`, or without one all that the run holds there."""
    numbers = held(placement, places)
    rows, rank = [], 0
    for node, count in zip(placement.nodes, placement.counts, strict=True):
        gpus = numbers.get(node.name, ())
        for local in range(count):
            rows.append((rank, node.name, gpus[local * share : (local + 1) * share] if share else gpus))
            rank += 1
    return rows


def _gpus(count: int) -> str:
    return "no GPU" if not count else "1 GPU" if count == 1 else f"{count} GPUs"
