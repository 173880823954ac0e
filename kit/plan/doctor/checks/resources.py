"""CPUs, memory, devices and huge pages that kit.yaml asks for, and a host does not have."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Sight
from kit.plan.cluster.resources import problems
from kit.plan.doctor.sights import facts_of, sights_of


def judge(examined: Examined) -> Iterator[Sight]:
    for facts in facts_of(examined):
        if facts.engine:
            yield from sights_of(problems(facts, examined.spec))


CHECK = Check(
    id="resources",
    title="The host has less than kit.yaml asks for",
    area="host",
    severity="breaks",
    judge=judge,
    facts=True,
    leads_to="The engine does not start the node, or ranks wait for CPUs and memory that do not exist. So kit deploy "
    "changes nothing.",
    fix="Lower `cpus:`, `memory:`, `devices:` or `hugepages:` in kit.yaml, or choose a larger VM.",
    untested="It is a setting in kit.yaml that fits no host, and not a fault of a host: unit tests have it.",
)
