"""GPUs whose PCIe link is slower than it could be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Severity, Sight
from kit.model.nvidia.state import GpuState
from kit.plan.doctor.gpus import STATE, named, states
from kit.plan.doctor.majority import usual


def judge(examined: Examined) -> Iterator[Sight]:
    hosts = states(examined)
    widths: dict[str, list[int]] = defaultdict(list)
    for state in hosts.values():
        for gpu in state.gpus:
            widths[gpu.name].append(gpu.link_width or 0)
    reference = {name: usual(values, int) or 0 for name, values in widths.items()}
    for host, state in hosts.items():
        groups: dict[tuple[str, Severity | None], list[int]] = defaultdict(list)
        for gpu in state.gpus:
            if narrow := _narrow(gpu):
                # Some clouds give each GPU of a type half of the lanes. All have the same then.
                severity: Severity | None = None if (gpu.link_width or 0) < reference[gpu.name] else "watch"
                groups[narrow, severity].append(gpu.index)
            if slow := _slow(gpu):
                groups[slow, None].append(gpu.index)
        for (text, severity), numbers in groups.items():
            yield Sight(hosts=(host,), seen=f"{named(numbers)}: {text}", severity=severity)


def _narrow(gpu: GpuState) -> str | None:
    if gpu.link_width and gpu.most_link_width and gpu.link_width < gpu.most_link_width:
        return f"{gpu.link_width} of {gpu.most_link_width} PCIe lanes"
    return None


def _slow(gpu: GpuState) -> str | None:
    """Return that the link is of an older generation. A GPU without work lowers it to save power."""
    works = bool(gpu.processes) and "gpu_idle" not in gpu.reasons
    if works and gpu.link_generation and gpu.most_link_generation and gpu.link_generation < gpu.most_link_generation:
        return f"PCIe generation {gpu.link_generation} of {gpu.most_link_generation} under load"
    return None


CHECK = Check(
    id="gpu-pcie",
    title="A GPU's PCIe link is slow",
    area="gpu",
    severity="slows",
    judge=judge,
    reads=(STATE,),
    leads_to="Copies between memory and this GPU take twice as long or more, and NCCL without NVLink does, too.",
    fix="Stop and start the VM, so that it gets another machine. On your own machine, seat the card again or use "
    "another slot: `sudo lspci -vv -s BUS` shows LnkSta.",
    lab="kit lab fault HOST gpu-pcie",
)
