"""The plan of a deploy where Swarm starts the containers: the swarm is formed, its nodes labelled, one stack deployed.

What is right gets no step, as with Compose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kit.model import names
from kit.model.keys import ClusterKeys
from kit.model.launch import ClusterRecord, Node
from kit.model.observed import Container, HostFacts
from kit.model.plan import DeleteFile, HostPlan, Plan, Round, Step, VerifyPeers, WaitSshd, WriteFile
from kit.model.secret import Secret
from kit.model.spec import ClusterSpec
from kit.model.swarm import (
    LEFT,
    ForgetNodes,
    LabelNodes,
    MakeFolder,
    RemoveNode,
    Role,
    SecretCreate,
    SecretRemove,
    StackDeploy,
    SwarmInit,
    SwarmJoin,
    UnlabelNodes,
    WaitTasks,
)
from kit.plan.cluster import network, record, ssh
from kit.plan.cluster.deploy import (
    PRIVATE,
    PUBLIC,
    SSHD_TIMEOUT_S,
    File,
    Image,
    bring,
    cluster_record,
    file_steps,
    launch_files,
    stale_steps,
    stands,
    state,
)
from kit.plan.swarm import stack as swarm

TASKS_TIMEOUT_S = 180.0


def paths_of(spec: ClusterSpec) -> tuple[str, ...]:
    """The folders that mounts need, for the look at the hosts."""
    return (f"{names.folder(spec.name)}/{names.STATE}", *swarm.bind_sources(spec))


def standing_keys(observed: Sequence[HostFacts]) -> dict[Role, str]:
    """The public halves of the keys that the head's swarm holds, by role."""
    roles: dict[str, Role] = {"client": "client", "head": "head", "node": "node"}
    return {roles[s.role]: s.public for s in observed[0].swarm.secrets if s.role in roles and s.public}


def deploy_plan(
    spec: ClusterSpec, observed: Sequence[HostFacts], nodes: Sequence[Node], image: Image, keys: ClusterKeys
) -> Plan:
    """The steps of every host. `observed` and `nodes` go in step, the head first."""
    known = cluster_record(spec, observed, nodes, image)
    head, pairs = observed[0], list(zip(observed, nodes, strict=True))
    interfaces = {facts.host.name: network.pick_interface(facts, spec.network).name for facts in observed}
    secrets = swarm.secret_names(spec, nodes, keys)
    wanted = wanted_of(spec, observed, nodes, image, secrets)
    text = swarm.stack_text(spec, wanted)

    hosts = []
    for facts, node in pairs:
        env = swarm.node_env_text(swarm.node_env(spec, node, interfaces[node.name]))
        files = list(_files(spec, known, keys, env=env, stack_file=text if facts is head else None))
        lacking = [bring(image, node, nodes)] if facts.image_id is None else []
        steps = [*lacking, *_host_steps(facts, spec, node, files, head=facts is head)]
        hosts.append(HostPlan(host=node.name, steps=tuple(steps)))

    manager = _manager_steps(spec, pairs, keys, wanted)
    name = swarm.image_of(observed, tag=image.tag, image_id=image.id)
    rounds = [
        Round(name="form the swarm", hosts=_form(head, nodes[0])),
        Round(name="join", hosts=tuple(_join(facts, node, nodes[0], name) for facts, node in pairs[1:])),
        Round(name="start", hosts=(HostPlan(host=head.host.name, steps=tuple(manager)),)),
    ]
    anew = any(isinstance(step, StackDeploy) for step in manager)
    waits = []
    for index, (facts, node) in enumerate(pairs):
        service = names.NODE if index else names.HEAD
        there = _current(facts, spec, service, wanted.digest(service)) and not _renews(hosts[index])
        if anew or not there or f"{node.address}:{spec.ssh_port}" not in facts.listening:
            wait = WaitSshd(
                address=node.address, port=spec.ssh_port, timeout_s=SSHD_TIMEOUT_S, why="ranks are started through it"
            )
            waits.append(HostPlan(host=node.name, steps=(wait,)))
    rounds.append(Round(name="wait for sshd", hosts=tuple(waits)))
    stale = tuple(s.name for s in head.swarm.secrets if s.name not in secrets.values())
    if stale:
        gone = SecretRemove(names=stale, why="no service uses them any more")
        rounds.append(Round(name="tidy up", hosts=(HostPlan(host=head.host.name, steps=(gone,)),)))
    plan = Plan(
        cluster=spec.name,
        hosts=tuple(hosts),
        rounds=tuple(each for each in rounds if any(plan.steps for plan in each.hosts)),
    )
    digests = [wanted.digest(service) for service in wanted.services]
    seal = File(names.VERIFIED, state(known, keys, digests), PUBLIC, "the check has passed")
    if plan.empty and stands(seal, head):
        return plan
    return replace(plan, after=_after(spec, nodes, seal, head))


