"""The way back to Compose: what is taken off a swarm, and whether the hosts may leave it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kit.model import names
from kit.model.observed import HostFacts
from kit.model.plan import HostPlan, Plan
from kit.model.spec import ClusterSpec
from kit.model.swarm import RemoveNode, StackRemove, SwarmLeave


def without_swarm(plan: Plan, spec: ClusterSpec, observed: Sequence[HostFacts]) -> Plan:
    """The same plan for Compose, where Swarm had the cluster before: its stack goes first.

    So does the swarm, if kit made it and nobody else uses it.
    """
    head = observed[0]
    had = any(names.NODE_ENV in facts.files for facts in observed)
    ours = [s for s in head.swarm.services if s.cluster == spec.name]
    if not had and not ours and not head.swarm.secrets:
        return plan
    before: tuple[HostPlan, ...] = ()
    if ours or head.swarm.secrets:
        gone = StackRemove(cluster=spec.name, why="Compose starts the nodes from now on")
        before = (HostPlan(host=head.host.name, steps=(gone,)),)
    leaving = {facts.swarm.node_id for facts in observed if facts.swarm.made and names.NODE_ENV in facts.files}
    if not may_leave(head, names.node_label(spec.name), leaving, spec.name):
        leaving = set()
    # Swarm ends tasks in its own time, on each host another. Until then a node has the port that Compose's wants, and
    # its host does not leave.
    emptied = RemoveNode(cluster=spec.name, why="Compose starts it from now on")
    leave = SwarmLeave(others=tuple(sorted(leaving)), why="kit made the swarm, and nothing uses it any more")
    hosts = []
    for each, facts in zip(plan.hosts, observed, strict=True):
        runs = any(container.swarm and container.cluster == spec.name for container in facts.containers)
        empty = (emptied,) if runs else ()
        go = (leave,) if facts.swarm.node_id in leaving else ()
        hosts.append(replace(each, steps=(*empty, *go, *each.steps)))
    return replace(plan, before=before, hosts=tuple(hosts))


def may_leave(head: HostFacts, key: str, leaving: set[str], cluster: str) -> bool:
    """Whether nobody but this cluster uses the head's swarm: no other service, no other label of kit's, no stranger."""
    if any(service.cluster != cluster for service in head.swarm.services):
        return False
    for entry in head.swarm.nodes:
        if any(label.startswith("kit.") and label != key for label in entry.labels):
            return False
        if entry.id not in leaving and entry.state != "down":
            return False
    return True
