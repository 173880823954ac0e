"""Addresses and listeners of this machine, for tests that run beside others."""

from __future__ import annotations

import os
from pathlib import Path

LISTEN = "0A"
"""The state of a listening socket in /proc/net/tcp."""


def own_addresses(count: int) -> list[str]:
    """Return addresses of the loopback device that the other test processes do not use, 63 at most.

    A port that was free on 127.0.0.1 may belong to another test a moment later. Here nobody else looks for one.
    """
    number = os.getpid()
    network = f"127.{128 | number >> 10 & 127}.{number >> 2 & 255}"
    return [f"{network}.{(number & 3) << 6 | n}" for n in range(1, count + 1)]


def listening(pid: int) -> set[tuple[str, int]]:
    """Return the address and port of each TCP socket on which this process listens."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        target = str(descriptor.readlink())
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    found = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == LISTEN and words[9] in inodes:
            address, _, port = words[1].partition(":")
            found.add((".".join(str(byte) for byte in reversed(bytes.fromhex(address))), int(port, 16)))
    return found
