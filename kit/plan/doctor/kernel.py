"""Parses texts of /proc and /sys. They come from a VM, so text that does not fit is a missing value, never an error."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from kit.plan.cluster.network import VIRTUAL_PREFIXES

_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", re.ASCII)
# More than any kernel has.
_MOST_CPUS = 1 << 16
_MOST_ROUTES = 4096
_HEX = re.compile(r"[0-9A-Fa-f]{8}", re.ASCII)
# Flags of a route: usable, and through a gateway.
_UP, _GATEWAY = 0x1, 0x2


def number(text: str | None) -> int | None:
    """Return a file's only number, or None."""
    word = (text or "")[:64].strip()
    return int(word) if _NUMBER.fullmatch(word) else None


def numbers(text: str | None) -> tuple[int, ...]:
    """Return the numbers of a file with several in one line. Empty if one of the words is not a number."""
    words = (text or "")[:1024].split()
    return tuple(int(word) for word in words) if all(_NUMBER.fullmatch(word) for word in words) else ()


def chosen(text: str | None) -> str:
    """Return the word in brackets of a file such as `always [madvise] never`, or ''."""
    match = re.search(r"\[([a-z0-9+_-]{1,40})\]", (text or "")[:1024])
    return match[1] if match else ""


def word(text: str | None) -> str:
    """Return a file's only word if a terminal can show it, otherwise ''."""
    line = (text or "")[:200].strip()
    return line if line.isprintable() and len(line) <= 100 and " " not in line else ""


def shown(text: str, most: int = 60) -> str:
    """Return the beginning of a text, with everything escaped that is no printable character."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text[:most])


def cpus(text: str | None) -> int | None:
    """Return how many CPUs a list such as `0-3,8-11` has, or None."""
    total = 0
    for part in (text or "")[:4096].strip().split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            return None
        count = int(match[2] or match[1]) - int(match[1]) + 1
        if not 1 <= count <= _MOST_CPUS:
            return None
        total += count
    return total


def memory(text: str | None) -> Mapping[str, int]:
    """Return the sizes of /proc/meminfo in KiB, such as MemTotal."""
    rows = re.findall(r"^([A-Za-z_()0-9]{1,40}):\s{1,40}([0-9]{1,15})(?: kB)?$", (text or "")[:65536], re.MULTILINE)
    return {name: int(size) for name, size in rows}


def leaf(paths: Mapping[str, str], above: int = 2) -> Mapping[str, str]:
    """Return the texts of `Files` by one folder of their paths: `above` 2 is eth0 for /sys/class/net/eth0/mtu."""
    return {parts[-above]: text for path, text in paths.items() if len(parts := path.split("/")) > above}


class Route(NamedTuple):
    """A route of IPv4. `network` and `mask` are numbers; the default route has 0 for both."""

    interface: str
    network: int
    mask: int
    gateway: bool

    def covers(self, address: int) -> bool:
        return address & self.mask == self.network


@lru_cache(maxsize=1024)
def routes(text: str | None) -> tuple[Route, ...]:
    """Return the usable routes in /proc/net/route."""
    rows = []
    for line in (text or "").splitlines()[1 : _MOST_ROUTES + 1]:
        words = line.split()
        if len(words) < 8 or not all(_HEX.fullmatch(words[at]) for at in (1, 7)):
            continue
        flags = int(words[3], 16) if re.fullmatch(r"[0-9A-Fa-f]{1,8}", words[3]) else 0
        if flags & _UP and len(words[0]) <= 32 and words[0].isprintable():
            rows.append(Route(words[0], _swapped(words[1]), _swapped(words[7]), bool(flags & _GATEWAY)))
    return tuple(rows)


def _swapped(word: str) -> int:
    """Return an address of /proc/net/route. Its bytes are in the order of the processor: little-endian."""
    return int.from_bytes(int(word, 16).to_bytes(4, "little"), "big")


def way(known: Sequence[Route], address: int) -> str | None:
    """Return the interface by which packets to an address leave, or None."""
    best = max((route for route in known if route.covers(address)), key=lambda route: route.mask, default=None)
    return best.interface if best else None


def is_virtual(interface: str) -> bool:
    """Return whether this is the loopback, or a bridge or link of an engine."""
    return interface == "lo" or interface.startswith(VIRTUAL_PREFIXES)
