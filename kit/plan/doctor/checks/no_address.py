"""A host without an address in the cluster's network."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Sight
from kit.plan.cluster.nodes import nodes_of
from kit.plan.doctor.sights import facts_of, sights_of


def judge(examined: Examined) -> Iterator[Sight]:
    return sights_of(nodes_of(facts_of(examined), examined.spec)[1])


CHECK = Check(
    id="no-address",
    title="The host has no address in the cluster's network",
    area="network",
    severity="breaks",
    judge=judge,
    facts=True,
    leads_to="MPI would have no address on this host, so kit deploy changes nothing.",
    fix="Set `network:` in kit.yaml to a network that every host has, or `internal=` in the hosts file.",
    untested="It depends on your hosts file and kit.yaml, and not on a host alone: unit tests have it.",
)
