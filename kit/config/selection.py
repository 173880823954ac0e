"""Selects hosts of the hosts file by a list such as gpu[01-02],gpu4 (-H)."""

from __future__ import annotations

import ipaddress
from contextlib import suppress

from kit.config.hostrange import RangeError, expand
from kit.config.hosts import MAX_HOSTS
from kit.config.words import listed, plain, shown
from kit.config.words import near as near_names
from kit.errors import InputError
from kit.model.host import Host, Inventory


def select_hosts(inventory: Inventory, wanted: str) -> Inventory:
    """Return the hosts that `wanted` names, once each, in the order of the hosts file.

    A host has its name and its address. `head` is the first host, unless another host has that name.

    Raises InputError for an unknown host, with similar names, and for a list that cannot be read.
    """
    by_word = {host.address.lower(): host for host in reversed(inventory.hosts)}
    by_word |= {host.name.lower(): host for host in inventory.hosts}
    by_word.setdefault("head", inventory.head)
    chosen: set[str] = set()
    for word in _split(wanted):
        try:
            names = expand(word, most=MAX_HOSTS)
        except RangeError as error:
            raise InputError(error.message, hint=error.hint) from error
        for name in names:
            host = by_word.get(_canonical(name))
            if host is None:
                raise _missing(name, inventory, by_word)
            chosen.add(host.name)
    if not chosen:
        raise InputError("the list names no host", hint=f"name one of the hosts file, such as {inventory.head.name}")
    return Inventory(hosts=tuple(host for host in inventory.hosts if host.name in chosen), source=inventory.source)


def select_host(inventory: Inventory, wanted: str) -> Host:
    """Return the only host that `wanted` names. Raise InputError if it names several."""
    hosts = select_hosts(inventory, wanted).hosts
    if len(hosts) != 1:
        raise InputError(f"'{wanted}' names {len(hosts)} hosts", hint="name one host")
    return hosts[0]


def _split(wanted: str) -> list[str]:
    """Return the words between commas and spaces. A comma in brackets belongs to its range."""
    words, word, inside = [], "", False
    for char in wanted:
        inside = (inside or char == "[") and char != "]"
        if not inside and (char == "," or char.isspace()):
            words.append(word)
            word = ""
        else:
            word += char
    return [name for name in (*words, word) if name]


def _canonical(name: str) -> str:
    """Return a name in lower case, or an IPv6 address in its shortest form, which is the one of the inventory."""
    if ":" in name:
        with suppress(ValueError):
            return str(ipaddress.IPv6Address(name))
    return name.lower()


def _missing(name: str, inventory: Inventory, by_word: dict[str, Host]) -> InputError:
    message = f"{shown(name)} is not in {plain(inventory.source)}"
    host, colon, number = name.rpartition(":")
    if colon and number.isdigit() and host.lower() in by_word:
        return InputError(
            f"{shown(name)}: a list of hosts takes no number after a host",
            hint=f"write {plain(host)} here, and slots={plain(number)} on its line in {plain(inventory.source)}",
        )
    similar = near_names(name, inventory.names)
    if similar:
        return InputError(message, hint=f"did you mean {listed(similar)}?")
    some = ", ".join(inventory.names[:5])
    more = len(inventory.hosts) - 5
    return InputError(message, hint=f"hosts there: {some}" + (f" and {more} more" if more > 0 else ""))
