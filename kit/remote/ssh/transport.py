"""One host's control channel: what OpenSshTransport, FabricTransport and the tests' own all promise.

A command is an argv list and is quoted here, once. Bulk bytes and live streams start OpenSSH's client themselves:
kit.remote.ssh.openssh has its options.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kit.model.host import Host


@dataclass(frozen=True, kw_only=True, slots=True)
class Completed:
    """A command that ended: exit code and everything that it wrote."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")

    @property
    def error_text(self) -> str:
        return self.stderr.decode(errors="replace").strip()


class Transport(Protocol):
    """Runs commands on one host as root (by sudo where the login is not root).

    `run` raises UnreachableError when the host cannot be reached or the connection breaks, and StepError when
    `timeout_s` passes. The limit counts from the start of the command, not of the login. A command's own failure is in
    `Completed.code`. Not thread-safe: use one transport for each thread, inside `contextlib.closing`.
    """

    @property
    def host(self) -> Host: ...

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed: ...

    def close(self) -> None: ...


Connect = Callable[[Host], Transport]

# Runs a command as root on any login: directly, or by sudo without a prompt.
AS_ROOT = 'if [ "$(id -u)" = 0 ]; then exec "$@"; else exec sudo -n -- "$@"; fi'


# What the far shell writes to standard error when a session is there, before it waits for the word to begin.
BEGUN = b"kit-session\n"
_FENCE = f"echo {BEGUN.decode().strip()} >&2; read -r kit || exit 255; "


def fenced(argv: Sequence[str]) -> str:
    """Return `as_root(argv)` that first writes BEGUN, then waits for one line on standard input."""
    return shlex.join(["sh", "-c", _FENCE + AS_ROOT, "kit", *argv])


def as_root(argv: Sequence[str]) -> str:
    """Return the command as text for the VM's shell. Commands are quoted here and nowhere else."""
    return shlex.join(["sh", "-c", AS_ROOT, "kit", *argv])
