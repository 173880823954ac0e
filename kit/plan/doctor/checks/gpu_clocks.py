"""GPUs whose application clock is below the maximum."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Sight
from kit.model.nvidia.state import GpuState
from kit.plan.doctor.gpus import STATE, of_gpus


def judge(examined: Examined) -> Iterator[Sight]:
    return of_gpus(examined, _seen)


def _seen(gpu: GpuState) -> str | None:
    clock, most = gpu.application_mhz, gpu.most_sm_mhz
    if not clock or not most or clock >= most:
        return None
    return f"the application clock is {clock:.0f} of {most:.0f} MHz"


CHECK = Check(
    id="gpu-clocks",
    title="GPUs do not use their highest clock",
    area="gpu",
    # Most GPUs exceed it when they are cool. It is only worth setting.
    severity="watch",
    judge=judge,
    reads=(STATE,),
    leads_to="Computing may take some percent longer, and not equally long on all GPUs.",
    fix="`kit setup --only clocks` sets the highest clocks so that they survive a reboot. By hand: `sudo nvidia-smi "
    "-ac MEMORY,GRAPHICS` with values of `nvidia-smi -q -d SUPPORTED_CLOCKS`.",
    lab="kit lab fault HOST gpu-clocks",
)