def wanted_of(
    spec: ClusterSpec,
    observed: Sequence[HostFacts],
    nodes: Sequence[Node],
    image: Image,
    secrets: Mapping[Role, str],
) -> swarm.Wanted:
    """The services as they are to be on these hosts.

    The id of an image that hosts are about to pull is not known. Services that were deployed by its tag then keep it.
    """
    interface = network.pick_interface(observed[0], spec.network).name
    names = dict.fromkeys([swarm.image_of(observed, tag=image.tag, image_id=image.id), image.tag])
    forms = [
        swarm.wanted(spec, observed, nodes, image=name, tag=image.tag, interface=interface, secrets=secrets)
        for name in names
    ]
    running = {service.name: service.spec for service in observed[0].swarm.services if service.cluster == spec.name}
    return next((form for form in forms if _services(spec, form) == running), forms[0])


def _services(spec: ClusterSpec, wanted: swarm.Wanted) -> dict[str, str]:
    """The digests of the services by their names in the swarm."""
    return {names.swarm_service(spec.name, name): wanted.digest(name) for name in wanted.services}


def _after(spec: ClusterSpec, nodes: Sequence[Node], seal: File, head: HostFacts) -> tuple[HostPlan, ...]:
    old = [DeleteFile(path=names.VERIFIED, why="the check is made anew")] if names.VERIFIED in head.files else []
    verify = VerifyPeers(
        container=names.container(spec.name, names.HEAD),
        peers=tuple((node.name, node.address) for node in nodes),
        why="the head must reach every node with no prompt",
    )
    passed = WriteFile(path=seal.path, content=seal.content, mode=seal.mode, why=seal.why)
    return (HostPlan(host=nodes[0].name, steps=(*old, verify, passed)),)


def _host_steps(
    facts: HostFacts, spec: ClusterSpec, node: Node, files: Sequence[File], *, head: bool
) -> Iterable[Step]:
    """What each host does for itself, before there is a swarm: folders and files; and Compose's container goes."""
    others = [c for c in facts.containers if c.cluster == spec.name and not c.swarm]
    if others:
        yield RemoveNode(cluster=spec.name, why="Swarm starts it from now on")
    changes = list(file_steps(files, facts))
    yield from changes
    yield from stale_steps(files, facts, head=head)
    state_folder = f"{names.folder(spec.name)}/{names.STATE}"
    wanted = [*([state_folder] if head else []), *swarm.bind_sources(spec)]
    for path in dict.fromkeys(wanted):
        if path in facts.absent:
            yield MakeFolder(path=path, mode="700" if path == state_folder else "755", why="a mount needs it")
    running = any(c.swarm and c.running and c.cluster == spec.name for c in facts.containers)
    rewritten = any(step.path == names.NODE_ENV for step in changes if isinstance(step, WriteFile))
    deaf = f"{node.address}:{spec.ssh_port}" not in facts.listening
    # On the head the same values are in the definition. Elsewhere the container has read the file when it started.
    if running and not head and (rewritten or deaf):
        why = "what it has of its own changed" if rewritten else "its sshd does not listen where it should"
        yield RemoveNode(cluster=spec.name, why=why)


def _files(
    spec: ClusterSpec, known: ClusterRecord, keys: ClusterKeys, *, env: str, stack_file: str | None
) -> Iterable[File]:
    """Every file of the host's folder; `stack_file` on the head alone.

    No private key is among them: those are secrets of the swarm.
    """
    yield File(names.NODE_ENV, env.encode(), PUBLIC, "what this node has of its own")
    allowed = ssh.authorized_keys(keys.client.public, known.nodes[0].address)
    yield File(names.AUTHORIZED_KEYS, allowed, PRIVATE, "the head alone may log in")
    if stack_file is None:
        return
    # The environment of kit.yaml may hold a token: the file is root's alone, and its content never prints.
    yield File(names.STACK_FILE, Secret(stack_file.encode()), PRIVATE, "the stack for the whole cluster")
    yield File(names.RECORD, record.to_text(known).encode(), PUBLIC, "what the cluster is made of")
    yield from launch_files(spec, known, keys, client_key=swarm.CLIENT_KEY)


def _form(head: HostFacts, node: Node) -> tuple[HostPlan, ...]:
    if head.swarm.state == "active":
        return ()
    step = SwarmInit(address=node.address, why="the hosts are in no swarm yet")
    return (HostPlan(host=node.name, steps=(step,)),)


