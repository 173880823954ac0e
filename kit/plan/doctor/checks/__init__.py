"""All checks of kit doctor, in the order in which it reports them. Each file has one."""

from __future__ import annotations

from kit.model.doctor import Check
from kit.plan.doctor.checks import (
    arch,
    compose,
    disk,
    engine,
    gpu_cgroup,
    gpu_cuda,
    gpu_hook,
    gpu_lost,
    gpu_snap,
    no_address,
    one_machine,
    own_name,
    port_taken,
    python,
    swarm,
    unreachable,
)

CHECKS: tuple[Check, ...] = (
    # host
    unreachable.CHECK,
    engine.CHECK,
    compose.CHECK,
    python.CHECK,
    disk.CHECK,
    port_taken.CHECK,
    # cluster
    one_machine.CHECK,
    arch.CHECK,
    swarm.CHECK,
    # gpu
    gpu_hook.CHECK,
    gpu_snap.CHECK,
    gpu_cgroup.CHECK,
    gpu_lost.CHECK,
    gpu_cuda.CHECK,
    # network
    no_address.CHECK,
    own_name.CHECK,
    # pair
)
