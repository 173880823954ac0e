"""GPUs that let only one program in, and MIG that differs or has no device."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kit.model.doctor import Check, Examined, Severity, Sight
from kit.model.nvidia.state import GpuState
from kit.plan.doctor.gpus import STATE, of_gpus, states
from kit.plan.doctor.majority import usual

_MODES: dict[str, tuple[str, Severity]] = {
    "Prohibited": ("no program may compute (mode Prohibited)", "breaks"),
    # One rank has the GPU for itself anyway, but monitoring and a rank that has not ended yet keep the next one out.
    "Exclusive_Process": ("only one process may compute (mode Exclusive_Process)", "watch"),
    "Exclusive_Thread": ("only one thread may compute (mode Exclusive_Thread)", "watch"),
}


def judge(examined: Examined) -> Iterator[Sight]:
    for mode, (text, severity) in _MODES.items():
        yield from of_gpus(examined, _having(mode, text), severity)
    yield from of_gpus(examined, _pending, "watch")
    yield from of_gpus(examined, _bare)
    reference = usual(gpu.mig for state in states(examined).values() for gpu in state.gpus if gpu.mig is not None)
    if reference is not None:
        yield from of_gpus(examined, lambda gpu: _differs(gpu, reference))


def _having(mode: str, text: str) -> Callable[[GpuState], str | None]:
    return lambda gpu: text if gpu.compute_mode == mode else None


def _pending(gpu: GpuState) -> str | None:
    if gpu.mig_pending is None or gpu.mig is None or gpu.mig_pending == gpu.mig:
        return None
    return f"MIG will be {'on' if gpu.mig_pending else 'off'} after a reset"


def _bare(gpu: GpuState) -> str | None:
    return "MIG is on without a MIG device, so no program can compute" if gpu.mig and not gpu.migs else None


def _differs(gpu: GpuState, reference: bool) -> str | None:
    if gpu.mig is None or gpu.mig == reference:
        return None
    return f"MIG is {'on' if gpu.mig else 'off'}, usual {'on' if reference else 'off'}"


CHECK = Check(
    id="gpu-mode",
    title="GPUs have another mode",
    area="gpu",
    severity="slows",
    judge=judge,
    reads=(STATE,),
    leads_to="Ranks fail with `all CUDA-capable devices are busy or unavailable`. A rank on a part of a GPU is "
    "slower than the others, and NCCL cannot join parts of one GPU.",
    fix="`sudo nvidia-smi -i NUMBER -c DEFAULT` for the mode, and `sudo nvidia-smi -i NUMBER -mig 0` for MIG. MIG "
    "changes when no program uses the GPU. `sudo nvidia-smi mig -i NUMBER -cgi PROFILE -C` makes MIG devices, which a "
    "restart removes.",
    lab="kit lab fault HOST gpu-mode",
)
