"""Two hosts of one network whose interfaces have the same MAC address."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from kit.model.doctor import Check, Examined, Files, Sight
from kit.plan.doctor.kernel import Route, is_virtual, leaf, routes
from kit.plan.doctor.network import ROUTES, address

_MACS = Files(pattern="/sys/class/net/*/address")
_MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}", re.ASCII)
_NOTHING = {"00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff"}
# Every host with a BlueField DPU has the same MAC address at its end of the card's own link.
_TO_CARD = "tmfifo_net"
_LINK_LOCAL, _LINK_LOCAL_MASK = 0xA9FE0000, 0xFFFF0000


def judge(examined: Examined) -> Iterator[Sight]:
    owners: dict[tuple[str, int, int], dict[str, None]] = defaultdict(dict)
    addresses = {host.name: own for host in examined.hosts if (own := address(host)) is not None}
    for host in examined.hosts:
        others = [other for name, other in addresses.items() if name != host.name]
        macs = {name: text.strip()[:32].lower() for name, text in leaf(host.glob(_MACS.pattern)).items()}
        for route in routes(host.file(ROUTES.path)):
            mac = macs.get(route.interface, "")
            direct = route.mask and not route.gateway and not is_virtual(route.interface)
            # The same address in two networks that no switch connects is harmless.
            if direct and _MAC.fullmatch(mac) and mac not in _NOTHING and _connects(route, others):
                owners[mac, route.network, route.mask][host.name] = None
    for (mac, _, _), hosts in owners.items():
        if len(hosts) > 1:
            yield Sight(hosts=tuple(hosts), seen=f"the same MAC address {mac}")


def _connects(route: Route, others: Sequence[int]) -> bool:
    """Return whether a network connects hosts of the cluster, as far as kit can tell, and is not one in each host."""
    inside = route.interface.startswith(_TO_CARD) or route.network & _LINK_LOCAL_MASK == _LINK_LOCAL
    return not inside and any(route.covers(other) for other in others)


CHECK = Check(
    id="mac",
    title="Two hosts have the same MAC address",
    area="network",
    severity="breaks",
    judge=judge,
    reads=(ROUTES, _MACS),
    leads_to="The switch sends packets of both hosts to the one that it saw last. Connections break now and then.",
    fix="Give one of the VMs a new network card, or a new address in the hypervisor. This happens when a VM is cloned.",
    lab="kit lab fault HOST mac",
    deploy=True,
)
