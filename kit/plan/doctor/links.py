"""Which links are slow, lopsided or late beside the others, and which host causes it. Noise must not look like a fault.

A rate is compared with what the other hosts reach, never with a number. Load only lowers a rate and raises a round
trip, so the best of several measurements counts. A suspect counts as if nothing on its hosts had waited for a core, and
what it is compared with as it was measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median_high, median_low
from typing import Literal

from msgspec import Struct

from kit.model.doctor import PairSeen

# In the order of the hosts file, or (source, target).
Pair = tuple[str, str]
Direction = Literal["in", "out", "both"]
# A host, and a side of it.
_Side = tuple[str, Direction]
# A rate must be this many times lower than that of the others, or a round trip this many times longer and this much.
SLOW, LATE, LATE_S = 2.5, 4.0, 0.001


class Blame(Struct, frozen=True, kw_only=True):
    """A host that most of its bad connections share, and on which side of it they are bad."""

    host: str
    direction: Direction


class _Rate(Struct, frozen=True, kw_only=True):
    """What one direction of a link reached, and what it may reach if its hosts do not wait for a core, in bytes/s."""

    rate: float
    possible: float


_NOTHING = _Rate(rate=0.0, possible=0.0)


def slow(pairs: Sequence[PairSeen]) -> tuple[Pair, ...]:
    """Return the links that are slow in both directions."""
    usual = reference(pairs)
    return tuple(
        link
        for link, (there, back) in _rates(pairs).items()
        if max(there.possible, back.possible) * SLOW < usual and not _slower(there, back, usual)
    )


def lopsided(pairs: Sequence[PairSeen]) -> tuple[Pair, ...]:
    """Return (source, target) of directions that are slow beside their own reverse."""
    usual = reference(pairs)
    return tuple(
        link if there.rate < back.rate else (link[1], link[0])
        for link, (there, back) in _rates(pairs).items()
        if _slower(there, back, usual)
    )


def one_way(pairs: Sequence[PairSeen]) -> tuple[list[Blame], list[Pair]]:
    """Return the hosts that are slow in one direction on most of their links, and the other lopsided pairs."""
    rates = {(pair.source, pair.target): pair.rate for pair in pairs if pair.rate is not None}
    return blame(lopsided(pairs), rates, directed=True)


def _slower(there: _Rate, back: _Rate, usual: float) -> bool:
    """Return whether one direction is slow. The other one is as fast as those of other hosts, or very much faster."""
    least, most = sorted((there, back), key=lambda one: one.rate)
    return least.possible * SLOW < min(most.rate, usual) and (
        most.possible * SLOW >= usual or least.possible * SLOW**2 < most.rate
    )


def late(pairs: Sequence[PairSeen]) -> tuple[Pair, ...]:
    """Return the links whose round trip is long beside that of other hosts."""
    trips = round_trips(pairs)
    if len(trips) < 2:
        return ()
    usual = median_low(min(values) for values in _by_host(trips).values())
    return tuple(link for link, trip in trips.items() if trip > max(usual * LATE, usual + LATE_S))


def suspects(pairs: Sequence[PairSeen]) -> tuple[Pair, ...]:
    """Return the links that a check would report, each once, in the order of the pairs."""
    order = {name: place for place, name in enumerate(dict.fromkeys(pair.source for pair in pairs))}
    odd = {*slow(pairs), *late(pairs)}
    odd |= {(one, other) if order[one] < order[other] else (other, one) for one, other in lopsided(pairs)}
    return tuple(sorted(odd, key=lambda link: (order[link[0]], order[link[1]])))


def reference(pairs: Sequence[PairSeen]) -> float:
    """Return the rate that hosts usually reach, in bytes/s: the median of their best links. 0 if no rate is known.

    A host with a slow NIC has only slow links, and makes one of each other host slow. With three hosts, two of the
    three links are slow, but two of the three hosts have a fast one.
    """
    best = best_rates(pairs)
    return median_high(max(values) for values in _by_host(best).values()) if best else 0.0


def best_rates(pairs: Sequence[PairSeen]) -> Mapping[Pair, float]:
    """Return the rate of each link in bytes/s: the better one of both directions."""
    return {link: max(there.rate, back.rate) for link, (there, back) in _rates(pairs).items()}


def round_trips(pairs: Sequence[PairSeen]) -> Mapping[Pair, float]:
    """Return the round trip of each link in seconds: the shorter one of both directions."""
    trips: dict[Pair, float] = {}
    for link, one, other in _links(pairs):
        known = [pair.rtt_s for pair in (one, other) if pair is not None and pair.rtt_s is not None]
        if known:
            trips[link] = min(known)
    return trips


def blame(bad: Collection[Pair], measured: Collection[Pair], *, directed: bool) -> tuple[list[Blame], list[Pair]]:
    """Return the hosts that most of their connections are bad with, and the bad pairs that no host explains.

    Greedy: the host that explains most bad pairs first. A host needs two connections: with one, either end may be it.
    """
    hosts = dict.fromkeys(name for pair in measured for name in pair)
    if len(hosts) > 2 and {*bad} == {*measured}:
        # It is no host, but the network or the same setting on all of them.
        return [Blame(host=host, direction="in" if directed else "both") for host in hosts], []
    counts = Counter(side for pair in measured for side in _sides(pair, directed=directed))
    groups: dict[_Side, set[Pair]] = {}
    for pair in bad:
        for side in _sides(pair, directed=directed):
            groups.setdefault(side, set()).add(pair)
    # A host is to blame for a side if more than half of its connections there are bad.
    bad_sides = {side: {*group} for side, group in groups.items() if counts[side] > 1 and len(group) * 2 > counts[side]}
    whole = {side for side, group in bad_sides.items() if len(group) == counts[side]}
    blamed: dict[str, Direction] = {}
    left = {*bad}
    while bad_sides:
        # Python's max takes the first of equals, so the order is that of the pairs.
        side = max(bad_sides, key=lambda one: (len(bad_sides[one]), len(groups[one]) / counts[one]))
        explained = bad_sides.pop(side)
        if len(explained) > 1 or (explained and side in whole):
            host, direction = side
            blamed[host] = direction if host not in blamed else "both"
            left -= explained
            for pair in explained:
                for other in _sides(pair, directed=directed):
                    if other in bad_sides:
                        bad_sides[other].discard(pair)
    rest = [pair for pair in bad if pair in left]
    return [Blame(host=host, direction=blamed[host]) for host in hosts if host in blamed], rest


def _sides(pair: Pair, *, directed: bool) -> tuple[_Side, _Side]:
    """Return the two ends of a connection: of whom, and on which side of it."""
    source, target = pair
    return ((source, "out"), (target, "in")) if directed else ((source, "both"), (target, "both"))


def _links(pairs: Sequence[PairSeen]) -> Iterable[tuple[Pair, PairSeen, PairSeen | None]]:
    """Yield each link once, with what was measured in both directions."""
    by_pair = {(pair.source, pair.target): pair for pair in pairs}
    done: set[Pair] = set()
    for (source, target), pair in by_pair.items():
        if (target, source) not in done:
            done.add((source, target))
            yield (source, target), pair, by_pair.get((target, source))


def _rates(pairs: Sequence[PairSeen]) -> dict[Pair, tuple[_Rate, _Rate]]:
    """Return the rates of each link in both directions. A direction that is not known is as fast as the other."""
    rates: dict[Pair, tuple[_Rate, _Rate]] = {}
    for link, one, other in _links(pairs):
        there, back = _rate(one), _rate(other)
        if there or back:
            rates[link] = (there or back or _NOTHING, back or there or _NOTHING)
    return rates


def _rate(pair: PairSeen | None) -> _Rate | None:
    if pair is None or pair.rate is None:
        return None
    return _Rate(rate=pair.rate, possible=max(pair.rate, pair.possible or 0.0))


def _by_host(values: Mapping[Pair, float]) -> dict[str, list[float]]:
    by_host: dict[str, list[float]] = {}
    for link, value in values.items():
        for host in link:
            by_host.setdefault(host, []).append(value)
    return by_host
