"""kit logs of nodes: the logs of their containers."""

from __future__ import annotations

from kit.config.selection import select_host
from kit.flows.context import Context
from kit.model import names
from kit.remote.scripts import node_logs
from kit.remote.ssh.openssh import openssh_argv
from kit.remote.ssh.stream import follow
from kit.remote.ssh.transport import as_root


def logs(context: Context, host: str | None, *, tail: int | None, live: bool) -> int:
    """Print the log of one node's container, or of all, each line with its host. Return 0, or the code that failed."""
    chosen = [select_host(context.inventory, host)] if host else list(context.inventory.hosts)
    head = context.inventory.head.name
    commands = {}
    for one in chosen:
        container = names.container(context.spec.name, names.HEAD if one.name == head else names.NODE)
        options = [*(["--tail", str(tail)] if tail is not None else []), *(["--follow"] if live else [])]
        commands[one.name] = [*openssh_argv(context.login(one)), as_root(node_logs(container, *options))]
    return follow(commands, context.reporter, named=len(commands) > 1)
