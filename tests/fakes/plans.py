"""Reading plans in tests: the steps of one host, and those of the check at the end."""

from __future__ import annotations

from typing import Any, cast

from kit.model.plan import VERIFY, Plan, Step
from kit.model.values import asdict


def steps_of(plan: Plan, host: str) -> tuple[Step, ...]:
    """Return the host's steps in all rounds before the check at the end."""
    return tuple(step for name, step in plan.steps(without=VERIFY) if name == host)


def check_of(plan: Plan) -> tuple[Step, ...]:
    """Return the steps of the check at the end, () if the plan has none."""
    return tuple(step for part in plan.rounds if part.name == VERIFY for host in part.hosts for step in host.steps)


def plan_text(plan: Plan) -> str:
    """Return the plan as text, with a line for each step."""
    lines = []
    for part in plan.rounds:
        lines.append(f"{part.name} (needs {part.needs}{', together' if part.together else ''}):")
        for host_plan in part.hosts:
            lines.append(f"{host_plan.host}:")
            for step in host_plan.steps:
                fields = {
                    name: value for name, value in asdict(cast(Any, step)).items() if name not in ("why", "content")
                }
                words = " ".join(f"{name}={value}" for name, value in fields.items())
                lines.append(f"  {step.kind} {words}  # {step.why}")
                lines.extend(f"    | {line}" for line in step.detail().splitlines())
    return "\n".join(lines) + "\n"
