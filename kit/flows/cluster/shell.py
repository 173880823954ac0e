"""kit ssh and kit logs: OpenSSH's own client on a VM, with its terminal and its streams."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from kit.config.selection import select_hosts
from kit.errors import InputError
from kit.flows.context import Context
from kit.model import names
from kit.model.host import Host
from kit.remote.scripts import node_logs
from kit.remote.ssh.openssh import openssh_argv, terminal_argv
from kit.remote.ssh.stream import follow, replace_process
from kit.remote.ssh.transport import as_root


def ssh(context: Context, host: str, command: Sequence[str], *, tty: bool) -> None:
    """Become an ssh session on the VM (not the container). Does not return.

    The command gets each word as it was typed: the far shell sees them quoted.
    """
    target = context.login(_one(context, host))
    replace_process([*terminal_argv(target, tty=tty), *([shlex.join(command)] if command else [])])


def logs(context: Context, host: str | None, *, tail: int | None, live: bool) -> int:
    """The log of a node's container, or of all of them, each line with its host. Returns 0, or what failed."""
    chosen = [_one(context, host)] if host else list(context.inventory.hosts)
    head = context.inventory.head.name
    commands = {}
    for one in chosen:
        container = names.container(context.spec.name, names.HEAD if one.name == head else names.NODE)
        options = [*(["--tail", str(tail)] if tail is not None else []), *(["--follow"] if live else [])]
        commands[one.name] = [*openssh_argv(context.login(one)), as_root(node_logs(container, *options))]
    return follow(commands, context.reporter, named=len(commands) > 1)


def _one(context: Context, name: str) -> Host:
    hosts = select_hosts(context.inventory, name).hosts
    if len(hosts) != 1:
        raise InputError(f"'{name}' names {len(hosts)} hosts", hint="name one host")
    return hosts[0]
