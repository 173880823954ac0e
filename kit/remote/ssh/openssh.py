"""The command lines of OpenSSH's client: for kit's own connections, and for a person's terminal."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Literal

from kit.model.host import Login

# no: its own connection. join: over the kept one, if it is there. make: over the kept one, or leave one there.
Sharing = Literal["no", "join", "make"]
# ssh's exit code if there is no session, or if the session broke.
SSH_FAILED = 255
# From the first packet to the end of the key exchange.
CONNECT_TIMEOUT_S = 15
# How long a kept connection stays open after its last command.
KEEP_S = 60
# A link that is cut is noticed within 20 s: the next command then connects again.
_ALIVE = ("ServerAliveInterval=5", "ServerAliveCountMax=4")
# A connection that forwards ports: it ends with the process that has it, and writes why a port does not answer.
FORWARDING = ("ControlMaster=yes", "ControlPersist=no", "LogLevel=INFO")
# The only address of this machine on which forwarded ports listen.
LOOPBACK = "127.0.0.1"
# What the user's ssh_config may not add to a connection that nobody looks at.
_NO_EXTRAS = (
    "ForwardAgent=no",
    "AddKeysToAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "Tunnel=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "LogLevel=ERROR",
)
# Only known_hosts says which key a host has: no answer of DNS, and no exception for this machine's own addresses. A
# host cannot add keys to it.
_PINNED = ("VerifyHostKeyDNS=no", "NoHostAuthenticationForLocalhost=no", "UpdateHostKeys=no")
# Not an option of ssh_config, because ssh without Kerberos complains of GSSAPIDelegateCredentials.
_NO_TICKETS = "-k"
# A path that ssh reads in an option without quotes.
_PLAIN = re.compile(r"[A-Za-z0-9_./+:,@~-]+")


def openssh_argv(target: Login, *, options: Sequence[str] = (), sharing: Sharing = "join") -> tuple[str, ...]:
    """Return OpenSSH's client for this VM, up to where the remote command goes. It never asks and trusts no new key.

    `options` go before kit's own, because ssh takes the first value of an option.
    """
    settings = ["BatchMode=yes", *options, *_NO_EXTRAS, *_PINNED, *_ALIVE, *_shared(target.socket, sharing)]
    return _argv(("-T", _NO_TICKETS), target, settings)


def terminal_argv(target: Login, *, tty: bool) -> tuple[str, ...]:
    """Return OpenSSH's client for a session that a person asked for, up to where the remote command goes.

    The user's ssh_config applies, a forwarded agent included. At a terminal, ssh may ask for a passphrase.
    """
    settings = [*([] if tty else ["BatchMode=yes"]), "ServerAliveInterval=15", "ServerAliveCountMax=4"]
    return _argv(("-t" if tty else "-T",), target, [*settings, *_shared(None, "no")])


def container_terminal_argv(target: Login) -> tuple[str, ...]:
    """Return OpenSSH's client for a terminal in a container, up to where the remote command goes.

    It uses the kept connection, if there is one. ssh itself prints only errors.
    """
    alive = ("ServerAliveInterval=15", "ServerAliveCountMax=4")
    settings = [*alive, *_NO_EXTRAS, *_PINNED, *_shared(target.socket, "join")]
    return _argv(("-tt", _NO_TICKETS), target, settings)


def settings_argv(target: Login) -> tuple[str, ...]:
    """Return the command that prints ssh's settings for this VM. It contacts no host."""
    return ("ssh", "-G", *openssh_argv(target, sharing="no")[1:])


def by_hand(target: Login) -> str:
    """Return what a person types to connect to this VM with kit's login, quoted for a shell."""
    argv = ["ssh"]
    if target.port:
        argv += ["-p", str(target.port)]
    if target.key:
        argv += ["-i", target.key]
    if target.known_hosts:
        path = target.known_hosts
        argv += ["-o", f"UserKnownHostsFile={path if _PLAIN.fullmatch(path) else quoted(path)}"]
    return shlex.join([*argv, f"{target.user}@{target.address}" if target.user else target.address])


def where(login: Login) -> str:
    """`user@address:port`, as far as the login states them."""
    port = f":{login.port}" if login.port else ""
    user = f"{login.user}@" if login.user else ""
    return f"{user}{login.address}{port}"


def control_argv(target: Login, request: Literal["check", "exit"]) -> tuple[str, ...]:
    """Return the command that checks or ends the kept connection to this VM. It contacts no host."""
    return ("ssh", "-O", request, "-o", f"ControlPath={quoted(target.socket or 'none')}", "--", target.address)


def forward_argv(target: Login, local: int, address: str, port: int) -> tuple[str, ...]:
    """Return the command that makes a connection listen on this machine's loopback, for `port` of an address there.

    It reads no ssh_config: the forwardings in it are not wanted.
    """
    where = f"[{address}]" if ":" in address else address
    path = f"ControlPath={quoted(target.socket or 'none')}"
    wanted = f"{LOOPBACK}:{local}:{where}:{port}"
    return ("ssh", "-F", "none", "-O", "forward", "-o", path, "-L", wanted, "--", target.address)


def _argv(flags: Sequence[str], target: Login, settings: Sequence[str]) -> tuple[str, ...]:
    argv = ["ssh", *flags]
    for setting in ("StrictHostKeyChecking=yes", *settings, f"ConnectTimeout={CONNECT_TIMEOUT_S}"):
        argv += ["-o", setting]
    if target.known_hosts:
        argv += ["-o", f"UserKnownHostsFile={quoted(target.known_hosts)}", "-o", "GlobalKnownHostsFile=/dev/null"]
    if target.key:
        # ssh expands % in this path, too.
        argv += ["-o", f"IdentityFile={quoted(target.key)}", "-o", "IdentitiesOnly=yes"]
    if target.port:
        argv += ["-p", str(target.port)]
    if target.user:
        argv += ["-l", target.user]
    return (*argv, "--", target.address)


def _shared(socket: str | None, sharing: Sharing) -> tuple[str, ...]:
    """Kit's own sockets only: a master of the user's would hold our pipes open, and have the user's forwardings."""
    if socket is None or sharing == "no":
        return ("ControlMaster=no", "ControlPath=none")
    path = f"ControlPath={quoted(socket)}"
    if sharing == "join":
        return ("ControlMaster=no", path)
    return ("ControlMaster=auto", f"ControlPersist={KEEP_S}", path)


def quoted(path: str) -> str:
    """Return a path as ssh reads it: it splits a value at blanks unless it is quoted, and expands %."""
    return '"' + path.replace("%", "%%") + '"'
