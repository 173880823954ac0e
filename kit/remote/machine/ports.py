"""Ports of this machine's loopback: which are free, and who has the others."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

_LISTENING = "0A"
_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_free(address: str, port: int) -> bool:
    """Return whether a program could listen here now."""
    return refusal(address, port) is None


def refusal(address: str, port: int) -> OSError | None:
    """Return why no program could listen here now, or None if one could. EADDRINUSE: another program listens."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        # As ssh does: connections of an earlier program that are about to end do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return error
    return None


def listens_on(host: str) -> _Ip | None:
    """Return the address on which a program listens that is given this host, or None if the system knows none.

    The system reads more than ipaddress does: `0` and `0x0` are 0.0.0.0.
    """
    try:
        infos = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return None
    return _plain(ipaddress.ip_address(infos[0][4][0]))


def free_port(address: str) -> int:
    """Return a port of this address on which nothing listens."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def holder(address: str, port: int, proc: Path = Path("/proc")) -> str:
    """Return `name (pid N)` of the program that listens on this port, or '' if this machine does not say it.

    Programs that listen on the same port of another address are not in the way.
    """
    inodes = set(_inodes(address, port, proc))
    if not inodes:
        return ""
    # Other users' processes cannot be read, and some processes end meanwhile.
    for folder in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for descriptor in (folder / "fd").iterdir():
                if str(descriptor.readlink()) in inodes:
                    return f"{(folder / 'comm').read_text().strip()} (pid {folder.name})"
    return ""


def _inodes(address: str, port: int, proc: Path) -> Iterator[str]:
    """Yield the sockets that listen on this port of the address, as the links in /proc name them."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                words = line.split()
                there, _, number = words[1].rpartition(":")
                if words[3] == _LISTENING and int(number, 16) == port and _meet(address, _address(there)):
                    yield f"socket:[{words[9]}]"


def _address(text: str) -> _Ip:
    """Return an address as /proc/net writes it: words of four bytes, each a number of this machine."""
    words = [int(text[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(text), 8)]
    return _plain(ipaddress.ip_address(b"".join(words)))


def _plain(address: _Ip) -> _Ip:
    """Return the IPv4 address that an IPv6 address such as ::ffff:127.0.0.1 means, or the address."""
    return (address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None) or address


def _meet(wanted: str, there: _Ip) -> bool:
    """Return whether a program on one of the addresses is in the way of one on the other."""
    try:
        here = ipaddress.ip_address(wanted)
    except ValueError:
        # A name of this machine.
        return True
    return here == there or here.is_unspecified or there.is_unspecified
