"""GPUs without persistence mode."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Sight
from kit.plan.doctor.gpus import STATE, of_gpus


def judge(examined: Examined) -> Iterator[Sight]:
    return of_gpus(examined, lambda gpu: "persistence mode is off" if gpu.persistence is False else None)


CHECK = Check(
    id="gpu-persistence",
    title="Persistence mode is off",
    area="gpu",
    severity="slows",
    judge=judge,
    reads=(STATE,),
    leads_to="The driver starts the GPU again for each program: each run begins seconds later, and set clocks are "
    "lost.",
    fix="`sudo nvidia-smi -pm 1`, or the service: `sudo systemctl enable --now nvidia-persistenced`. `kit setup "
    "--only clocks` sets it so that it survives a reboot.",
    lab="kit lab fault HOST gpu-persistence",
)
