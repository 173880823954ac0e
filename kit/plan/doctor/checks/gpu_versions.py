"""Drivers that differ between hosts."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Sight
from kit.plan.doctor.gpus import STATE, states
from kit.plan.doctor.majority import odd


def judge(examined: Examined) -> Iterator[Sight]:
    known = {name: state for name, state in states(examined).items() if state.driver}
    for host, value, usual in odd({name: state.driver for name, state in known.items()}):
        yield Sight(hosts=(host,), seen=f"driver {value}, usual {usual}")


CHECK = Check(
    id="gpu-versions",
    title="The driver differs between hosts",
    area="gpu",
    severity="watch",
    judge=judge,
    reads=(STATE,),
    leads_to="An image whose CUDA fits some drivers fails on the others. Errors of NCCL show on some hosts only.",
    fix="Install one version on all hosts with their package manager, and reboot those that changed. `kit setup` keeps "
    "a driver that works.",
    lab="kit lab fault HOST gpu-versions",
)
