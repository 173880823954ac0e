"""A host without a Python that kit's programs for VMs run on."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Sight
from kit.plan.cluster.checks import python_fits, python_problem
from kit.plan.doctor.sights import facts_of, sights_of


def judge(examined: Examined) -> Iterator[Sight]:
    for facts in facts_of(examined):
        problem = python_problem(facts) if examined.spec.registry is None else None
        yield from sights_of([problem])
        if problem is None and not python_fits(facts.python):
            what = f"has Python {facts.python}" if facts.python else "has no python3"
            yield Sight(hosts=(facts.host.name,), seen=f"{what}, so the doctor reads little there", severity="watch")


CHECK = Check(
    id="python",
    title="The host has no Python 3.6 or newer",
    area="host",
    severity="breaks",
    judge=judge,
    facts=True,
    leads_to="The host cannot receive an image from kit. The doctor reads no files there.",
    fix="`sudo apt-get install python3` (or: `dnf install python3`)",
    lab="kit lab fault HOST python",
)
