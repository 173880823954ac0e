"""An interface that receives or sends broken packets, or whose link goes up and down."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Files, Sight
from kit.plan.doctor.kernel import leaf, number
from kit.plan.doctor.network import ROUTES, interface

_STATISTICS = "/sys/class/net/*/statistics/"
_ERRORS = (Files(pattern=f"{_STATISTICS}rx_errors"), Files(pattern=f"{_STATISTICS}tx_errors"))
_PACKETS = (Files(pattern=f"{_STATISTICS}rx_packets"), Files(pattern=f"{_STATISTICS}tx_packets"))
_CHANGES = Files(pattern="/sys/class/net/*/carrier_changes")
# A sound link has none in years. With a loss of 1 in 100,000, TCP at 25 Gbit/s falls below half of its rate. A few may
# come from the start of the link.
_LEAST, _SHARE = 100, 1e-5
# Each start and each change of the MTU counts two.
_MOST_CHANGES = 50


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        name = interface(host, examined)
        if name is None:
            continue
        for errors, packets, what in zip(_ERRORS, _PACKETS, ("received", "sent"), strict=True):
            broken = number(leaf(host.glob(errors.pattern), 3).get(name)) or 0
            total = number(leaf(host.glob(packets.pattern), 3).get(name)) or 0
            if broken >= _LEAST and broken >= _SHARE * total:
                yield Sight(hosts=(host.name,), seen=f"{name}: {broken} errors in {total} packets {what}")
        changes = number(leaf(host.glob(_CHANGES.pattern)).get(name)) or 0
        if changes >= _MOST_CHANGES:
            seen = f"{name}: the link went up or down {changes} times"
            yield Sight(hosts=(host.name,), seen=seen, severity="watch")


CHECK = Check(
    id="nic-errors",
    title="A link loses packets",
    area="network",
    severity="slows",
    judge=judge,
    reads=(ROUTES, *_ERRORS, *_PACKETS, _CHANGES),
    leads_to="TCP sends the lost packets again and slows down. All ranks wait for this host.",
    fix="Look at the counters, `ip -s -s link show dev INTERFACE` and `sudo ethtool -S INTERFACE`. Replace the "
    "cable, the transceiver or the VM.",
    lab="kit lab fault HOST nic-errors",
)
