"""What kit.yaml gives the nodes of the hosts' CPUs and memory, and which hosts do not have it."""

from __future__ import annotations

from collections.abc import Iterable

from kit.errors import KitError, StepError
from kit.model.observed import HostFacts
from kit.model.quantity import size_bytes
from kit.model.spec import ClusterSpec

_MIB = 1 << 20


def problems(facts: HostFacts, spec: ClusterSpec) -> list[KitError]:
    """Return what kit.yaml asks of a host, and the host does not have."""
    return [
        StepError(message, hint=hint, host=facts.host.name)
        for message, hint in (*_cpus(facts, spec.cpu_limit), *_memory(facts, spec.memory))
    ]


def _cpus(facts: HostFacts, wanted: float | None) -> Iterable[tuple[str, str]]:
    """Yield a problem and its hint. The engine would refuse to create such a container."""
    if wanted and facts.cores and wanted > facts.cores:
        count = "1 CPU" if facts.cores == 1 else f"{facts.cores} CPUs"
        yield (
            f"has {count}, and cpus: {wanted:g} in kit.yaml is more",
            f"write cpus: {facts.cores}, or remove cpus: so that nodes use all CPUs of their hosts",
        )


def _memory(facts: HostFacts, wanted: str | None) -> Iterable[tuple[str, str]]:
    """Yield a problem and its hint. The engine would accept this limit, which no rank could reach."""
    if wanted and facts.memory_mib and size_bytes(wanted) > facts.memory_mib * _MIB:
        yield (
            f"has {facts.memory_mib} MiB of memory, and memory: {wanted} in kit.yaml is more",
            f"write at most memory: {facts.memory_mib}mb, or remove memory:",
        )
