"""A host's own name that is a loopback address."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from kit.model.doctor import Check, Examined, Lookup, Sight


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        loopback = [address for address in host.addresses.get("", ()) if ip_address(address).is_loopback]
        if loopback:
            yield Sight(hosts=(host.name,), seen=f"its own name is {loopback[0]}")


CHECK = Check(
    id="own-name",
    title="The host's own name is a loopback address",
    area="network",
    severity="watch",
    judge=judge,
    reads=(Lookup(),),
    leads_to="Programs that listen at the host's own name listen on that address, where no other host reaches them. "
    "In kit's nodes, the name has the right address.",
    fix="Give the name its address: replace `127.0.1.1` or `127.0.0.1` by the host's address in `/etc/hosts`.",
    lab="kit lab fault HOST own-name",
)
