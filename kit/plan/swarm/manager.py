"""What the head does as the swarm's manager once all hosts are members: entries, labels, secrets and the stack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from kit.model import names
from kit.model.launch import Node
from kit.model.observed import HostFacts
from kit.model.plan import Step
from kit.model.spec import ClusterSpec
from kit.model.swarm import (
    LEFT,
    ForgetNodes,
    LabelNodes,
    Role,
    SecretCreate,
    StackDeploy,
    SwarmNode,
    UnlabelNodes,
    WaitTasks,
)
from kit.plan.cluster import network
from kit.plan.cluster.dialect import Site
from kit.plan.cluster.supply import Image
from kit.plan.swarm import stack

TASKS_TIMEOUT_S = 180.0


def wanted_of(
    spec: ClusterSpec,
    observed: Sequence[HostFacts],
    nodes: Sequence[Node],
    image: Image,
    secrets: Mapping[Role, str],
) -> stack.Wanted:
    """Return the services as they should be on these hosts.

    The id of an image that hosts have yet to pull is unknown. Services that were deployed by its tag then keep the tag.
    """
    interface = network.pick_interface(observed[0], spec.network).name
    images = dict.fromkeys([stack.image_of(observed, tag=image.tag, image_id=image.id), image.tag])
    forms = [
        stack.wanted(spec, observed, nodes, image=name, tag=image.tag, interface=interface, secrets=secrets)
        for name in images
    ]
    running = {service.name: service.spec for service in observed[0].swarm.services if service.cluster == spec.name}
    return next((form for form in forms if _digests(spec, form) == running), forms[0])


def steps(site: Site, wanted: stack.Wanted) -> list[Step]:
    """Return the manager's steps in order."""
    entries = [*_entry_steps(site), *_secret_steps(site, wanted)]
    return [*entries, *_stack_steps(site, wanted, changed=bool(entries))]


def role_changes(steps: Sequence[tuple[str, Step]], cluster: str, head: HostFacts) -> list[str]:
    """Return the hosts whose label one of the steps (host, step) changes to the other role. Swarm ends their tasks."""
    key = names.node_label(cluster)
    had = {entry.id: entry.labels.get(key, LEFT) for entry in head.swarm.nodes}
    return [
        host
        for _, step in steps
        if isinstance(step, LabelNodes)
        for host, node_id, role in step.nodes
        if had.get(node_id, LEFT) not in (role, LEFT)
    ]


def leavers(steps: Sequence[tuple[str, Step]], head: HostFacts) -> list[str]:
    """Return the IDs of nodes whose tasks one of the steps (host, step) ends: their hosts left the hosts file.

    Leave out nodes that are down: their tasks end in any case.
    """
    down = {entry.id for entry in head.swarm.nodes if entry.state == "down"}
    unlabelled = (step for _, step in steps if isinstance(step, UnlabelNodes))
    return [node_id for step in unlabelled for node_id in step.ids if node_id not in down]


def is_current(facts: HostFacts, spec: ClusterSpec, service: str, digest: str) -> bool:
    """Return whether exactly the wanted task of the cluster runs on the host."""
    own = [c for c in facts.containers if c.cluster == spec.name]
    return len(own) == 1 and own[0].swarm and own[0].running and own[0].spec == digest and own[0].service == service


def _digests(spec: ClusterSpec, wanted: stack.Wanted) -> dict[str, str]:
    """Return the digests of the services by their names in the swarm."""
    return {names.swarm_service(spec.name, name): wanted.digest(name) for name in wanted.services}


