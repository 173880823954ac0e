"""One host's control channel. FabricTransport is the real thing for short commands; tests bring others.

A command is an argv list and is quoted here, once. Bulk bytes and live streams do not come this way:
kit.remote.ssh.openssh carries those.
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


def as_root(argv: Sequence[str]) -> str:
    """The one place where a command is quoted: what a VM's shell is given."""
    return shlex.join(["sh", "-c", AS_ROOT, "kit", *argv])
