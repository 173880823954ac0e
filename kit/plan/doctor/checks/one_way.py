"""A link that is slow in one direction."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from kit.model.doctor import Check, Examined, Sight
from kit.plan.doctor import links
from kit.plan.doctor.checks.path_mtu import stopped
from kit.plan.doctor.checks.slow_link import rate_text, severity_of
from kit.plan.doctor.sights import idle_of


def judge(examined: Examined) -> Iterator[Sight]:
    lost = {frozenset(pair) for pair in stopped(examined)}
    pairs = [pair for pair in examined.pairs if frozenset((pair.source, pair.target)) not in lost]
    rates = {(pair.source, pair.target): pair.rate for pair in pairs if pair.rate is not None}
    blamed, rest = links.one_way(pairs)
    idle = idle_of(examined)
    for one in blamed:
        sends = median([rate for (source, _), rate in rates.items() if source == one.host] or [0.0])
        receives = median([rate for (_, target), rate in rates.items() if target == one.host] or [0.0])
        seen = f"it sends {rate_text(sends)} and receives {rate_text(receives)}"
        yield Sight(hosts=(one.host,), seen=seen, severity=severity_of((one.host,), idle))
    for source, target in rest:
        there, back = rates[source, target], rates[target, source]
        seen = f"{rate_text(there)}, and {rate_text(back)} back"
        yield Sight(hosts=(source, target), seen=seen, severity=severity_of((source, target), idle))


CHECK = Check(
    id="one-way",
    title="A host sends and receives at different rates",
    area="pair",
    severity="slows",
    judge=judge,
    measures=True,
    leads_to="A ring uses one direction of each link, so it goes at the slower one's pace.",
    fix="Look for a limit of what leaves: `tc qdisc show`. Then at the NIC: `ethtool INTERFACE` (duplex), "
    "`ethtool -S INTERFACE` (errors, pauses), its cable and its port on the switch.",
    lab="kit lab fault HOST one-way",
)
