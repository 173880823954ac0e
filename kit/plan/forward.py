"""Where a program of a VM listens, by its tables of sockets (proc(5): /proc/net/tcp, /proc/net/tcp6)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

# sshd tries all addresses of this name: 127.0.0.1, and ::1 if that refuses.
LOCALHOST = "localhost"
_LISTENING = "0A"
_LOOPBACKS = (("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "::1"), ("::", LOCALHOST))  # noqa: S104  (not bound here)
_ROW = re.compile(r"\s*[0-9]+: ([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4}) [0-9A-F:]+ ([0-9A-F]{2}) ")


def listeners(lines: Iterable[str], port: int) -> list[str]:
    """Return the addresses on which something listens on this port."""
    addresses = []
    for line in lines:
        row = _ROW.match(line)
        if row and row[3] == _LISTENING and int(row[2], 16) == port:
            addresses.append(_address(row[1]))
    return addresses


def target(lines: Iterable[str], port: int) -> str:
    """Return the address to connect to on the VM itself, or '' if nothing listens on the port.

    A program that listens on every address, or on the loopback, is reached by the loopback. Others listen on one
    address only. One that listens on `::` may accept IPv4, IPv6 or both: a VM with IPv6 off has no ::1.
    """
    addresses = listeners(lines, port)
    for open_to, loopback in _LOOPBACKS:
        if open_to in addresses:
            return loopback
    return addresses[0] if addresses else ""


def _address(text: str) -> str:
    """Return an address of the table: words of 4 bytes, each with its lowest byte first."""
    raw = bytes.fromhex(text)
    address = ipaddress.ip_address(b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4)))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
