"""A bridge of the engine whose network contains other hosts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from kit.model.doctor import Check, Examined, Seen, Sight
from kit.model.text import fold
from kit.plan.doctor.kernel import routes, way
from kit.plan.doctor.network import ROUTES, address

# As the engine names its bridges. br-ex or br-lan are the host's own.
_BRIDGE = re.compile(r"docker[0-9]*|docker_gwbridge|br-[0-9a-f]{12}", re.ASCII)
# How many hosts a finding names.
_NAMED = 4


def judge(examined: Examined) -> Iterator[Sight]:
    addresses = {host.name: own for host in examined.hosts if (own := address(host)) is not None}
    for host in examined.hosts:
        known = routes(host.file(ROUTES.path))
        for route in known:
            if not _BRIDGE.fullmatch(route.interface) or not route.mask or route.gateway:
                continue
            # Its owner gave the host's address to it, so the other hosts are behind it.
            if addresses.get(host.name) in _on(host, route.interface):
                continue
            # A smaller network of a real interface has precedence.
            inside = [
                name
                for name, other in addresses.items()
                if name != host.name and route.covers(other) and way(known, other) == route.interface
            ]
            if inside:
                seen = f"the network of {route.interface} contains {fold(inside, most=_NAMED)}"
                yield Sight(hosts=(host.name,), seen=seen)


def _on(host: Seen, interface: str) -> Collection[int]:
    """Return the addresses of an interface, as far as kit could observe the host."""
    known = host.facts.interfaces if host.facts else ()
    return [int(one.address.ip) for one in known if one.name == interface]


CHECK = Check(
    id="docker-pool",
    title="A network of the engine contains other hosts",
    area="network",
    severity="breaks",
    judge=judge,
    reads=(ROUTES,),
    leads_to="The host looks for these hosts on its own bridge and cannot reach them. Ranks wait for each other "
    "forever.",
    fix='Give the engine other addresses: `"bip"` (for docker0) and `"default-address-pools"` in '
    "`/etc/docker/daemon.json`, then `sudo systemctl restart docker`. Remove other bridges with `docker network rm "
    "NAME`.",
    lab="kit lab fault HOST docker-pool",
    deploy=True,
)
