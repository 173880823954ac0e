"""Which hosts kit doctor measures at the same time: rounds in which no host is in two measurements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kit.model.doctor import Pairing

# Two hosts, the earlier of the hosts file first.
Pair = tuple[str, str]
Round = tuple[Pair, ...]
# More hosts are measured in a quick pairing, unless the user wants all pairs: 16 hosts take 15 rounds.
MOST_FOR_ALL = 16


def default(count: int) -> Pairing:
    """Return the pairing for this number of hosts."""
    return "all" if count <= MOST_FOR_ALL else "quick"


def rounds(hosts: Sequence[str], pairing: Pairing) -> tuple[Round, ...]:
    """Return the rounds of a pairing."""
    if pairing == "none" or len(hosts) < 2:
        return ()
    return tournament(hosts) if pairing == "all" else quick(hosts)


def tournament(hosts: Sequence[str]) -> tuple[Round, ...]:
    """Return rounds in which each host meets each other one once: N - 1 of them, or N if N is odd.

    The circle method: the first place stays, all others move on by one, and opposite places meet.
    """
    circle: list[str | None] = list(hosts)
    if len(circle) % 2:
        # Who meets nobody pauses.
        circle.append(None)
    half = len(circle) // 2
    order = {name: place for place, name in enumerate(hosts)}
    made = []
    for _ in range(len(circle) - 1):
        opposite = zip(circle[:half], reversed(circle[half:]), strict=True)
        met = [_ordered(one, other, order) for one, other in opposite if one is not None and other is not None]
        made.append(tuple(met))
        circle[1:] = [circle[-1], *circle[1:-1]]
    return tuple(made)


def quick(hosts: Sequence[str]) -> tuple[Round, ...]:
    """Return the rounds of a ring, and one round for each distance 2, 4, 8 … around it.

    Each host is in about 1 + log2 N measurements. No pair is measured twice.
    """
    count = len(hosts)
    seen: set[Pair] = set()
    made: list[Round] = list(_ring(hosts, seen))
    distance = 2
    while distance <= count // 2:
        made.append(tuple(_at_distance(hosts, distance, seen)))
        distance *= 2
    return tuple(one for one in made if one)


def _ring(hosts: Sequence[str], seen: set[Pair]) -> Iterator[Round]:
    """Yield the links of the ring: two rounds, and a third one for the last link of an odd ring."""
    count = len(hosts)
    links = [_pair(hosts, at, (at + 1) % count) for at in range(count if count > 2 else 1)]
    seen.update(links)
    last = [links.pop()] if count % 2 and count > 1 else []
    yield tuple(links[0::2])
    yield tuple(links[1::2])
    yield tuple(last)


def _at_distance(hosts: Sequence[str], distance: int, seen: set[Pair]) -> Iterator[Pair]:
    count = len(hosts)
    busy: set[int] = set()
    for at in range(count):
        other = (at + distance) % count
        pair = _pair(hosts, at, other)
        if at not in busy and other not in busy and pair not in seen:
            busy |= {at, other}
            seen.add(pair)
            yield pair


def disjoint(pairs: Iterable[Pair]) -> tuple[Round, ...]:
    """Arrange any pairs in few rounds in which no host is in two of them."""
    made: list[list[Pair]] = []
    busy: list[set[str]] = []
    for pair in pairs:
        place = next((n for n, names in enumerate(busy) if names.isdisjoint(pair)), None)
        if place is None:
            place = len(made)
            made.append([])
            busy.append(set())
        made[place].append(pair)
        busy[place].update(pair)
    return tuple(tuple(one) for one in made)


def directions(hosts: Sequence[str], pairing: Pairing) -> tuple[Pair, ...]:
    """Return (source, target) of all connections to try: both directions of each pair, and the head with each host.

    mpirun starts daemons from the head, and each of them connects back to it.
    """
    pairs = {frozenset(pair) for one in rounds(hosts, pairing) for pair in one}
    if pairing != "none":
        pairs |= {frozenset((hosts[0], other)) for other in hosts[1:]}
    place = {name: number for number, name in enumerate(hosts)}
    both = [(one, other) for one, other in (tuple(pair) for pair in pairs)]
    both += [(other, one) for one, other in both]
    return tuple(sorted(both, key=lambda pair: (place[pair[0]], place[pair[1]])))


def _pair(hosts: Sequence[str], one: int, other: int) -> Pair:
    return (hosts[min(one, other)], hosts[max(one, other)])


def _ordered(one: str, other: str, order: dict[str, int]) -> Pair:
    return (one, other) if order[one] < order[other] else (other, one)
