"""kit compose and kit stack: the files for Compose and Swarm as kit deploy writes them, for use by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kit.config.selection import select_hosts
from kit.errors import InputError
from kit.flows.cluster.deploy import failed, look
from kit.flows.context import Context
from kit.flows.image.content import content
from kit.model import names
from kit.model.host import Host
from kit.model.launch import Node
from kit.model.observed import HostFacts
from kit.model.result import FileResult
from kit.model.swarm import Role
from kit.plan.cluster import compose, network, stack
from kit.plan.cluster.nodes import nodes_of
from kit.plan.cluster.supply import Image
from kit.plan.swarm import deploy as swarm_deploy
from kit.plan.swarm import manager
from kit.plan.swarm import stack as swarm

ROLES: tuple[Role, ...] = ("client", "head", "node")


def compose_file(context: Context, name: str | None) -> FileResult:
    """Return the Compose file of one host with its current address, interface, GPUs and host key."""
    spec, inventory = context.spec, context.inventory
    host = inventory.head if name is None else _one(context, name)
    alone = replace(context, inventory=replace(inventory, hosts=(host,)))
    tag = content(spec.image).tag
    observed, nodes = _look(alone, tag)
    service = names.HEAD if host == inventory.head else names.NODE
    file = stack.ComposeFiles(spec, tag).file(
        service,
        node=nodes[0],
        interface=network.pick_interface(observed[0], spec.network).name,
        gpus=stack.has_gpus(observed[0]),
        host_key=compose.held_keys(observed).hosts.get(host.name, ""),
    )
    return FileResult(host=host.name, text=file.text)


def stack_file(context: Context) -> FileResult:
    """Return the stack file for all hosts. Comments in it say how to create the secrets that do not exist yet."""
    spec = context.spec
    tag = content(spec.image).tag
    observed, nodes = _look(context, tag)
    known = swarm_deploy.secret_keys(observed)
    existing = {role: swarm.secret_name(spec, role, known[role]) for role in known}
    missing = {role: f"{names.project(spec.name)}-{role}-by-hand" for role in ROLES if role not in existing}
    wanted = manager.wanted_of(spec, observed, nodes, Image(tag=tag), existing | missing)
    used = {secret["source"] for body in wanted.services.values() for secret in body["secrets"]}
    notes = [
        f"Before that: ssh-keygen -t ed25519 -N '' -f key && docker secret create {name} key && shred -u key"
        for name in missing.values()
        if name in used
    ]
    kept = {role: name for role, name in wanted.secrets.items() if name in used}
    text = swarm.stack_text(spec, replace(wanted, secrets=kept), notes=notes)
    return FileResult(host=context.inventory.head.name, text=text)


def _look(context: Context, tag: str) -> tuple[Sequence[HostFacts], tuple[Node, ...]]:
    observed = look(context, tag)
    nodes, problems = nodes_of(observed, context.spec)
    if problems:
        raise failed("no file", problems)
    return observed, nodes


def _one(context: Context, name: str) -> Host:
    hosts = select_hosts(context.inventory, name).hosts
    if len(hosts) != 1:
        raise InputError(f"'{name}' names {len(hosts)} hosts", hint="name one host")
    return hosts[0]