def _join(facts: HostFacts, node: Node, head: Node, image: str) -> HostPlan:
    if facts.swarm.state == "active":
        return HostPlan(host=node.name, steps=())
    manager = f"{head.address}:{names.MANAGER_PORT}"
    step = SwarmJoin(address=node.address, manager=manager, image=image, why="the host is not in the swarm yet")
    return HostPlan(host=node.name, steps=(step,))


def _manager_steps(
    spec: ClusterSpec, pairs: Sequence[tuple[HostFacts, Node]], keys: ClusterKeys, wanted: swarm.Wanted
) -> list[Step]:
    """On the head, once all hosts are members."""
    head, key = pairs[0][0], names.node_label(spec.name)
    entries = {entry.id: entry for entry in head.swarm.nodes}
    mine = {facts.swarm.node_id for facts, _ in pairs}
    addresses = {node.address for _, node in pairs}
    steps: list[Step] = []

    labels = []
    for index, (facts, node) in enumerate(pairs):
        role = "node" if index else "head"
        node_id = facts.swarm.node_id if facts.swarm.state == "active" else ""
        if not node_id or node_id not in entries or entries[node_id].labels.get(key) != role:
            labels.append((node.name, node_id, role))
    others = [entry for entry in head.swarm.nodes if entry.id not in mine]
    lost = [
        entry.id
        for entry in others
        if (key in entry.labels and (entry.state == "down" or entry.address in addresses))
        or (head.swarm.made and entry.address in addresses)
    ]
    left = [e.id for e in others if e.labels.get(key, LEFT) != LEFT and e.id not in lost]
    if lost:
        steps.append(ForgetNodes(ids=tuple(lost), why="they are gone, or came back under another id"))
    if left:
        steps.append(UnlabelNodes(key=key, ids=tuple(left), why="they are no longer in the hosts file"))
    if labels:
        steps.append(LabelNodes(key=key, nodes=tuple(labels), why="services are placed by it"))
    steps += _secret_steps(spec, pairs, keys, wanted, {s.name for s in head.swarm.secrets})

    services = _services(spec, wanted)
    before = {service.name: service.spec for service in head.swarm.services if service.cluster == spec.name}
    stale = [
        node.name
        for index, (facts, node) in enumerate(pairs)
        if not _current(facts, spec, names.NODE if index else names.HEAD, _digest(wanted, index))
    ]
    if before != services:
        why = "no stack runs yet" if not before else "its definition changed"
        steps.append(
            StackDeploy(folder=names.folder(spec.name), stack=names.project(spec.name), restarts=tuple(stale), why=why)
        )
    if steps or stale:
        counts = {names.HEAD: 1, names.NODE: len(pairs) - 1}
        expected = tuple(
            (names.swarm_service(spec.name, name), wanted.digest(name), counts[name]) for name in wanted.services
        )
        why = "every node must run this very definition" if steps else f"no node runs on {', '.join(stale)}"
        steps.append(WaitTasks(services=expected, timeout_s=TASKS_TIMEOUT_S, why=why))
    return steps


def _digest(wanted: swarm.Wanted, index: int) -> str:
    return wanted.digest(names.NODE if index else names.HEAD)


def _secret_steps(
    spec: ClusterSpec,
    pairs: Sequence[tuple[HostFacts, Node]],
    keys: ClusterKeys,
    wanted: swarm.Wanted,
    there: set[str],
) -> Iterable[Step]:
    pair_of = {"client": keys.client, "head": keys.hosts[pairs[0][1].name], "node": keys.hosts[pairs[-1][1].name]}
    what = {"client": "the head's key", "head": "the head's host key", "node": "the nodes' host key"}
    for role, name in wanted.secrets.items():
        pair = pair_of[role]
        if name not in there and pair.private is not None:
            yield SecretCreate(
                name=name, cluster=spec.name, role=role, public=pair.public, content=pair.private, why=what[role]
            )


def _own(facts: HostFacts, spec: ClusterSpec) -> list[Container]:
    return [c for c in facts.containers if c.cluster == spec.name]


def _current(facts: HostFacts, spec: ClusterSpec, service: str, digest: str) -> bool:
    """Whether exactly the wanted task of the cluster runs on the host."""
    own = _own(facts, spec)
    return len(own) == 1 and own[0].swarm and own[0].running and own[0].spec == digest and own[0].service == service


def _renews(plan: HostPlan) -> bool:
    return any(isinstance(step, RemoveNode) for step in plan.steps)
