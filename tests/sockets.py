"""Addresses and listeners of this machine, for tests that run beside others."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

# States of a socket in /proc/net/tcp, and in /proc/net/udp.
_CONNECTED, _LISTENING, _UNCONNECTED = "01", "0A", "07"


def own_addresses(count: int) -> list[str]:
    """Return addresses of the loopback device that the other test processes do not use, 63 at most.

    A port that was free on 127.0.0.1 may belong to another test a moment later. Here nobody else looks for one.
    """
    number = os.getpid()
    network = f"127.{128 | number >> 10 & 127}.{number >> 2 & 255}"
    return [f"{network}.{(number & 3) << 6 | n}" for n in range(1, count + 1)]


def free_port(ip: str) -> int:
    """Return a free port below those that the kernel gives to connections: it could give one away before its use."""
    limit = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(5000, max(limit, 6000)), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((ip, port))
            return port
    raise AssertionError(f"no port of {ip} is free")


def listening(pid: int) -> set[tuple[str, int]]:
    """Return the address and port of each TCP socket on which this process listens."""
    return {here for here, _ in _sockets(pid, _LISTENING)}


def connected(pid: int) -> set[tuple[str, int]]:
    """Return the address and port at the other end of each TCP connection of this process."""
    return {there for _, there in _sockets(pid, _CONNECTED)}


def packet_sockets(pid: int) -> set[tuple[str, int]]:
    """Return the address and port of each UDP socket of this process that takes packets of everybody."""
    return {here for here, _ in _sockets(pid, _UNCONNECTED, "udp")}


def _sockets(pid: int, state: str, table: str = "tcp") -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    """Yield both ends of each socket of the process that is in this state. `table` is tcp or udp."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except FileNotFoundError:
            # The process has closed it meanwhile.
            continue
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == state and words[9] in inodes:
            yield _end(words[1]), _end(words[2])


def _end(word: str) -> tuple[str, int]:
    address, _, port = word.partition(":")
    return ".".join(str(byte) for byte in reversed(bytes.fromhex(address))), int(port, 16)
