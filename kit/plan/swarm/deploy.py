"""The Swarm dialect: hosts form a swarm, their nodes get labels, and one stack starts all containers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kit.errors import KitError
from kit.model import names
from kit.model.launch import Node
from kit.model.observed import Container, HostFacts
from kit.model.plan import HostPlan, Round, Step, WriteFile
from kit.model.secret import Secret
from kit.model.spec import ClusterSpec
from kit.model.swarm import START, MakeFolder, RemoveNode, Role, SecretRemove, StackDeploy, SwarmInit, SwarmJoin
from kit.model.values import replace
from kit.plan.cluster import data, fence, network, wires
from kit.plan.cluster import stack as services
from kit.plan.cluster.checks import bind_sources, needed_paths
from kit.plan.cluster.dialect import Draft, HeldKeys, Site
from kit.plan.cluster.files import (
    PRIVATE,
    PUBLIC,
    File,
    file_steps,
    launch_files,
    login_file,
    made_steps,
    record_file,
    stale_steps,
)
from kit.plan.cluster.gpus import lost, verify_gpus
from kit.plan.cluster.verify import wait_sshd
from kit.plan.swarm import checks, manager, stack

# The mode of NODE_ENV while a container runs that read an earlier one. A deploy that was cut leaves it, so the next one
# restarts the container. Everybody can read it with either mode: root in the container may have another ID on the VM.
_UNREAD = "444"


def paths(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the folders that mounts need, and what every host must have."""
    return (*_folders(spec), *data.paths(spec), *needed_paths(spec))


def _folders(spec: ClusterSpec) -> dict[str, str]:
    """Return the folders that mounts need, with the modes of new ones."""
    own = {f"{names.folder(spec.name)}/{names.STATE}": "700"}
    if fence.scratch(spec):
        own[fence.scratch_folder(spec)] = "700"
    return {**own, **{path: "755" for path in bind_sources(spec) if path not in own}}


def problems(observed: Sequence[HostFacts], nodes: Sequence[Node]) -> list[KitError]:
    """Return what keeps hosts from a deploy with Swarm."""
    return checks.problems_of(observed, nodes)


def held_keys(observed: Sequence[HostFacts]) -> HeldKeys:
    """Return the keys in the swarm's secrets. All nodes but the head share one host key."""
    publics = secret_keys(observed)
    owners = {facts.host.name: "node" if index else "head" for index, facts in enumerate(observed)}
    hosts: dict[str, str] = {role: public for role, public in publics.items() if role != "client"}
    return HeldKeys(client=publics.get("client"), hosts=hosts, owners=owners)


def secret_keys(observed: Sequence[HostFacts]) -> dict[Role, str]:
    """Return the public halves of the keys that the head's swarm holds, by role."""
    roles: dict[str, Role] = {"client": "client", "head": "head", "node": "node"}
    return {roles[s.role]: s.public for s in observed[0].swarm.secrets if s.role in roles and s.public}


def draft(site: Site) -> Draft:
    """Return the steps of every host, and the rounds in which the swarm forms and the stack starts."""
    spec, head = site.spec, site.observed[0]
    secrets = stack.secret_names(spec, site.nodes, site.keys)
    wanted = manager.wanted_of(spec, site.observed, site.nodes, site.image, secrets)
    text = stack.stack_text(spec, wanted)
    pairs = list(zip(site.observed, site.nodes, strict=True))

    login, head_files = login_file(site.record, site.keys), list(_head_files(site, text))
    hosts = []
    for facts, node in pairs:
        files = [*_files(site, facts, node), login, *(head_files if facts is head else ())]
        hosts.append(HostPlan(host=node.name, steps=tuple(_host_steps(facts, spec, node, files, head=facts is head))))
    managed = manager.steps(site, wanted)
    deploys = any(isinstance(step, StackDeploy) for step in managed)
    waits = []
    for (facts, node), plan in zip(pairs, hosts, strict=True):
        service = names.HEAD if facts is head else names.NODE
        runs = manager.is_current(facts, spec, service, wanted.digest(service))
        restarts = any(isinstance(step, RemoveNode) for step in plan.steps)
        if deploys or restarts or not runs or f"{node.address}:{spec.ssh_port}" not in facts.listening:
            verify = verify_gpus(spec, facts)
            waits.append(
                HostPlan(host=node.name, steps=(wait_sshd(spec, node, service), *([verify] if verify else ())))
            )
    server = _server(head, site.nodes[0])
    name = stack.image_of(site.observed, tag=site.image.tag, image_id=site.image.id)
    after = (
        Round(name="form the swarm", hosts=(_form(head, site.nodes[0]),)),
        Round(name="join", hosts=tuple(_join(facts, node, server, name) for facts, node in pairs[1:])),
        Round(name=START, hosts=(HostPlan(host=head.host.name, steps=tuple(managed)),)),
        Round(name="wait for sshd", hosts=tuple(waits)),
        Round(name="tidy up", hosts=(HostPlan(host=head.host.name, steps=tuple(_tidy(head, secrets.values()))),)),
    )
    return Draft(hosts=tuple(hosts), digests=tuple(wanted.digest(name) for name in wanted.services), after=after)


