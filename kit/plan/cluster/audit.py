"""Puts the audits together: that of the cluster, and those that kit setup keeps on each host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kit.model.lock import AuditEntry
from kit.model.text import fold
from kit.model.values import replace


def merged(
    cluster: Sequence[AuditEntry], setups: Mapping[str, Sequence[AuditEntry]], count: int
) -> tuple[AuditEntry, ...]:
    """Return the newest `count` changes of both, the oldest first. `setups` has the entries of each host.

    One kit setup writes an entry on each host that it changes. They become one entry, which names the hosts.
    """
    hosts: dict[AuditEntry, dict[str, list[str]]] = {}
    for host, entries in setups.items():
        for entry in entries:
            hosts.setdefault(replace(entry, what=""), {}).setdefault(entry.what, []).append(host)
    folded = [
        replace(entry, what="; ".join(f"{fold(names)}: {what}" for what, names in by_what.items()))
        for entry, by_what in hosts.items()
    ]
    return tuple(sorted([*cluster, *folded], key=lambda entry: entry.time)[-count:])
