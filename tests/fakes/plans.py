"""Reading plans in tests: the steps of one host, and those of the check at the end."""

from __future__ import annotations

from kit.model.plan import VERIFY, Plan, Step


def steps_of(plan: Plan, host: str) -> tuple[Step, ...]:
    """Return the host's steps in all rounds before the check at the end."""
    return tuple(step for name, step in plan.steps(without=VERIFY) if name == host)


def check_of(plan: Plan) -> tuple[Step, ...]:
    """Return the steps of the check at the end, () if the plan has none."""
    return tuple(step for part in plan.rounds if part.name == VERIFY for host in part.hosts for step in host.steps)
