"""RDMA of the nodes: /dev/infiniband, the index of the GID for NCCL and UCX, and which hosts lack what they need.

With InfiniBand, the fabric addresses ports. With RoCE, a port has a GID for each address of its interface, once for
each version of RoCE. NCCL and UCX must use the one of the host's own IPv4 address and version 2: others are not routed,
or belong to another network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kit.errors import KitError, StepError
from kit.model.observed import HostFacts, RdmaPort
from kit.model.spec import ClusterSpec

DEVICES = "/dev/infiniband"
ACTIVE, ETHERNET = "ACTIVE", "Ethernet"
ROCE_2 = "RoCE v2"
_DISABLED = {"NCCL_IB_DISABLE": "1"}
_INDEXES = ("NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX")


def passed(facts: HostFacts, spec: ClusterSpec) -> bool:
    """Return whether the host's node gets its RDMA devices. Swarm has no setting for devices."""
    return spec.rdma != "off" and spec.orchestrator == "compose" and bool(facts.rdma_devices)


def environment(facts: HostFacts, spec: ClusterSpec) -> dict[str, str]:
    """Return the variables of the host's node for RDMA. Those of `env:` in kit.yaml win, except over `hca=`."""
    values: Mapping[str, str] = {}
    if spec.rdma == "off":
        values = _DISABLED
    elif passed(facts, spec):
        index = gid_index(facts)
        values = dict.fromkeys(_INDEXES, str(index)) if index is not None else {}
    own = {} if facts.host.hca is None else {"NCCL_IB_HCA": facts.host.hca}
    return {**own, **{name: spec.env.get(name, value) for name, value in values.items()}}


def gid_index(facts: HostFacts) -> int | None:
    """Return the index of the GID that most active RoCE ports of the host have for an address of theirs, or None."""
    indexes = [index for port in _wanted(facts) if (index := own_gid(port, facts)) is not None]
    return Counter(indexes).most_common(1)[0][0] if indexes else None


def own_gid(port: RdmaPort, facts: HostFacts) -> int | None:
    """Return the index of a RoCE port's GID of version 2 for an IPv4 address of its interface; None without one."""
    own = {(interface.name, str(interface.address.ip)) for interface in facts.interfaces}
    return next((gid.index for gid in port.gids if gid.kind == ROCE_2 and (gid.interface, gid.address) in own), None)


def _wanted(facts: HostFacts) -> list[RdmaPort]:
    """Return the active RoCE ports of the adapters that NCCL uses: those of `hca=`, or all."""
    ports = [port for port in facts.rdma_ports if port.state == ACTIVE and port.layer == ETHERNET]
    words = [word.partition(":")[0] for word in (facts.host.hca or "").lstrip("=").split(",")]
    named = [port for port in ports if port.adapter in words]
    return named or ports


def problems(observed: Sequence[HostFacts], spec: ClusterSpec) -> list[KitError]:
    """Return which hosts lack what `rdma: require` needs, and what Swarm would drop."""
    if spec.orchestrator == "swarm":
        return [] if spec.rdma == "off" else [_dropped(facts) for facts in observed if facts.rdma_devices]
    if spec.rdma != "require":
        return []
    return [problem for facts in observed if (problem := _missing(facts)) is not None]


def _dropped(facts: HostFacts) -> KitError:
    return StepError(
        f"has {DEVICES}, and Swarm cannot pass devices to a node: ranks would use TCP",
        hint="set orchestrator: compose in kit.yaml, or accept TCP with rdma: off",
        host=facts.host.name,
    )


def _missing(facts: HostFacts) -> KitError | None:
    """Return what the host lacks for RDMA, or None."""
    name = facts.host.name
    off = "or set rdma: auto in kit.yaml, which also accepts hosts without RDMA"
    if not facts.rdma_devices:
        return StepError(
            f"has no {DEVICES}, and kit.yaml has rdma: require",
            hint=f"load the drivers of the adapter (kit ssh {name} -- sudo modprobe ib_uverbs), {off}",
            host=name,
        )
    active = [port for port in facts.rdma_ports if port.state == ACTIVE]
    if not active:
        states = ", ".join(f"{port.adapter} port {port.number} {port.state}" for port in facts.rdma_ports)
        return StepError(
            f"has no active RDMA port ({states or 'no port at all'}), and kit.yaml has rdma: require",
            hint=f"check cable, switch and, for InfiniBand, the subnet manager: kit ssh {name} -- ibstat; {off}",
            host=name,
        )
    roce = _wanted(facts)
    if roce and len(roce) == len(active) and gid_index(facts) is None:
        ports = ", ".join(f"{port.adapter} port {port.number}" for port in roce)
        return StepError(
            f"has no GID of {ROCE_2} for one of its addresses ({ports}), and kit.yaml has rdma: require",
            hint=f"give the adapter's interface an IPv4 address, and look: kit ssh {name} -- show_gids; {off}",
            host=name,
        )
    return None
