"""Two hosts of the hosts file that are one machine."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Sight
from kit.plan.cluster.checks import one_machine_problems
from kit.plan.doctor.sights import nodes_of, sights_of


def judge(examined: Examined) -> Iterator[Sight]:
    return sights_of(one_machine_problems(nodes_of(examined)))


CHECK = Check(
    id="one-machine",
    title="Two hosts are one machine",
    area="cluster",
    severity="breaks",
    judge=judge,
    facts=True,
    leads_to="Both would start a node with the same name and port, so kit deploy changes nothing.",
    fix="Remove one of the two from the hosts file.",
    untested="It is a mistake in the hosts file, and not a fault of a host: unit tests have it.",
)