def _host_steps(
    facts: HostFacts, spec: ClusterSpec, node: Node, files: Sequence[File], *, head: bool
) -> Iterable[Step]:
    """Yield what each host does before there is a swarm: remove Compose's container, write files, create folders."""
    own = [c for c in facts.containers if c.cluster == spec.name]
    if any(not c.swarm for c in own):
        yield RemoveNode(cluster=spec.name, why="Swarm starts it from now on")
    runs = _runs_task(own)
    changes = list(file_steps(files, facts))
    # On the head the definition has the same values. Elsewhere the container read the file when it started.
    unread = [step for step in changes if isinstance(step, WriteFile) and step.path == names.NODE_ENV]
    if head or not runs:
        unread = []
    yield from (replace(step, mode=_UNREAD) if step in unread else step for step in changes)
    yield from made_steps(facts)
    yield from stale_steps(files, facts, head=head)
    for path, mode in _folders(spec).items():
        if path in facts.absent:
            yield MakeFolder(path=path, mode=mode, why="a mount needs it")
    yield from data.steps(facts, spec)
    deaf = f"{node.address}:{spec.ssh_port}" not in facts.listening
    lacks = lost(facts, spec.env)
    if lacks and runs:
        yield RemoveNode(cluster=spec.name, why=lacks)
    elif not head and runs and (unread or deaf):
        why = "its own variables changed" if unread else "its sshd does not listen on the right address"
        yield RemoveNode(cluster=spec.name, why=why)
    yield from (replace(step, why="no container runs with an earlier one") for step in unread)


def _runs_task(containers: Sequence[Container]) -> bool:
    return any(c.swarm and c.running for c in containers)


def _files(site: Site, facts: HostFacts, node: Node) -> Iterable[File]:
    """Yield the files that differ from host to host. Private keys are not files but secrets of the swarm."""
    interface = network.pick_interface(facts, site.spec.network).name
    env = services.own_environment(site.spec, node, interface, wires.environment(facts, site.spec))
    yield File(names.NODE_ENV, stack.node_env_text(env).encode(), PUBLIC, "the node's own variables")


def _head_files(site: Site, stack_file: str) -> Iterable[File]:
    # The environment in kit.yaml may hold a token: only root may read the file, and kit never prints its content.
    yield File(names.STACK_FILE, Secret(stack_file.encode()), PRIVATE, "the stack for the whole cluster")
    yield record_file(site.text)
    yield from launch_files(site.spec, site.record, site.keys, client_key=stack.CLIENT_KEY)


def _form(head: HostFacts, node: Node) -> HostPlan:
    step = SwarmInit(address=node.address, why="the hosts are in no swarm yet")
    return HostPlan(host=node.name, steps=() if head.swarm.state == "active" else (step,))


def _server(head: HostFacts, node: Node) -> str:
    """Return the address at which hosts join the head's swarm. A swarm keeps that with which it was created."""
    new = f"{node.address}:{names.MANAGER_PORT}"
    managers = head.swarm.managers if head.swarm.state == "active" else ()
    if not managers or new in managers:
        return new
    own = next((entry.address for entry in head.swarm.nodes if entry.id == head.swarm.node_id), "")
    return next((manager for manager in managers if manager.rpartition(":")[0] == own), managers[0])


def _join(facts: HostFacts, node: Node, server: str, image: str) -> HostPlan:
    step = SwarmJoin(address=node.address, manager=server, image=image, why="the host is not in the swarm yet")
    return HostPlan(host=node.name, steps=() if facts.swarm.state == "active" else (step,))


def _tidy(head: HostFacts, secrets: Iterable[str]) -> Iterable[Step]:
    used = set(secrets)
    stale = tuple(secret.name for secret in head.swarm.secrets if secret.name not in used)
    if stale:
        yield SecretRemove(names=stale, why="no service uses them any more")
