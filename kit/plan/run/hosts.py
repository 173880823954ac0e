"""Reads from a run's record which hosts took part in it, by the names that the hosts file has now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kit.model.host import Inventory
from kit.model.run import RunRecord
from kit.model.text import printable

# A warning names at most this many hosts that are not in the hosts file.
MOST_HOSTS = 5


def run_hosts(run: RunRecord, fields: Mapping[str, Any], inventory: Inventory) -> Sequence[str] | None:
    """Return the names of the hosts that ran a run's command. Return None for an elastic run: its hosts may change.

    `fields` are those of record.json.
    """
    return None if fields.get("elastic") else recorded_hosts(run, fields, inventory)


def recorded_hosts(run: RunRecord, fields: Mapping[str, Any], inventory: Inventory) -> Sequence[str]:
    """Return the names of the hosts in the record of a run. Others may have taken part in it, too.

    A host that has another name in the hosts file by now has that name here, if its address shows it.
    """
    by_address: dict[str, str | None] = {}
    for host in inventory.hosts:
        for address in {host.address, host.internal} - {None}:
            # Behind one address, there may be several hosts.
            by_address[str(address)] = None if address in by_address else host.name
    known = frozenset(inventory.names)
    places: list[tuple[object, object]] = [(place.node, place.address) for place in run.places]
    places += [(helper.get("node"), helper.get("address")) for helper in fields.get("helpers") or ()]
    hosts = []
    for node, at in places:
        if isinstance(node, str):
            now = by_address.get(at) if isinstance(at, str) else None
            hosts.append(node if node in known else now or by_address.get(node) or node)
    return tuple(dict.fromkeys(hosts))


def not_among(hosts: Sequence[str], inventory: Inventory) -> tuple[str, ...]:
    """Return those of a run's hosts that are not in the hosts file (any more), by names that a terminal can show."""
    known = frozenset(inventory.names)
    return tuple(printable(host) for host in hosts if host not in known)
