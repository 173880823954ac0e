"""Judges the GPUs of a run's hosts: what they have lost, and which programs that kit did not start use them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from msgspec import Struct

from kit.errors import NotReadyError
from kit.model.launch import Node
from kit.model.nvidia.listing import ListedGpu, numbers
from kit.model.observed import GpuProcess
from kit.model.pretended import marked
from kit.model.run import Place, RunRecord
from kit.model.text import fold
from kit.plan.cluster.gpus import unseen
from kit.plan.run.gpus import slots_of

# How many programs a message names.
_MOST = 3


class BusyGpu(Struct, frozen=True, kw_only=True):
    """A program on GPUs of a host. `gpus` are kit's numbers, empty if nvidia-smi did not list the GPU.

    `models` are the names of the host's GPUs.
    """

    host: str
    gpus: tuple[int, ...]
    process: GpuProcess
    models: tuple[str, ...] = ()

    def __str__(self) -> str:
        which = marked(_words(self.gpus) if self.gpus else self.process.gpu, self.models)
        size = f", {self.process.memory_mib} MiB" if self.process.memory_mib else ""
        return f"{self.host}: {which}: {self.process.command or 'a program'} (PID {self.process.pid} of " + (
            f"{self.process.user}{size})"
        )


def strangers(processes: Sequence[GpuProcess], cluster: str) -> tuple[GpuProcess, ...]:
    """Return the processes that no lease of the cluster covers: those outside of its containers."""
    return tuple(process for process in processes if process.cluster != cluster)


def busy_gpus(
    host: str, processes: Sequence[GpuProcess], gpus: Sequence[ListedGpu], held: Sequence[int]
) -> tuple[BusyGpu, ...]:
    """Return the processes that use a GPU which the run holds on this host.

    `gpus` are those of the host. A GPU that it does not list counts as held.
    """
    ours, models = numbers(gpus), tuple(gpu.name for gpu in gpus)
    rows = (BusyGpu(host=host, gpus=tuple(ours.get(p.gpu, ())), process=p, models=models) for p in processes)
    return tuple(row for row in rows if not row.gpus or not set(held).isdisjoint(row.gpus))


def loss(gpus: Sequence[ListedGpu], seen: Container[str] | None, fault: str, *, deployed: int, chosen: bool) -> str:
    """Return what a host or its running node has lost of its GPUs since the deploy, or "".

    `gpus` are those of the host now, `seen` the UUIDs of what its node sees (None: unknown), `fault` what nvidia-smi
    prints there, and `deployed` how many GPUs and MIG devices the host had. `chosen`: kit.yaml chooses the node's GPUs.
    """
    return marked(_loss(gpus, seen, fault, deployed=deployed, chosen=chosen), [gpu.name for gpu in gpus])


def _loss(gpus: Sequence[ListedGpu], seen: Container[str] | None, fault: str, *, deployed: int, chosen: bool) -> str:
    count = sum(len(gpu.migs) or 1 for gpu in gpus)
    if gpus and count < deployed:
        return f"the host has {count} of the {deployed} GPUs that it had at the deploy"
    if seen is None or chosen:
        return ""
    uuids = [uuid for gpu in gpus for uuid in [mig.uuid for mig in gpu.migs] or [gpu.uuid] if uuid]
    if fault and not any(uuid in seen for uuid in uuids):
        return f"the node sees no GPU: {fault}"
    return unseen(uuids, seen, fault)


def lost(faults: Mapping[str, str]) -> NotReadyError:
    """Return the error of a run on hosts that lost GPUs. `faults` has what is lost, by host."""
    return NotReadyError(
        "; ".join(f"{fold(hosts)}: {fault}" for fault, hosts in _by_fault(faults)),
        hint="recreate the nodes, and record the GPUs that are left: kit deploy. systemctl daemon-reload takes the "
        "GPUs of nodes that have them by a hook; what a host itself has lost, kit doctor shows",
    )


def _by_fault(faults: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    groups: dict[str, list[str]] = {}
    for host, fault in faults.items():
        groups.setdefault(fault, []).append(host)
    return list(groups.items())


def holding(
    nodes: Iterable[Node],
    processes: Mapping[str, Sequence[GpuProcess]],
    gpus: Mapping[str, Sequence[ListedGpu]],
    *,
    lost: Container[str] = (),
) -> RunRecord:
    """Return a run that would hold the slots of all GPUs that these processes use, and those of hosts that lost GPUs.

    A process on a GPU that the host does not list holds all slots there.
    """
    places = []
    for node in nodes:
        if node.name in lost:
            places.append(Place(node=node.name, address=node.address, ranks=0, slots=tuple(range(node.slots))))
            continue
        ours = numbers(gpus.get(node.name, ()))
        used = [ours.get(process.gpu, tuple(range(node.gpus))) for process in processes.get(node.name, ())]
        slots = slots_of(node, (number for group in used for number in group))
        if slots:
            places.append(Place(node=node.name, address=node.address, ranks=0, slots=slots))
    return RunRecord(id="", cluster="", image="", command=(), places=tuple(places))


def overlaps(holder: RunRecord, places: Iterable[Place]) -> bool:
    """Return whether the places have slots of the holder."""
    held = {(place.node, slot) for place in holder.places for slot in place.slots}
    return any((place.node, slot) in held for place in places for slot in place.slots)


def around(busy: Sequence[BusyGpu], held: Mapping[str, Sequence[int]]) -> str:
    """Return the warning about a run that goes around busy GPUs. `held` are the GPUs that it has, by host."""
    by_gpus: dict[tuple[int, ...], list[str]] = {}
    for host, gpus in held.items():
        by_gpus.setdefault(tuple(gpus), []).append(host)
    places = "; ".join(f"{fold(hosts)}: {_words(gpus)}" for gpus, hosts in by_gpus.items()) or "hosts without GPUs"
    return f"programs that kit did not start use GPUs: {shown(busy)}; the run uses others: {places}"


def _words(gpus: Sequence[int]) -> str:
    return f"GPU{'s' if len(gpus) > 1 else ''} {', '.join(map(str, gpus))}"


def shown(busy: Sequence[BusyGpu]) -> str:
    """Return the first programs in words."""
    more = f"; and {len(busy) - _MOST} more" if len(busy) > _MOST else ""
    return "; ".join(map(str, busy[:_MOST])) + more


def refusal(busy: Sequence[BusyGpu]) -> NotReadyError:
    """Return the error of a run whose GPUs are in use by programs that kit did not start."""
    hosts = list(dict.fromkeys(row.host for row in busy))
    return NotReadyError(
        f"programs that kit did not start use GPUs of this run: {shown(busy)}",
        hint=f"end them, leave out {fold(hosts)} with -H, or run beside them: --ignore-busy-gpus",
    )
