"""What keeps hosts from being members of one swarm."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Sight
from kit.model.swarm import HEARTBEAT_S
from kit.plan.doctor.sights import facts_of, nodes_of, sights_of
from kit.plan.swarm.checks import problems_of, problems_without_head, short_heartbeat


def judge(examined: Examined) -> Iterator[Sight]:
    observed = facts_of(examined)
    if examined.spec.orchestrator != "swarm" or not observed:
        return
    head = examined.head or observed[0].host.name
    # The facts have the order of the hosts file.
    if observed[0].host.name != head:
        yield from sights_of(problems_without_head(observed, nodes_of(examined)))
        return
    yield from sights_of(problems_of(observed, nodes_of(examined)))
    early = short_heartbeat(observed[0])
    if early is not None:
        fix = f"kit ssh {head} -- sudo docker swarm update --dispatcher-heartbeat {HEARTBEAT_S}s"
        yield Sight(hosts=(head,), seen=early, fix=fix, severity="watch")


CHECK = Check(
    id="swarm",
    title="The engines cannot be one swarm",
    area="cluster",
    severity="breaks",
    judge=judge,
    facts=True,
    leads_to="kit deploy with `orchestrator: swarm` changes nothing until you fix this.",
    fix="Follow the hint of each host, or set `orchestrator: compose` in kit.yaml.",
    untested="The lab's hosts are in no swarm. The tests of Swarm provoke each of its problems.",
)
