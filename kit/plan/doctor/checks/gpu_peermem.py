"""RDMA adapters that cannot read a GPU's memory."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, File, Links, Sight
from kit.plan.doctor.gpus import STATE, state_of

_DRIVERS = Links(pattern="/sys/class/infiniband/*/device/driver")
# nvidia_peermem, or nv_peer_mem of older drivers.
_MODULE = Links(pattern="/sys/module/nv*_peer*mem")
_VERSION = File(path="/proc/driver/nvidia/version")
# Adapters of clouds, such as efa, have their own way.
_MELLANOX = ("mlx5_core", "mlx4_core")


def judge(examined: Examined) -> Iterator[Sight]:
    if examined.spec.rdma == "off":
        return
    for host in examined.hosts:
        adapters = [path for path, target in host.link(_DRIVERS.pattern).items() if target.endswith(_MELLANOX)]
        version, state = host.file(_VERSION.path), state_of(host)
        # The open kernel modules share memory as dma-buf, and need no other module.
        if not adapters or not version or "Open Kernel Module" in version or not (state and state.gpus):
            continue
        if not host.link(_MODULE.pattern):
            yield Sight(hosts=(host.name,), seen="the module nvidia_peermem is not loaded")


CHECK = Check(
    id="gpu-peermem",
    title="RDMA cannot read the GPUs' memory",
    area="gpu",
    severity="slows",
    judge=judge,
    reads=(STATE, _DRIVERS, _MODULE, _VERSION),
    leads_to="NCCL copies each message through the VM's memory, which costs half of the bandwidth or more.",
    fix="`sudo modprobe nvidia_peermem`, and at each start: `echo nvidia_peermem | sudo tee "
    "/etc/modules-load.d/nvidia-peermem.conf`. Or install NVIDIA's open kernel modules.",
    lab="kit lab fault HOST gpu-peermem",
)
