"""Another program on the port that the node's sshd needs."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Sight
from kit.plan.cluster.checks import port_problem
from kit.plan.cluster.record import deployed_record
from kit.plan.doctor.sights import sights_of


def judge(examined: Examined) -> Iterator[Sight]:
    before = deployed_record(host.facts for host in examined.hosts if host.facts is not None)
    for host in examined.hosts:
        if host.facts is not None and host.node is not None:
            yield from sights_of([port_problem(host.facts, examined.spec, host.node, before)])


CHECK = Check(
    id="port-taken",
    title="The port of the node's sshd is taken",
    area="host",
    severity="breaks",
    judge=judge,
    facts=True,
    leads_to="The node cannot start there.",
    fix="Set another `ssh_port:` in kit.yaml, or end what listens there.",
    lab="kit lab fault HOST port-taken",
)