def _entry_steps(site: Site) -> Iterable[Step]:
    """Yield what brings the manager's list of nodes in line with the hosts."""
    head, key = site.observed[0], names.node_label(site.spec.name)
    entries = {entry.id: entry for entry in head.swarm.nodes}
    addresses = {node.address for node in site.nodes}
    others = _others(site)
    lost = [entry.id for entry in others if _is_lost(entry, head, key, addresses)]
    if lost:
        yield ForgetNodes(ids=tuple(lost), why="they are gone, or came back under another id")
    left = [entry.id for entry in others if entry.labels.get(key, LEFT) != LEFT and entry.id not in lost]
    if left:
        yield UnlabelNodes(key=key, ids=tuple(left), why="they are no longer in the hosts file")
    labels = []
    for facts, node in zip(site.observed, site.nodes, strict=True):
        role = "head" if facts is head else "node"
        node_id = facts.swarm.node_id if facts.swarm.state == "active" else ""
        if not node_id or node_id not in entries or entries[node_id].labels.get(key) != role:
            labels.append((node.name, node_id, role))
    if labels:
        yield LabelNodes(key=key, nodes=tuple(labels), why="Swarm places services by it")


def _others(site: Site) -> list[SwarmNode]:
    """Return the manager's entries of nodes that are not among the hosts."""
    members = {facts.swarm.node_id for facts in site.observed}
    return [entry for entry in site.observed[0].swarm.nodes if entry.id not in members]


def _is_lost(entry: SwarmNode, head: HostFacts, key: str, addresses: Set[str]) -> bool:
    """Return whether this node does not come back, or nobody but this cluster misses it: Swarm forgets it for ever."""
    swarm = head.swarm
    if entry.address in addresses:
        # The host is here, under another ID.
        return key in entry.labels or swarm.made
    if key not in entry.labels or entry.state != "down":
        return False
    # A node that restarts is down, too. If others use it, only they know whether it comes back.
    claimed = any(name.startswith("kit.") and name != key and role != LEFT for name, role in entry.labels.items())
    return swarm.made and not claimed and all(service.cluster for service in swarm.services)


def _secret_steps(site: Site, wanted: stack.Wanted) -> Iterable[Step]:
    keys, nodes = site.keys, site.nodes
    existing = {secret.name for secret in site.observed[0].swarm.secrets}
    pairs = {"client": keys.client, "head": keys.hosts[nodes[0].name], "node": keys.hosts[nodes[-1].name]}
    purposes = {"client": "the head's key", "head": "the head's host key", "node": "the nodes' host key"}
    for role, name in wanted.secrets.items():
        pair = pairs[role]
        if name not in existing and pair.private is not None:
            why = f"it is missing ({purposes[role]})"
            yield SecretCreate(
                name=name, cluster=site.spec.name, role=role, public=pair.public, content=pair.private, why=why
            )


def _stack_steps(site: Site, wanted: stack.Wanted, *, changed: bool) -> Iterable[Step]:
    """Yield the stack's deploy if its definition changed, and the wait for tasks. `changed`: other steps come first."""
    spec, head = site.spec, site.observed[0]
    stale = []
    for facts, node in zip(site.observed, site.nodes, strict=True):
        service = names.HEAD if facts is head else names.NODE
        if not is_current(facts, spec, service, wanted.digest(service)):
            stale.append(node.name)
    deployed = {service.name: service.spec for service in head.swarm.services if service.cluster == spec.name}
    differs = deployed != _digests(spec, wanted)
    if differs:
        why = "its definition changed" if deployed else "no stack runs yet"
        folder, project = names.folder(spec.name), names.project(spec.name)
        yield StackDeploy(folder=folder, stack=project, restarts=tuple(stale), why=why)
    if changed or differs or stale:
        counts = {names.HEAD: 1, names.NODE: len(site.nodes) - 1}
        tasks = tuple(
            (names.swarm_service(spec.name, name), wanted.digest(name), counts[name]) for name in wanted.services
        )
        key = names.node_label(spec.name)
        silent = tuple(entry.id for entry in _others(site) if key in entry.labels and entry.state == "down")
        why = "every node must run this definition"
        if not (changed or differs):
            why = f"no node runs on {', '.join(stale)}"
        yield WaitTasks(services=tasks, timeout_s=TASKS_TIMEOUT_S, silent=silent, why=why)
