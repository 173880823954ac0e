"""All checks of kit doctor, in the order in which it reports them. Each file has one."""

from __future__ import annotations

from kit.model.doctor import Check
from kit.plan.doctor.checks import own_name

CHECKS: tuple[Check, ...] = (own_name.CHECK,)
