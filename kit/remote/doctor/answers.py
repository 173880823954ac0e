"""What a probe of kit doctor answers: types and limits. A host that answers something else is an error of that host."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from msgspec import Struct

from kit.model.answer import OddAnswer, decode, within
from kit.model.observed import Interface

# The longest answer is that to `reach` of thousands of connections.
MOST_LINE = 1 << 20
MOST_INTERFACES, MOST_ADDRESSES = 1024, 16
# No clock is further off, no round trip or stream is longer, and no network faster.
MOST_CLOCK_S, MOST_S, MOST_BYTES = 1e10, 1e4, 1e13
LEAST_S = 1e-7
LARGEST = 65535
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_ERROR = re.compile(r"E[A-Z0-9]{1,30}")
# Numbers of errors differ between systems, so the probe sends names.
_FAULTS = {
    "EADDRNOTAVAIL": "the host does not have this address",
    "ECONNREFUSED": "connection refused",
    "ECONNRESET": "connection reset",
    "EHOSTUNREACH": "no route to host",
    "ENETUNREACH": "network is unreachable",
    "EPROTO": "another program answers",
    "ETIMEDOUT": "timed out",
}
_WORD = re.compile(r"[!-~]{1,64}")


class Hello(Struct, frozen=True, kw_only=True):
    """A host's own name, or "" if that is no name, its addresses, and the MTU of each interface."""

    name: str
    interfaces: tuple[Interface, ...]
    mtus: dict[str, int]
    route: str | None


class Listening(Struct, frozen=True, kw_only=True):
    """Where a probe listens: (port, fault) for each range, the port for measurements, and that for packets."""

    ports: tuple[tuple[int, str], ...]
    control: int
    packets: int


class Reached(Struct, frozen=True, kw_only=True):
    """How each connection failed, or "", and the addresses of each name, or None if there was no answer in time."""

    faults: tuple[str, ...]
    names: tuple[tuple[str, ...] | None, ...]


class Packets(Struct, frozen=True, kw_only=True):
    """The MTU of the host's interface, and the largest packet that arrived at each target, or None."""

    local: int
    largest: tuple[int | None, ...]


class Flow(Struct, frozen=True, kw_only=True):
    """A stream: its bytes/s, and the part of its time in which an end waited for a core."""

    rate: float
    waited: float

    @property
    def busy(self) -> bool:
        """Whether an end waited for so long that short times mean little."""
        return self.waited > BUSY

    @property
    def starved(self) -> bool:
        """Whether an end waited for so long that the rate means nothing."""
        return self.waited > STARVED

    @property
    def possible(self) -> float:
        """The rate that the hosts may reach if they need not wait for a core."""
        return self.rate / (1 - min(self.waited, STARVED))


class Measured(Struct, frozen=True, kw_only=True):
    """A measurement of two hosts: to the target, and from it. `clock_s` is the target's clock minus the source's."""

    rtt_s: float
    clock_s: float
    there: Flow
    back: Flow


# The part of a stream in which an end waited for a core.
BUSY, STARVED = 0.15, 0.7


class _Failed(Struct, frozen=True):
    serial: int
    failed: str | None = None


class _Hello(Struct, frozen=True):
    name: str
    interfaces: list[tuple[str, str, int]]
    route: str | None


class _Listening(Struct, frozen=True):
    ports: list[tuple[int, str]]
    control: int
    packets: int


class _Reached(Struct, frozen=True):
    faults: list[str]
    names: list[list[str] | None]


class _Packets(Struct, frozen=True):
    local: int
    largest: list[int | None]


class _Measured(Struct, frozen=True):
    rtt: float = 0.0
    clock: float = 0.0
    there: tuple[float, float, float] = (0, 0, 0)
    back: tuple[float, float, float] = (0, 0, 0)
    fault: str = ""


def serial_of(line: bytes) -> tuple[int, str | None]:
    """Return the number of the order that a line answers, and why the probe could not do it, or None."""
    head: _Failed = decode(line, _Failed, most=MOST_LINE)
    return head.serial, head.failed


