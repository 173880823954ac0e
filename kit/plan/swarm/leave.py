"""The way back to Compose: what is removed from a swarm, and whether hosts may leave it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from kit.model import names
from kit.model.observed import HostFacts
from kit.model.plan import TAKE_OFF, HostPlan, Round, Step
from kit.model.spec import ClusterSpec
from kit.model.swarm import RemoveNode, StackRemove, SwarmLeave


class Leaving(Struct, frozen=True, kw_only=True):
    """Rounds that come before anything else, and steps of hosts (by name) that come before their own."""

    before: tuple[Round, ...] = ()
    steps: Mapping[str, tuple[Step, ...]] = field(default_factory=dict)


def leaving(spec: ClusterSpec, observed: Sequence[HostFacts]) -> Leaving:
    """Return what ends an earlier deploy of this cluster with Swarm: its stack goes first.

    The hosts also leave the swarm if kit made it and nothing else uses it.
    """
    # Only a manager knows the stack. It is not the first host if the head moves in the same deploy.
    manager = max(observed, key=lambda facts: (_has_stack(facts, spec.name), facts.swarm.manager))
    stacked = _has_stack(manager, spec.name)
    if not stacked and not any(names.NODE_ENV in facts.files for facts in observed):
        return Leaving()
    before: tuple[Round, ...] = ()
    if stacked:
        gone = StackRemove(cluster=spec.name, why="Compose starts the nodes from now on")
        before = (Round(name=TAKE_OFF, hosts=(HostPlan(host=manager.host.name, steps=(gone,)),)),)
    members = {facts.swarm.node_id for facts in observed if facts.swarm.made and names.NODE_ENV in facts.files}
    if not may_leave(manager, names.node_label(spec.name), members, spec.name):
        members = set()
    # Swarm ends tasks at its own pace on each host. Until then a task occupies the port that Compose's node needs, and
    # its host cannot leave.
    remove = RemoveNode(cluster=spec.name, why="Compose starts it from now on")
    leave = SwarmLeave(others=tuple(sorted(members)), why="kit made the swarm, and nothing uses it any more")
    steps: dict[str, tuple[Step, ...]] = {}
    for facts in observed:
        runs = any(container.swarm and container.cluster == spec.name for container in facts.containers)
        leaves = facts.swarm.node_id in members
        steps[facts.host.name] = (*((remove,) if runs else ()), *((leave,) if leaves else ()))
    return Leaving(before=before, steps=steps)


def _has_stack(facts: HostFacts, cluster: str) -> bool:
    return any(service.cluster == cluster for service in facts.swarm.services) or bool(facts.swarm.secrets)


def may_leave(manager: HostFacts, key: str, leaving: set[str], cluster: str) -> bool:
    """Return whether only this cluster uses the manager's swarm: no other service, cluster label or member."""
    if any(service.cluster != cluster for service in manager.swarm.services):
        return False
    for entry in manager.swarm.nodes:
        if any(label.startswith("kit.") and label != key for label in entry.labels):
            return False
        if entry.id not in leaving and entry.state != "down":
            return False
    return True
