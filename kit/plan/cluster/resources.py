"""What kit.yaml gives the nodes of the hosts' CPUs and memory, and which hosts do not have it."""

from __future__ import annotations

from collections.abc import Iterable

from kit.errors import KitError, StepError
from kit.model.observed import HostFacts
from kit.model.quantity import size_bytes
from kit.model.spec import ClusterSpec
from kit.plan.cluster.checks import devices, nccl_library
from kit.plan.cluster.fence import HUGE_PAGES
from kit.plan.cluster.nodes import slots_of

_MIB = 1 << 20


def problems(facts: HostFacts, spec: ClusterSpec) -> list[KitError]:
    """Return what kit.yaml asks of a host, and the host does not have."""
    return [
        StepError(message, hint=hint, host=facts.host.name)
        for message, hint in (
            *_cpus(facts, spec.cpu_limit),
            *_slots(facts, slots_of(facts, spec) if spec.exclusive else 0),
            *_memory(facts, spec.memory),
            *_devices(facts, spec),
            *_huge_pages(facts, spec),
            *_nccl_plugin(facts, spec.nccl.folder),
        )
    ]


def _cpus(facts: HostFacts, wanted: float | None) -> Iterable[tuple[str, str]]:
    """Yield a problem and its hint. The engine would refuse to create such a container."""
    if wanted and facts.cores and wanted > facts.cores:
        count = "1 CPU" if facts.cores == 1 else f"{facts.cores} CPUs"
        yield (
            f"has {count}, and cpus: {wanted:g} in kit.yaml is more",
            f"write cpus: {facts.cores}, or remove cpus: so that nodes use all CPUs of their hosts",
        )


def _slots(facts: HostFacts, slots: int) -> Iterable[tuple[str, str]]:
    """Yield a problem and its hint if some slots would have no CPU."""
    if facts.cores and slots > facts.cores:
        yield (
            f"has fewer CPUs ({facts.cores}) than slots ({slots}), and cpus: exclusive gives each slot CPUs for itself",
            f"write slots={facts.cores} for {facts.host.name} in the hosts file, or remove cpus: exclusive",
        )


def _memory(facts: HostFacts, wanted: str | None) -> Iterable[tuple[str, str]]:
    """Yield a problem and its hint. The engine would accept this limit, which no rank could reach."""
    if wanted and facts.memory_mib and size_bytes(wanted) > facts.memory_mib * _MIB:
        yield (
            f"has {facts.memory_mib} MiB of memory, and memory: {wanted} in kit.yaml is more",
            f"write at most memory: {facts.memory_mib}mb, or remove memory:",
        )


def _devices(facts: HostFacts, spec: ClusterSpec) -> Iterable[tuple[str, str]]:
    """Yield a problem and its hint for each device that the host lacks. The engine would not start the node."""
    for device in devices(spec):
        if device in facts.absent:
            yield (
                f"has no {device}, which devices: in kit.yaml names",
                f"load its driver on {facts.host.name}, or take the device out of kit.yaml",
            )


def _huge_pages(facts: HostFacts, spec: ClusterSpec) -> Iterable[tuple[str, str]]:
    """Yield a problem and its hint. Pages that a run of this cluster uses count as free: it gives them back."""
    if spec.hugepages is None:
        return
    pages = facts.huge_pages
    setup = (
        f"reserve them: setup: {{hugepages: 4}} in kit.yaml for 4 GiB, then kit setup --only hugepages -H "
        f"{facts.host.name}; or remove hugepages:"
    )
    runs = any(container.running and container.cluster == spec.name for container in facts.containers)
    there = pages.total_mib if runs else pages.free_mib
    if there * _MIB < size_bytes(spec.hugepages):
        of = "" if runs else "free "
        yield f"has {there} MiB of {of}huge pages, and hugepages: {spec.hugepages} in kit.yaml is more", setup
    elif HUGE_PAGES in facts.absent:
        yield f"has huge pages, and no {HUGE_PAGES} through which nodes could use them", setup


def _nccl_plugin(facts: HostFacts, folder: str | None) -> Iterable[tuple[str, str]]:
    """Yield a problem and its hint. The engine would make the folder, empty, and each run on GPUs would end."""
    if folder and nccl_library(folder) in facts.absent:
        yield (
            f"has no libnccl-net*.so in {folder}, which nccl.plugin in kit.yaml names",
            f"copy the plugin there: kit ssh {facts.host.name} -- ls {folder}; or remove nccl.plugin",
        )
