"""GPUs whose memory has errors, or that wait for a reset."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Sight
from kit.model.nvidia.state import GpuState
from kit.plan.doctor.gpus import STATE, of_gpus


def judge(examined: Examined) -> Iterator[Sight]:
    return of_gpus(examined, _seen)


def _seen(gpu: GpuState) -> str | None:
    texts = [
        f"{gpu.uncorrected} memory errors that ECC could not correct" if gpu.uncorrected else "",
        "memory rows or pages wait for a reset" if gpu.reset_pending else "",
        "a memory row could not be replaced" if gpu.remapping_failed else "",
    ]
    return ", ".join(filter(None, texts)) or None


CHECK = Check(
    id="gpu-ecc",
    title="A GPU's memory has errors",
    area="gpu",
    severity="breaks",
    judge=judge,
    reads=(STATE,),
    leads_to="Programs on this GPU end in the middle of a run. Results before that may be wrong.",
    fix="End the programs on it and reset it: `sudo nvidia-smi --gpu-reset -i NUMBER`, or reboot the VM. If the "
    "errors return, or a row could not be replaced, replace the VM.",
    lab="kit lab gpu HOST --fault ecc",
)
