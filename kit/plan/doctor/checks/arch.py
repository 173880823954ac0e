"""Hosts with different processors."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Sight
from kit.plan.cluster.checks import mixed_arch_problems
from kit.plan.doctor.sights import facts_of, sights_of


def judge(examined: Examined) -> Iterator[Sight]:
    return sights_of(mixed_arch_problems(facts_of(examined)))


CHECK = Check(
    id="arch",
    title="The hosts have different processors",
    area="cluster",
    severity="breaks",
    judge=judge,
    facts=True,
    leads_to="One image serves one architecture, so kit deploy changes nothing.",
    fix="Take these hosts out of the hosts file.",
    untested="All hosts of a lab have the processor of your machine.",
)
