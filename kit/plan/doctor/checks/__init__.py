"""All checks of kit doctor, in the order in which it reports them. Each file has one."""

from __future__ import annotations

from kit.model.doctor import Check
from kit.plan.doctor.checks import own_name, unreachable

CHECKS: tuple[Check, ...] = (
    # host
    unreachable.CHECK,
    # gpu
    # network
    own_name.CHECK,
    # pair
)
