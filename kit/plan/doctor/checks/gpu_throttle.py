"""GPUs whose clock is held down by heat or by the power supply."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Sight
from kit.model.nvidia.state import GpuState
from kit.plan.doctor.gpus import STATE, of_gpus

# sw_power_cap is usual under full load: the GPU keeps to its own limit.
_REASONS = {
    "hw_thermal_slowdown": "heat",
    "sw_thermal_slowdown": "heat",
    "hw_power_brake_slowdown": "the machine's power supply",
    "hw_slowdown": "the hardware (heat or power)",
}


def judge(examined: Examined) -> Iterator[Sight]:
    return of_gpus(examined, _seen)


def _seen(gpu: GpuState) -> str | None:
    # In the order of _REASONS: hw_slowdown is active with each of the others.
    cause = next((text for reason, text in _REASONS.items() if reason in gpu.reasons), None)
    return f"the clock is held down by {cause}" if cause else None


CHECK = Check(
    id="gpu-throttle",
    title="A GPU's clock is held down",
    area="gpu",
    severity="slows",
    judge=judge,
    reads=(STATE,),
    leads_to="This GPU is slower than the others, and all ranks wait for its rank in each step.",
    fix="See `nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER`. Cool the machine, or stop and start the VM, so that "
    "it gets another one.",
    lab="kit lab gpu HOST --fault throttle",
)
