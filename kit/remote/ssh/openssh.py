"""OpenSSH's own client: for live streams, terminals and bulk bytes, which Python's ssh carries badly."""

from __future__ import annotations

from collections.abc import Sequence

from kit.model.host import Login


def openssh_argv(target: Login, *, tty: bool = False, options: Sequence[str] = ()) -> tuple[str, ...]:
    """OpenSSH's client for this VM, up to where the remote command goes. Never asks, never trusts a new key."""
    argv = ["ssh", "-T" if not tty else "-t", "-o", "StrictHostKeyChecking=yes"]
    if not tty:
        argv += ["-o", "BatchMode=yes"]
    # The first value of an option counts: what a caller states goes before.
    for option in options:
        argv += ["-o", option]
    argv += ["-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"]
    # A master left behind by the user's ControlPersist would hold our pipes open after the command's end.
    argv += ["-o", "ControlMaster=no"]
    if target.known_hosts:
        argv += ["-o", f"UserKnownHostsFile={target.known_hosts}", "-o", "GlobalKnownHostsFile=/dev/null"]
    if target.key:
        argv += ["-i", target.key, "-o", "IdentitiesOnly=yes"]
    if target.port:
        argv += ["-p", str(target.port)]
    if target.user:
        argv += ["-l", target.user]
    return (*argv, "--", target.address)
