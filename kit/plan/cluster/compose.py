"""The Compose dialect: each host gets its own Compose file and keys, and starts its own container."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kit.errors import KitError
from kit.model import names
from kit.model.launch import Node
from kit.model.observed import HostFacts
from kit.model.plan import ComposeUp, HostPlan, Step
from kit.model.secret import Secret
from kit.model.spec import ClusterSpec
from kit.plan.cluster import checks, data, network, rdma, ssh, stack, wires
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
from kit.plan.cluster.gpus import file_driver, lost, verify_gpus
from kit.plan.cluster.verify import wait_sshd
from kit.plan.swarm.leave import leaving


def paths(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the sources of mounts, and devices. Compose creates missing sources, so the plan has no step for them."""
    return tuple(dict.fromkeys([*checks.bind_sources(spec), *data.paths(spec), *checks.needed_paths(spec)]))


def problems(_observed: Sequence[HostFacts], _nodes: Sequence[Node]) -> list[KitError]:
    """Return no problem beyond those that every deploy checks."""
    return []


def held_keys(observed: Sequence[HostFacts]) -> HeldKeys:
    """Return the keys in the hosts' folders: each host has its own host key, and the head the client key.

    A private key with loose permissions does not count, so that the deploy replaces it.
    """

    def private(facts: HostFacts, path: str) -> bool:
        return facts.modes.get(path) == PRIVATE

    head = observed[0]
    return HeldKeys(
        client=head.client_key if private(head, names.CLIENT_KEY) else None,
        hosts={f.host.name: f.host_key for f in observed if f.host_key and private(f, names.HOST_KEY)},
        owners={f.host.name: f.host.name for f in observed},
    )


def draft(site: Site) -> Draft:
    """Return the steps of every host, and what ends an earlier deploy with Swarm."""
    spec, compose_files = site.spec, stack.ComposeFiles(site.spec, site.image.tag)
    left = leaving(spec, site.observed)
    login = login_file(site.record, site.keys)
    plans: list[HostPlan] = []
    digests = []
    for facts, node in zip(site.observed, site.nodes, strict=True):
        service = names.NODE if plans else names.HEAD
        file = compose_files.file(
            service,
            node=node,
            interface=network.pick_interface(facts, spec.network).name,
            rdma=rdma.passed(facts, spec),
            more=wires.environment(facts, spec),
            gpus=file_driver(facts),
            host_key=site.keys.hosts[node.name].public,
        )
        digests.append(file.digest)
        steps = (*left.steps.get(node.name, ()), *_steps(site, facts, node, service=service, compose=file, login=login))
        plans.append(HostPlan(host=node.name, steps=steps))
    return Draft(hosts=tuple(plans), digests=tuple(digests), before=left.before)


def _steps(
    site: Site, facts: HostFacts, node: Node, *, service: str, compose: stack.ComposeFile, login: File
) -> Iterable[Step]:
    spec = site.spec
    files = [*_files(site, compose, node), login, *(_head_files(site) if service == names.HEAD else ())]
    yield from file_steps(files, facts)
    yield from made_steps(facts)
    yield from stale_steps(files, facts, head=service == names.HEAD)
    yield from data.steps(facts, spec)
    new_key = site.keys.hosts[node.name].private is not None
    lacks = lost(facts, spec.env)
    starts = new_key or bool(lacks) or not checks.container_is_current(facts, spec, service, compose.digest)
    if starts:
        yield ComposeUp(
            folder=names.folder(spec.name),
            project=names.project(spec.name),
            recreate=_misnamed(facts, spec, service)
            or (bool(new_key or lacks) and any(c.cluster == spec.name for c in facts.containers)),
            why=lacks or _why_up(facts, spec, service, new_key=new_key),
            servers=data.servers(spec),
        )
    if starts or f"{node.address}:{spec.ssh_port}" not in facts.listening:
        yield wait_sshd(spec, node, service)
    verify = verify_gpus(spec, facts) if starts else None
    if verify:
        yield verify


def _why_up(facts: HostFacts, spec: ClusterSpec, service: str, *, new_key: bool) -> str:
    own = [c for c in facts.containers if c.cluster == spec.name]
    if not own:
        return f"no {service} runs here"
    if any(c.service != service for c in own):
        return f"the host becomes {service}"
    if not all(c.running for c in own):
        return f"{service} is {own[0].status or 'stopped'}"
    if _misnamed(facts, spec, service):
        return "its container has another name"
    return "it has a new host key" if new_key else "its definition changed"


def _misnamed(facts: HostFacts, spec: ClusterSpec, service: str) -> bool:
    """Return whether the service has a container, and none with its name: Compose would start it, and not rename it.

    Compose creates a new container under another name, and was cut, as by a power loss, before it renamed that.
    """
    own = [c.name for c in facts.containers if c.cluster == spec.name and c.service == service and not c.swarm]
    return bool(own) and names.container(spec.name, service) not in own


def _files(site: Site, compose: stack.ComposeFile, node: Node) -> Iterable[File]:
    """Yield the files that differ from host to host. A private key is among them only when it is new."""
    pair = site.keys.hosts[node.name]
    # The environment in kit.yaml may hold a token: only root may read the file, and kit never prints its content.
    yield File(names.COMPOSE_FILE, Secret(compose.text.encode()), PRIVATE, "the host's Compose file")
    yield File(f"{names.HOST_KEY}.pub", f"{pair.public}\n".encode(), PUBLIC, "the node's host key")
    if pair.private:
        yield File(names.HOST_KEY, pair.private, PRIVATE, "the node's host key")


def _head_files(site: Site) -> Iterable[File]:
    keys = site.keys
    yield record_file(site.text)
    # The public half first, as of a host key: a deploy that is cut between both leaves no older half beside a new key.
    yield File(f"{names.CLIENT_KEY}.pub", f"{keys.client.public}\n".encode(), PUBLIC, "the head's key")
    if keys.client.private:
        yield File(names.CLIENT_KEY, keys.client.private, PRIVATE, "the head's key")
    yield from launch_files(site.spec, site.record, keys, client_key=ssh.CLIENT_KEY)
