"""Two hosts with the same machine ID."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from kit.model.doctor import Check, Examined, File, Sight

_ID = File(path="/etc/machine-id")
_FORM = re.compile(r"[0-9a-f]{32}", re.ASCII)


def judge(examined: Examined) -> Iterator[Sight]:
    owners: dict[str, list[str]] = defaultdict(list)
    for host in examined.hosts:
        # An image that was prepared for cloning has an empty file, or the word uninitialized.
        own = (host.file(_ID.path) or "")[:64].strip()
        if _FORM.fullmatch(own):
            owners[own].append(host.name)
    for own, hosts in owners.items():
        if len(hosts) > 1:
            yield Sight(hosts=tuple(hosts), seen=f"the same machine ID {own[:8]}…")


CHECK = Check(
    id="machine-id",
    title="Hosts have the same machine ID",
    area="host",
    severity="watch",
    judge=judge,
    reads=(_ID,),
    leads_to="A DHCP server may give both hosts the same address when their leases end. Logs of both look like those "
    "of one machine. This happens when a VM is cloned.",
    # Also D-Bus's copy, which is a separate file on Debian: systemd would take the same ID from there.
    fix="Give each clone a new one and restart it: `sudo rm -f /etc/machine-id /var/lib/dbus/machine-id && sudo "
    "systemd-machine-id-setup`.",
    lab="kit lab fault HOST machine-id",
)
