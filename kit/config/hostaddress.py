"""Checks the addresses of a hosts file: IPv4, IPv6 and DNS names."""

from __future__ import annotations

import ipaddress
import re

from kit.config.words import plain, shown

_LABEL = r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"
_DNS_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}", re.ASCII)
# What people write instead of 10.0.0.[1-4], and would be a DNS name otherwise.
_BARE_RANGE = re.compile(r"((?:[0-9]{1,3}\.){3})([0-9]{1,3})-(?:\1)?([0-9]{1,3})", re.ASCII)
# An IPv6 address as URLs have it. Two colons, because [01:03] is a range of Ansible.
_BRACKETED = re.compile(r"\[([0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*)\](?::([0-9]{1,5}))?", re.ASCII)
# First numbers of addresses.
_MULTICAST = range(224, 240)
_BROADCAST = "255.255.255.255"
_NUMERIC = re.compile(r"[0-9.]+", re.ASCII)


class LineError(ValueError):
    """A line of the hosts file that cannot be read: the problem, and what to write."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def checked_internal(internal: str, address: str) -> str:
    """Return the address of internal= of the host with this address. Raises LineError."""
    write = "write the VM's address in the cluster's network, such as internal=10.0.0.11"
    if not _IPV4.fullmatch(internal):
        raise LineError(f"internal={plain(internal)} is not an IPv4 address", write)
    if _is_loopback(internal) and not _is_loopback(address):
        raise LineError(f"internal={internal} is a loopback address, which leads each VM to itself", write)
    first = int(internal.partition(".")[0])
    # 240 and above are networks of some clouds.
    if not first or first in _MULTICAST or internal == _BROADCAST:
        raise LineError(f"internal={internal} is not the address of one VM", write)
    return internal


def _is_loopback(address: str) -> bool:
    """Return whether this is an address of the machine itself, such as that of a host that is this machine."""
    return address.lower() == "localhost" or (bool(_IPV4.fullmatch(address)) and address.startswith("127."))


def is_ip(text: str) -> bool:
    """Return whether this is an IPv4 or IPv6 address, and no name."""
    return bool(_IPV4.fullmatch(text)) or ":" in text


def refuse_brackets(place: str, *, before: str) -> None:
    """Raise LineError for [2001:db8::1] and [2001:db8::1]:22. `before` is the login with its @, or ''."""
    match = _BRACKETED.fullmatch(place)
    if match:
        raise LineError(
            f"{shown(place)} is in brackets, which begin a range here",
            f"write: {plain(before)}{match[1]}" + (f" port={match[2]}" if match[2] else ""),
        )


def checked_address(text: str, *, before: str = "") -> str:
    """Return the address, an IPv6 address in its shortest form. Raises LineError.

    `before` is the login with its @, or '', for the hints.
    """
    if _IPV4.fullmatch(text):
        return text
    if _NUMERIC.fullmatch(text):
        raise LineError(
            f"{shown(text)} is not an IPv4 address", "write four numbers from 0 to 255 without leading zeros: 10.0.0.11"
        )
    span = _BARE_RANGE.fullmatch(text)
    if span:
        raise LineError(
            f"{shown(text)} looks like a range, which has brackets",
            f"write: {plain(before)}{span[1]}[{span[2]}-{span[3]}]",
        )
    if len(text) <= 253 and _DNS_NAME.fullmatch(text):
        return text
    if ":" in text:
        return _address_with_colon(text, before)
    raise LineError(f"{shown(text)} is not an address", _address_hint(text))


def _address_with_colon(text: str, before: str) -> str:
    host, _, number = text.rpartition(":")
    login = plain(before + host)
    if ":" not in host and number.isdigit() and number.isascii():
        raise LineError(
            f"{shown(text)}: a hosts file has no HOST:NUMBER",
            f"write '{login} slots={plain(number)}' for slots, or '{login} port={plain(number)}' for the port of ssh",
        )
    try:
        if "%" in text:
            raise ValueError(text)
        return str(ipaddress.IPv6Address(text))
    except ValueError:
        raise LineError(
            f"{shown(text)} is not an address", "write an IP address or a name: 10.0.0.11, 2001:db8::11, gpu1"
        ) from None


def _address_hint(text: str) -> str:
    if "," in text:
        return "write one VM on each line, or a range: gpu[1,3,5-7]"
    if "/" in text:
        return "write only the VM's address, without a network size or a path: 10.0.0.11"
    if "{" in text:
        return "write a range in square brackets: gpu[1-4]"
    strange = next((c for c in text if not c.isascii() or not c.isprintable()), None)
    if strange is not None:
        return f"it contains the character U+{ord(strange):04X}; type the address again"
    return "write an IP address or a name: 10.0.0.11, gpu1, gpu1.example.com"
