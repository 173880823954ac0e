"""GPUs whose nearest RDMA adapter is on another socket."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from kit.model.answer import OddAnswer
from kit.model.doctor import Check, Command, Examined, Sight
from kit.model.nvidia.topology import Topology, topology
from kit.model.text import fold

_MATRIX = Command(argv=("nvidia-smi", "topo", "-m"), timeout_s=30.0)
# SOC is an old spelling.
_ACROSS = {"SYS", "SOC"}
_NAMED = 8


@lru_cache(maxsize=512)
def _topology(text: str) -> Topology:
    try:
        return topology(text)
    except OddAnswer:
        return Topology()


def judge(examined: Examined) -> Iterator[Sight]:
    # It compares only the places of RDMA adapters.
    if examined.spec.rdma == "off":
        return
    for host in examined.hosts:
        ran = host.ran(*_MATRIX.argv)
        known = _topology(ran.out) if ran and ran.code == 0 else Topology()
        far = []
        for gpu in known.gpus:
            ways = {way for nic in known.nics if (way := known.links.get((gpu, nic)))}
            if ways and ways <= _ACROSS:
                far.append(gpu)
        if far:
            every = len(far) == len(known.gpus)
            seen = f"{fold(far, most=_NAMED)}: each RDMA adapter is on another NUMA node"
            yield Sight(hosts=(host.name,), seen=seen, severity=None if every else "watch")


CHECK = Check(
    id="gpu-numa",
    title="GPUs and network adapters are on different NUMA nodes",
    area="gpu",
    severity="slows",
    judge=judge,
    reads=(_MATRIX,),
    leads_to="Each message crosses the link between the sockets, and NCCL reaches half of the bandwidth.",
    fix="Choose GPUs near the adapter (`nvidia-smi topo -m`), or another type of VM. If the VM hides its NUMA nodes, "
    "ask the provider for a topology file for NCCL.",
    lab="kit lab fault HOST gpu-numa",
)
