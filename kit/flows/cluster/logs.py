"""kit logs of nodes: the logs of their containers."""

from __future__ import annotations

from kit.config.selection import select_hosts
from kit.flows.context import Context
from kit.model import names
from kit.remote.scripts import node_logs
from kit.remote.ssh.openssh import openssh_argv
from kit.remote.ssh.stream import follow
from kit.remote.ssh.transport import as_root


def logs(context: Context, hosts: str | None, *, tail: int | None, since_s: float | None = None, live: bool) -> int:
    """Print the logs of the nodes' containers, on these hosts or on all. Return 0, or the code that failed.

    If there are several, each line begins with its host.
    """
    chosen = select_hosts(context.inventory, hosts).hosts if hosts else context.inventory.hosts
    head = context.inventory.head.name
    commands = {}
    for one in chosen:
        container = names.container(context.spec.name, names.HEAD if one.name == head else names.NODE)
        options = ["--tail", str(tail)] if tail is not None else []
        options += ["--since", f"{since_s:.0f}s"] if since_s is not None else []
        options += ["--follow"] if live else []
        commands[one.name] = [*openssh_argv(context.login(one)), as_root(node_logs(container, *options))]
    return follow(commands, context.reporter, named=len(commands) > 1)
