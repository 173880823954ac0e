"""A host or a link that is slow beside the others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from statistics import median

from kit.model.doctor import Check, Examined, PairSeen, Severity, Sight
from kit.model.values import replace
from kit.plan.doctor import links
from kit.plan.doctor.checks.path_mtu import stopped
from kit.plan.doctor.sights import idle_of


def judge(examined: Examined) -> Iterator[Sight]:
    # A path over which streams stop has its own finding.
    lost = {frozenset(pair) for pair in stopped(examined)}
    pairs = [pair for pair in examined.pairs if frozenset((pair.source, pair.target)) not in lost]
    # A host that is slow in one direction has its own finding. Its answers wait in the same queue as its data, so on
    # busy hosts a link of it can look slow in both directions, or late.
    other = {one.host for one in links.one_way(pairs)[0]}
    idle = idle_of(examined)
    for sight in (*_slow(pairs, other), *_late(pairs, other)):
        yield replace(sight, severity=severity_of(sight.hosts, idle))


def _slow(pairs: Sequence[PairSeen], other: Collection[str]) -> Iterator[Sight]:
    rates = links.best_rates(pairs)
    usual = rate_text(links.reference(pairs))
    slow = [link for link in links.slow(pairs) if not {*link} & {*other}]
    blamed, rest = links.blame(slow, rates, directed=False)
    for one in blamed:
        own = median(rate for link, rate in rates.items() if one.host in link)
        yield Sight(hosts=(one.host,), seen=f"{rate_text(own)} with other hosts, which reach {usual}")
    for link in rest:
        yield Sight(hosts=link, seen=f"{rate_text(rates[link])} both ways; other hosts reach {usual}")


def _late(pairs: Sequence[PairSeen], other: Collection[str]) -> Iterator[Sight]:
    trips = links.round_trips(pairs)
    # A dict keeps the order, and finds a link at once among very many.
    late = dict.fromkeys(link for link in links.late(pairs) if not {*link} & {*other})
    blamed, rest = links.blame(late, trips, directed=False)
    usual = trip_text(median(trip for link, trip in trips.items() if link not in late)) if late else ""
    for one in blamed:
        own = median(trip for link, trip in trips.items() if one.host in link)
        yield Sight(hosts=(one.host,), seen=f"a round trip to it takes {trip_text(own)}, between others {usual}")
    for link in rest:
        yield Sight(hosts=link, seen=f"a round trip takes {trip_text(trips[link])}, between others {usual}")


def severity_of(hosts: Collection[str], idle: str) -> Severity | None:
    """Return the severity of a slow link. Ranks do not wait for those of a head without ranks."""
    return "watch" if idle in hosts else None


def rate_text(rate: float) -> str:
    """Return a rate of bytes/s as text: 9.4 Gbit/s, 87 Mbit/s."""
    bits = rate * 8
    unit, name = (1e9, "Gbit/s") if bits >= 1e9 else (1e6, "Mbit/s")
    return f"{bits / unit:.2g} {name}" if bits / unit < 9.95 else f"{bits / unit:.0f} {name}"


def trip_text(seconds: float) -> str:
    """Return a round trip as text: 0.12 ms, 14 ms."""
    milliseconds = seconds * 1000
    return f"{milliseconds:.2g} ms" if milliseconds < 9.95 else f"{milliseconds:.0f} ms"


CHECK = Check(
    id="slow-link",
    title="A host's network is slow beside that of the others",
    area="pair",
    severity="slows",
    judge=judge,
    measures=True,
    leads_to="The slowest link paces every step: a ring passes all gradients over it.",
    fix="Look at the NIC: `ethtool INTERFACE`, `ip -s link`, and its queue, `tc qdisc show`. On a cloud, compare the "
    "VM's type and zone with the others, or replace the VM. `kit bench` measures on.",
    lab="kit lab fault HOST slow-link",
)
