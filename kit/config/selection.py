"""-H and its kin: a few of the inventory's hosts, named as gpu[01-02],gpu4."""

from __future__ import annotations

from kit.config.hostrange import RangeError, expand
from kit.config.hosts import MAX_HOSTS
from kit.config.words import listed, plain, shown
from kit.config.words import near as near_names
from kit.errors import InputError
from kit.model.host import Host, Inventory


def select_hosts(inventory: Inventory, wanted: str) -> Inventory:
    """The hosts that `wanted` names, by name or address, in the order of the hosts file, each once.

    Raises InputError, with near names, for a host that is not there, and for a list that cannot be read.
    """
    by_word = {host.address.lower(): host for host in reversed(inventory.hosts)}
    by_word |= {host.name.lower(): host for host in inventory.hosts}
    chosen: set[str] = set()
    for word in _split(wanted):
        try:
            names = expand(word, most=MAX_HOSTS)
        except RangeError as error:
            raise InputError(error.message, hint=error.hint) from error
        for name in names:
            host = by_word.get(name.lower())
            if host is None:
                raise _missing(name, inventory, by_word)
            chosen.add(host.name)
    if not chosen:
        raise InputError("no host is named", hint=f"write one of the hosts file, such as {inventory.head.name}")
    return Inventory(hosts=tuple(host for host in inventory.hosts if host.name in chosen), source=inventory.source)


def _split(wanted: str) -> list[str]:
    """The words between commas and blanks; a comma in brackets belongs to its range."""
    words, word, inside = [], "", False
    for char in wanted:
        inside = (inside or char == "[") and char != "]"
        if not inside and (char == "," or char.isspace()):
            words.append(word)
            word = ""
        else:
            word += char
    return [found for found in (*words, word) if found]


def _missing(name: str, inventory: Inventory, by_word: dict[str, Host]) -> InputError:
    message = f"{shown(name)} is not in {plain(inventory.source)}"
    host, colon, number = name.rpartition(":")
    if colon and number.isdigit() and host.lower() in by_word:
        return InputError(
            f"{shown(name)}: a host is chosen with no number behind it",
            hint=f"write {plain(host)} here, and slots={plain(number)} behind it in {plain(inventory.source)}",
        )
    similar = near_names(name, inventory.names)
    if similar:
        return InputError(message, hint=f"did you mean {listed(similar)}?")
    some = ", ".join(inventory.names[:5])
    more = len(inventory.hosts) - 5
    return InputError(message, hint=f"it names {some}" + (f" and {more} more" if more > 0 else ""))
