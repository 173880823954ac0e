"""From what hosts have and what the spec wants to the steps between them. Nothing to do is an empty plan."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from kit.errors import KitError
from kit.model import names
from kit.model.keys import ClusterKeys
from kit.model.launch import ClusterRecord, Node
from kit.model.observed import HostFacts
from kit.model.plan import ComposeUp, DeleteFile, HostPlan, Plan, Pull, Ship, Step, VerifyPeers, WaitSshd, WriteFile
from kit.model.secret import Secret
from kit.model.spec import ClusterSpec
from kit.plan.cluster import checks, network, record, ssh, stack

SSHD_TIMEOUT_S = 60.0
PRIVATE, PUBLIC = "600", "644"


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """The image to have: `id` as hosts will have it and `size` (bytes), empty and 0 when none does, or it is not known.

    The engine is this machine's, or that of the host `builder`. Where hosts pull it, `source` is its name at the
    registry, and `digest` what that name stands for. `arches` are those it is for, as engines name them.
    """

    tag: str
    id: str = ""
    size: int = 0
    builder: str = ""
    source: str = ""
    digest: str = ""
    arches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class File:
    path: str
    content: bytes | Secret
    mode: str
    why: str


def nodes_of(observed: Sequence[HostFacts], spec: ClusterSpec) -> tuple[tuple[Node, ...], list[KitError]]:
    """Each host as MPI will see it, and the faults of those that cannot take part."""
    nodes, problems = [], []
    for facts in observed:
        try:
            interface = network.pick_interface(facts, spec.network)
        except KitError as error:
            problems.append(error)
            continue
        nodes.append(
            Node(
                name=facts.host.name,
                address=str(interface.address.ip),
                slots=slots_of(facts, spec),
                cores=facts.cores,
            )
        )
    return tuple(nodes), problems


def slots_of(facts: HostFacts, spec: ClusterSpec) -> int:
    """The hosts file, then kit.yaml, then the GPUs that were found, then 1."""
    if facts.host.slots is not None:
        return facts.host.slots
    if spec.slots != "auto":
        return spec.slots
    return len(facts.gpus) or 1


def problems_of(
    observed: Sequence[HostFacts], spec: ClusterSpec, nodes: Sequence[Node], image: Image
) -> list[KitError]:
    """All that speaks against a deploy, so that it is told before anything is changed."""
    compose, ships, size = spec.orchestrator == "compose", spec.registry is None, image.size
    problems = [p for f in observed for p in checks.host_problems(f, image_size=size, compose=compose, ships=ships)]
    problems += [p for facts in observed for p in checks.arch_problems(facts, image.arches)]
    by_name = {node.name: node for node in nodes}
    for facts in observed:
        if facts.host.name in by_name:
            taken = checks.port_problem(facts, spec, by_name[facts.host.name])
            problems += [taken] if taken else []
    return problems + checks.cluster_problems(observed, nodes)


def standing_keys(observed: Sequence[HostFacts]) -> tuple[str | None, dict[str, str]]:
    """The public halves of the keys that stand: (the head's own, or None; host keys by host, of those that have one).

    A private key that others could read is none: what they may have read is worth nothing only when it is replaced.
    """

    def private(facts: HostFacts, path: str) -> bool:
        return facts.modes.get(path) == PRIVATE

    head = observed[0]
    client = head.client_key if private(head, names.CLIENT_KEY) else None
    hosts = {f.host.name: f.host_key for f in observed if f.host_key and private(f, names.HOST_KEY)}
    return client, hosts


def cluster_record(
    spec: ClusterSpec, observed: Sequence[HostFacts], nodes: Sequence[Node], image: Image
) -> ClusterRecord:
    """The truth about the cluster, for every later verb."""
    chosen = [node.address for node in nodes]
    others = {i.address.ip for facts in observed for i in facts.interfaces} - {IPv4Address(a) for a in chosen}
    covering = network.mpi_network(spec.network, chosen, others)
    return ClusterRecord(
        name=spec.name,
        image=image.tag,
        network=covering or "",
        ssh_port=spec.ssh_port,
        nodes=tuple(nodes),
        head_runs_ranks=spec.head_runs_ranks,
    )


def deploy_plan(
    spec: ClusterSpec, observed: Sequence[HostFacts], nodes: Sequence[Node], image: Image, keys: ClusterKeys
) -> Plan:
    """The steps of every host. `observed` and `nodes` go in step, the head first."""
    known = cluster_record(spec, observed, nodes, image)
    plans, digests = [], []
    for index, (facts, node) in enumerate(zip(observed, nodes, strict=True)):
        name = names.HEAD if index == 0 else names.NODE
        interface = network.pick_interface(facts, spec.network).name
        body = stack.service(
            spec,
            name=name,
            image=image.tag,
            node=node,
            interface=interface,
            gpus=stack.has_gpus(facts),
            host_key=keys.hosts[node.name].public,
        )
        digests.append(body["labels"][names.LABEL_SPEC])
        steps: list[Step] = []
        if facts.image_id is None:
            steps.append(bring(image, node, nodes))
        files = list(_files(spec, name, body, node=node, known=known, keys=keys))
        changes = [*file_steps(files, facts), *stale_steps(files, facts, head=index == 0)]
        new_key = keys.hosts[node.name].private is not None
        current = checks.container_is_current(facts, spec, name, digests[-1])
        steps += changes
        if new_key or not current:
            steps.append(
                ComposeUp(
                    folder=names.folder(spec.name),
                    project=names.project(spec.name),
                    recreate=new_key and any(c.cluster == spec.name for c in facts.containers),
                    why=_why_up(facts, spec, name, new_key=new_key),
                )
            )
        if new_key or not current or f"{node.address}:{spec.ssh_port}" not in facts.listening:
            steps.append(
                WaitSshd(
                    address=node.address,
                    port=spec.ssh_port,
                    timeout_s=SSHD_TIMEOUT_S,
                    why="ranks are started through it",
                )
            )
        plans.append(HostPlan(host=node.name, steps=tuple(steps)))
    hosts = tuple(plans)
    after: tuple[HostPlan, ...] = ()
    # Written when the check has passed, so that one that failed, or never came, is made up for by the next deploy.
    seal = File(names.VERIFIED, state(known, keys, digests), PUBLIC, "the check has passed")
    if any(plan.steps for plan in hosts) or not stands(seal, observed[0]):
        # What an earlier check left goes first: it would stand though this one fails.
        old = (
            [DeleteFile(path=names.VERIFIED, why="the check is made anew")]
            if names.VERIFIED in observed[0].files
            else []
        )
        verify = VerifyPeers(
            container=names.container(spec.name, names.HEAD),
            peers=tuple((node.name, node.address) for node in nodes),
            why="the head must reach every node with no prompt",
        )
        passed = WriteFile(path=seal.path, content=seal.content, mode=seal.mode, why=seal.why)
        after = (HostPlan(host=nodes[0].name, steps=(*old, verify, passed)),)
    return Plan(cluster=spec.name, hosts=hosts, after=after)


def bring(image: Image, node: Node, nodes: Sequence[Node]) -> Ship | Pull:
    why = "the host does not have it"
    if image.source:
        return Pull(image=image.tag, source=image.source, digest=image.digest, why=why)
    head = nodes[0]
    # The head is the one host that builds.
    source = (head.name, head.address) if image.builder == head.name else None
    return Ship(image=image.tag, image_id=image.id, size=image.size, address=node.address, source=source, why=why)


def _why_up(facts: HostFacts, spec: ClusterSpec, service: str, *, new_key: bool) -> str:
    own = [c for c in facts.containers if c.cluster == spec.name]
    if not own:
        return f"no {service} runs here"
    if any(c.service != service for c in own):
        return f"the host becomes {service}"
    if not all(c.running for c in own):
        return f"{service} is {own[0].status or 'stopped'}"
    return "it has a new host key" if new_key else "its definition changed"


def _files(
    spec: ClusterSpec, service: str, body: dict[str, object], *, node: Node, known: ClusterRecord, keys: ClusterKeys
) -> Iterable[File]:
    """Every file of the host's folder. Private keys are among them only when they are new."""
    pair = keys.hosts[node.name]
    # The environment of kit.yaml may hold a token: the file is root's alone, and its content never prints.
    text = stack.compose_text(spec, service, body)
    yield File(names.COMPOSE_FILE, Secret(text.encode()), PRIVATE, "the host's Compose file")
    yield File(f"{names.HOST_KEY}.pub", f"{pair.public}\n".encode(), PUBLIC, "the node's host key")
    if pair.private:
        yield File(names.HOST_KEY, pair.private, PRIVATE, "the node's host key")
    allowed = ssh.authorized_keys(keys.client.public, known.nodes[0].address)
    yield File(names.AUTHORIZED_KEYS, allowed, PRIVATE, "the head alone may log in")
    if service != names.HEAD:
        return
    yield File(names.RECORD, record.to_text(known).encode(), PUBLIC, "what the cluster is made of")
    if keys.client.private:
        yield File(names.CLIENT_KEY, keys.client.private, PRIVATE, "the head's key")
    yield File(f"{names.CLIENT_KEY}.pub", f"{keys.client.public}\n".encode(), PUBLIC, "the head's key")
    yield from launch_files(spec, known, keys, client_key=ssh.CLIENT_KEY)


def launch_files(spec: ClusterSpec, known: ClusterRecord, keys: ClusterKeys, *, client_key: str) -> Iterable[File]:
    """What the head launches with. `client_key` is the path of its private key in the container."""
    publics = {name: key.public for name, key in keys.hosts.items()}
    pinned = ssh.known_hosts(known.nodes, publics, spec.ssh_port)
    yield File(names.KNOWN_HOSTS, pinned, PUBLIC, "every node's host key, pinned")
    config = ssh.client_config(known.nodes, spec.ssh_port, key=client_key)
    yield File(names.SSH_CONFIG, config, PUBLIC, "how the head reaches nodes")
    ranked = known.nodes if spec.head_runs_ranks else known.nodes[1:]
    hostfile = "".join(f"{n.address} slots={n.slots}\n" for n in ranked)
    yield File(names.HOSTFILE, hostfile.encode(), PUBLIC, "the hostfile for launches by hand")
    # A file and no variable: a host that joins may widen it, and must not make the other nodes' containers anew.
    yield File(names.NETWORK, f"{known.network}\n".encode(), PUBLIC, "the network for launches by hand")


def state(known: ClusterRecord, keys: ClusterKeys, digests: Iterable[str]) -> bytes:
    """Tells apart any two clusters in which the head's logins could go differently. `digests`: of the services."""
    publics = sorted(f"{name} {pair.public}" for name, pair in keys.hosts.items())
    text = "\n".join([record.to_text(known), keys.client.public, *publics, *digests])
    return f"{hashlib.sha256(text.encode()).hexdigest()}\n".encode()


def stands(file: File, facts: HostFacts) -> bool:
    """Whether the host has this very file."""
    content = file.content
    digest = content.digest() if isinstance(content, Secret) else hashlib.sha256(content).hexdigest()
    return facts.files.get(file.path) == digest and facts.modes.get(file.path) == file.mode


def file_steps(files: Sequence[File], facts: HostFacts) -> Iterable[Step]:
    for file in files:
        if stands(file, facts):
            continue
        why = file.why if file.path not in facts.files else f"{file.why}: changed"
        yield WriteFile(path=file.path, content=file.content, mode=file.mode, why=why)


def stale_steps(files: Sequence[File], facts: HostFacts, *, head: bool) -> Iterable[Step]:
    # A private key that is already right is not among `files`: it belongs to the .pub beside it.
    wanted = {file.path for file in files} | {f.path.removesuffix(".pub") for f in files if f.path.endswith(".pub")}
    if head:
        wanted.add(names.VERIFIED)
    for path in sorted(set(facts.files) - wanted):
        yield DeleteFile(path=path, why="it belongs to an earlier shape of the cluster")