def hello(line: bytes) -> Hello:
    answer: _Hello = decode(line, _Hello, most=MOST_LINE)
    _count(answer.interfaces, 0, MOST_INTERFACES, "interfaces")
    interfaces, mtus = [], {}
    for name, address, mtu in answer.interfaces:
        if not _WORD.fullmatch(name):
            raise OddAnswer("this is not the name of an interface", name)
        try:
            interfaces.append(Interface(name=name, address=ipaddress.IPv4Interface(address)))
        except ValueError:
            raise OddAnswer("this is not an address", address) from None
        # Some interfaces carry longer packets than IPv4 knows.
        within(mtu, 0, 1 << 32, "an MTU")
        mtus[name] = min(mtu, LARGEST)
    # A name that cannot be resolved is not sent to other hosts.
    name = answer.name if _HOST_NAME.fullmatch(answer.name) else ""
    return Hello(name=name, interfaces=tuple(interfaces), mtus=mtus, route=answer.route)


def listening(line: bytes, spans: int) -> Listening:
    answer: _Listening = decode(line, _Listening, most=MOST_LINE)
    _count(answer.ports, spans, spans, "ports")
    for port in (*(port for port, _ in answer.ports), answer.control, answer.packets):
        within(port, 1, 65535, "a port")
    ports = tuple((port, fault_of(fault)) for port, fault in answer.ports)
    return Listening(ports=ports, control=answer.control, packets=answer.packets)


def reached(line: bytes, targets: int, names: int) -> Reached:
    answer: _Reached = decode(line, _Reached, most=MOST_LINE)
    _count(answer.faults, targets, targets, "connections")
    _count(answer.names, names, names, "names")
    resolved = []
    for addresses in answer.names:
        _count(addresses or (), 0, MOST_ADDRESSES, "addresses")
        resolved.append(None if addresses is None else tuple(_address(address) for address in addresses))
    return Reached(faults=tuple(fault_of(fault) for fault in answer.faults), names=tuple(resolved))


def packets(line: bytes, targets: int) -> Packets:
    answer: _Packets = decode(line, _Packets, most=MOST_LINE)
    _count(answer.largest, targets, targets, "packets")
    for size in answer.largest:
        within(size or 0, 0, LARGEST, "the size of a packet")
    within(answer.local, 0, LARGEST, "an MTU")
    return Packets(local=answer.local, largest=tuple(answer.largest))


def measured(line: bytes) -> Measured | str:
    """Return a measurement, or how it failed."""
    answer: _Measured = decode(line, _Measured, most=MOST_LINE)
    if answer.fault:
        return fault_of(answer.fault)
    within(answer.rtt, LEAST_S, MOST_S, "a round trip")
    within(answer.clock, -MOST_CLOCK_S, MOST_CLOCK_S, "a clock")
    return Measured(rtt_s=answer.rtt, clock_s=answer.clock, there=_flow(answer.there), back=_flow(answer.back))


def fault_of(word: str) -> str:
    """Return the text for the name of a system's error, and "" for ""."""
    if not word:
        return ""
    if not _ERROR.fullmatch(word):
        raise OddAnswer("this is not the name of an error", word)
    return _FAULTS.get(word, word)


def _flow(totals: tuple[float, float, float]) -> Flow:
    count, seconds, waited = totals
    within(count, 0, MOST_BYTES, "a number of bytes")
    within(seconds, LEAST_S, MOST_S, "a time")
    within(waited, 0, MOST_S, "a time")
    return Flow(rate=count / seconds, waited=waited / seconds)


def _address(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise OddAnswer("this is not an address", text) from None


def _count(values: Sequence[object], least: int, most: int, what: str) -> None:
    if not least <= len(values) <= most:
        raise OddAnswer(f"it has {len(values)} {what}, not {least if least == most else f'{least} to {most}'}")
