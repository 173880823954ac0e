"""The variables of a host for its network cards: those of RDMA, and the interfaces of NCCL."""

from __future__ import annotations

from kit.model.observed import HostFacts
from kit.model.spec import ClusterSpec
from kit.plan.cluster import network, rdma

NCCL_INTERFACES = "NCCL_SOCKET_IFNAME"


def environment(facts: HostFacts, spec: ClusterSpec) -> dict[str, str]:
    """Return the variables that follow from the host's cards. Those of `env:` in kit.yaml win.

    With '=', NCCL uses exactly these interfaces. The order has no meaning: NCCL itself prefers a card near the GPU.
    """
    values = rdma.environment(facts, spec)
    if spec.interfaces and NCCL_INTERFACES not in spec.env:
        names = dict.fromkeys(interface.name for interface in network.data_interfaces(facts, spec.interfaces))
        values[NCCL_INTERFACES] = f"={','.join(names)}"
    return values
