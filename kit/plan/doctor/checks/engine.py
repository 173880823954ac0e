"""A host on which no Docker Engine answers."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Sight
from kit.plan.cluster.checks import engine_problem
from kit.plan.doctor.sights import facts_of, sights_of


def judge(examined: Examined) -> Iterator[Sight]:
    return sights_of(engine_problem(facts) for facts in facts_of(examined))


CHECK = Check(
    id="engine",
    title="No Docker Engine answers",
    area="host",
    severity="breaks",
    judge=judge,
    facts=True,
    leads_to="kit deploy changes nothing until each host has an engine.",
    fix="Install Docker Engine: `kit setup --only docker`. Or start it: `sudo systemctl start docker`.",
    lab="kit lab fault HOST engine",
)
