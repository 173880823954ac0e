"""Two interfaces in one network, where the kernel drops packets that arrive at the other one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Files, Seen, Sight
from kit.plan.doctor.kernel import is_virtual, leaf, number, routes
from kit.plan.doctor.network import ROUTES

_FILTER = Files(pattern="/proc/sys/net/ipv4/conf/*/rp_filter")
_STRICT = 1


def _shared(host: Seen) -> list[tuple[str, ...]]:
    """Return the groups of interfaces that have a route to the same network without a gateway."""
    groups: dict[tuple[int, int], dict[str, None]] = defaultdict(dict)
    for route in routes(host.file(ROUTES.path)):
        if route.mask and not route.gateway and not is_virtual(route.interface):
            groups[route.network, route.mask][route.interface] = None
    return [tuple(group) for group in groups.values() if len(group) > 1]


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        values = leaf(host.glob(_FILTER.pattern))
        for group in _shared(host):
            # The kernel uses the larger of the two.
            modes = [max(number(values.get("all")) or 0, number(values.get(name)) or 0) for name in group]
            if _STRICT in modes:
                seen = f"{' and '.join(group[:4])} are in one network, with rp_filter=1"
                yield Sight(hosts=(host.name,), seen=seen)


CHECK = Check(
    id="rp-filter",
    title="The kernel drops packets of a second interface",
    area="network",
    severity="breaks",
    judge=judge,
    reads=(ROUTES, _FILTER),
    leads_to="The host answers by one interface only, and drops what arrives at the other. NCCL and Open MPI use "
    "both and wait for messages that never arrive.",
    fix="Accept packets at each interface: `kit setup --only sysctl`, or by hand `sudo sysctl -w "
    "net.ipv4.conf.all.rp_filter=2`.",
    lab="kit lab fault HOST rp-filter",
    deploy=True,
)
