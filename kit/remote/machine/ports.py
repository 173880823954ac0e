"""Ports of this machine's loopback: which are free, and who has the others."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

_LISTENING = "0A"


def is_free(address: str, port: int) -> bool:
    """Return whether a program could listen here now."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        # As ssh does: connections of an earlier program that are about to end do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def free_port(address: str) -> int:
    """Return a port of this address on which nothing listens."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def holder(port: int, proc: Path = Path("/proc")) -> str:
    """Return `name (pid N)` of the program that listens on this port, or '' if this machine does not say it."""
    inodes = set(_inodes(port, proc))
    if not inodes:
        return ""
    # Other users' processes cannot be read, and some processes end meanwhile.
    for folder in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for descriptor in (folder / "fd").iterdir():
                if str(descriptor.readlink()) in inodes:
                    return f"{(folder / 'comm').read_text().strip()} (pid {folder.name})"
    return ""


def _inodes(port: int, proc: Path) -> Iterator[str]:
    """Yield the sockets that listen on this port, as the links in /proc name them."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                    yield f"socket:[{words[9]}]"
