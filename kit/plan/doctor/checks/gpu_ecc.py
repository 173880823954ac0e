"""GPUs that failed, whose memory has errors, or that wait for a reset."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Sight
from kit.model.nvidia.state import GpuState
from kit.plan.doctor.gpus import STATE, of_gpus

_SHOWN = 40


def judge(examined: Examined) -> Iterator[Sight]:
    return of_gpus(examined, _seen)


def _seen(gpu: GpuState) -> str | None:
    if gpu.failed:
        return f'nvidia-smi reports "{gpu.failed}"'
    texts = [
        f"{gpu.uncorrected} memory errors that ECC could not correct" if gpu.uncorrected else "",
        "memory rows or pages wait for a reset" if gpu.reset_pending else "",
        "a memory row could not be replaced" if gpu.remapping_failed else "",
        "a repair waits for a reset" if gpu.repair_pending else "",
        "its memory cannot be repaired" if gpu.unrepairable else "",
        "its SRAM has more errors than NVIDIA allows" if gpu.sram_exceeded else "",
        f"the driver asks for: {gpu.recovery[:_SHOWN]}" if gpu.recovery else "",
    ]
    return ", ".join(filter(None, texts)) or None


CHECK = Check(
    id="gpu-ecc",
    title="A GPU failed, or its memory has errors",
    area="gpu",
    severity="breaks",
    judge=judge,
    reads=(STATE,),
    leads_to="Programs on this GPU end in the middle of a run. Results before that may be wrong.",
    fix="End the programs on it and reset it: `sudo nvidia-smi --gpu-reset -i NUMBER`, or reboot the VM. If the "
    "errors return, or a row could not be replaced, or the memory cannot be repaired, replace the VM.",
    lab="kit lab gpu HOST --fault ecc",
)
