"""kit ssh: OpenSSH's own client on a VM, with its terminal and its streams."""

from __future__ import annotations

from collections.abc import Sequence

from kit.config.selection import select_host
from kit.flows.context import Context
from kit.remote.ssh.openssh import terminal_argv
from kit.remote.ssh.starting import starting
from kit.remote.ssh.stream import replace_process
from kit.remote.ssh.transport import quoted


def ssh(context: Context, host: str, command: Sequence[str], *, tty: bool) -> None:
    """Become an ssh session on the VM (not the container). Does not return.

    The command gets each word as it was typed: the far shell sees them quoted.
    """
    target = context.login(select_host(context.inventory, host))
    with starting(target.host):
        replace_process([*terminal_argv(target, tty=tty), *([quoted(command)] if command else [])])
