"""An engine without the plugin that starts nodes."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Sight
from kit.plan.cluster.checks import compose_problem
from kit.plan.doctor.sights import facts_of, sights_of


def judge(examined: Examined) -> Iterator[Sight]:
    if examined.spec.orchestrator == "compose":
        yield from sights_of(compose_problem(facts) for facts in facts_of(examined))


CHECK = Check(
    id="compose",
    title="The engine has no Compose plugin",
    area="host",
    severity="breaks",
    judge=judge,
    facts=True,
    leads_to="kit deploy changes nothing until each host has the plugin. With `orchestrator: swarm`, none needs it.",
    fix="`kit setup --only docker`. Or install `docker-compose-plugin` (Docker's) or `docker-compose-v2` (Ubuntu's).",
    lab="kit lab fault HOST compose",
)
