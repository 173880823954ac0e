"""The CPUs of a run on each host: those of its slots with `cpus: exclusive`, or as many as `--cpus` says.

kit decides what a run may take. Which CPUs these are follows from the node's cores, NUMA nodes and GPUs, so kit-rank
chooses them there (images/lib/kitrun/cores.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from kit.errors import InputError
from kit.model.launch import Node, Placement
from kit.model.run import Place
from kit.model.spec import ClusterSpec

# The slots that the run holds on each node of which it does not hold all: `gpu1=0,1/4`. The last word says that it may
# use no other CPUs.
SLOTS_VARIABLE, EXCLUSIVE = "KIT_CPU_SLOTS", "exclusive"
# How many CPUs the run may use on each host.
COUNT_VARIABLE = "KIT_CPUS"
# mpirun's --bind-to, if kit-rank binds instead: mpirun would choose CPUs outside of those of the run, or would bind a
# torchrun with all ranks below it.
BIND_VARIABLE = "KIT_BIND_TO"


def variables(
    spec: ClusterSpec, placement: Placement, places: Sequence[Place], *, exclusive: bool, count: int | None
) -> dict[str, str]:
    """Return the variables by which kit-rank binds. Empty if the run may use all CPUs of its hosts.

    Raises InputError for a count that a host of the run does not have.
    """
    if not exclusive and count is None:
        return {}
    by_name = {place.node: place for place in places}
    words = []
    for node in placement.nodes:
        slots = by_name[node.name].slots if node.name in by_name else tuple(range(node.slots))
        if count is not None:
            _check(node, slots, count, exclusive=exclusive)
        if len(slots) < node.slots:
            words.append(f"{node.name}={','.join(map(str, slots))}/{node.slots}")
    if not words and count is None:
        return {}
    values = {SLOTS_VARIABLE: " ".join([*words, *([EXCLUSIVE] if exclusive else [])])} if words else {}
    if count is not None:
        values[COUNT_VARIABLE] = str(count)
    if spec.mpi.bind_to not in ("auto", "none"):
        values[BIND_VARIABLE] = spec.mpi.bind_to
    return values


def _check(node: Node, slots: Sequence[int], count: int, *, exclusive: bool) -> None:
    """Raise InputError if the host has fewer CPUs than the run wants. It may not be known how many it has."""
    share = node.cores * len(slots) // node.slots if exclusive else node.cores
    if not node.cores or count <= share:
        return
    if exclusive and len(slots) < node.slots:
        raise InputError(
            f"--cpus {count} is more than the {share} of {node.cores} CPUs of {node.name} that go with "
            f"{len(slots)} of its {node.slots} slots (cpus: exclusive)",
            hint=f"use --cpus {share}, or start more ranks there" if share else "start more ranks there",
        )
    raise InputError(f"--cpus {count} is more than the {share} CPUs of {node.name}", hint=f"use --cpus {share}")
