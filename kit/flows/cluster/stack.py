"""kit stack: the stack file for Swarm as kit deploy writes it, for use by hand."""

from __future__ import annotations

from kit.flows.cluster.look import look_at_nodes, with_plugin
from kit.flows.context import Context
from kit.model import names
from kit.model.result import FileResult
from kit.model.swarm import Role
from kit.model.values import replace
from kit.plan.cluster.supply import Image
from kit.plan.swarm import deploy as swarm_deploy
from kit.plan.swarm import manager
from kit.plan.swarm import stack as swarm

ROLES: tuple[Role, ...] = ("client", "head", "node")


def stack_file(context: Context) -> FileResult:
    """Return the stack file for all hosts. Comments in it say how to create the secrets that do not exist yet."""
    observed, nodes, tag = look_at_nodes(context)
    spec = with_plugin(context.spec, observed[0])
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
