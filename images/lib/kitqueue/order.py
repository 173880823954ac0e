"""Decides which waiting run starts now, and on which slots. Pure functions on frozen values.

The order is by priority, and first in, first out within one priority. If the first in line does not fit, it gets a
reservation: slots that will be free when the runs that hold them end, each by its time limit. A run behind it goes
ahead only if it takes none of these slots, or if its own limit ends before they are needed. So it never delays the
first in line: with or without it, that run starts when the holders of its reservation have ended, or earlier.

A reservation stays unchanged until its run starts, even if another choice looks better later. Otherwise a run could go
ahead on slots that were reserved before. It is replaced only if one of its hosts is out, or if another run comes
first.
"""

import heapq
from typing import Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

# Host -> its slots, by number.
Slots = Mapping[str, FrozenSet[int]]
# What is chosen: host -> slots, in the order of the run's hosts.
Chosen = Tuple[Tuple[str, Tuple[int, ...]], ...]

OK, FAILED, ANY = "ok", "failed", "any"


class Need(NamedTuple):
    """A shape: how many slots on each of how many hosts, and the hosts that may be taken, in their order."""

    counts: Tuple[int, ...]
    hosts: Tuple[str, ...]


class Waiting(NamedTuple):
    """A run in line. `limit` is its time limit in seconds, or None. `place` is its place in line by arrival."""

    id: str
    place: int
    need: Need
    priority: int = 0
    limit: Optional[float] = None
    # Groups of runs that must have ended before, and how: ok (each ended well), failed (one did not) or any.
    after: Tuple[Tuple[Tuple[str, ...], str], ...] = ()
    held: bool = False


class Holder(NamedTuple):
    """A run that lives. `ends` is when its time limit ends it, in the seconds of `now`, or None."""

    id: str
    slots: Slots
    ends: Optional[float] = None


class Reservation(NamedTuple):
    """Slots that no run may take past `at`, when `id` can start on them at the latest; None if nobody knows when."""

    id: str
    slots: Slots
    at: Optional[float]
    # The runs that hold some of them.
    holders: Tuple[str, ...]


class Start(NamedTuple):
    id: str
    chosen: Chosen


class Reason(NamedTuple):
    """Why a run waits: `kind` is held, after, never, gone, hosts, slots or turn. `ids` are the runs that it waits for.

    gone: it is too large for the hosts of the cluster. hosts: it is too large for those that can be used now.
    """

    kind: str
    ids: Tuple[str, ...] = ()
    # When it can start at the latest, if that is known.
    at: Optional[float] = None


class Decision(NamedTuple):
    starts: Tuple[Start, ...]
    reservation: Optional[Reservation]
    reasons: Mapping[str, Reason]


def by_turn(line: Iterable[Waiting]) -> List[Waiting]:
    """Return the line in the order of turns."""
    return sorted(line, key=lambda run: (-run.priority, run.place))


def fit(need: Need, free: Slots) -> Optional[Chosen]:
    """Return slots for the shape, or None. A host that just suffices comes first, so that whole hosts stay free."""
    there = [(len(free[host]), place, host) for place, host in enumerate(need.hosts) if host in free]
    there.sort(key=lambda one: one[0])
    # The hosts that suffice for a larger count suffice for a smaller one, too: no choice here loses a later one.
    good: List[Tuple[int, int, str]] = []
    taken: Dict[str, Tuple[int, ...]] = {}
    for count in sorted(need.counts, reverse=True):
        while there and there[-1][0] >= count:
            heapq.heappush(good, there.pop())
        if not good:
            return None
        host = heapq.heappop(good)[2]
        taken[host] = tuple(sorted(free[host])[:count])
    return tuple((host, taken[host]) for host in need.hosts if host in taken)


def decide(
    now: float,
    hosts: Slots,
    living: Sequence[Holder],
    line: Iterable[Waiting],
    *,
    ended: Mapping[str, bool],
    out: Optional[Slots] = None,
    reserved: Optional[Reservation] = None,
) -> Decision:
    """Return who starts now, the reservation of the first in line, and why each of the others waits.

    `hosts` are all slots of the hosts that may be used, and `out` those of the cluster's other hosts: they are cordoned
    or do not answer. `ended` says of each run that has ended whether it ended well. `reserved` is the last decision's
    reservation.
    """
    everywhere = dict(out or {}, **hosts)
    holders = list(living)
    free = free_slots(hosts, holders)
    waiting = by_turn(line)
    in_line = {run.id for run in waiting} | {holder.id for holder in holders}
    starts: List[Start] = []
    reasons: Dict[str, Reason] = {}
    first: Optional[Reservation] = None
    # The runs of an array have the same shape, so a line has few. What did not fit once does not fit later, either:
    # others only take more.
    shapes: Dict[Need, int] = {}
    too_large: Dict[int, Optional[Reason]] = {}
    stuck: Set[Tuple[int, bool]] = set()
    for run in waiting:
        reason = _not_yet(run, in_line, ended)
        shape = -1
        if reason is None:
            # The number of the shape: a need names hundreds of hosts, and takes long to compare.
            shape = shapes.setdefault(run.need, len(shapes))
            if shape not in too_large:
                too_large[shape] = _too_large(run, hosts, everywhere)
            reason = too_large[shape]
        if reason is not None:
            reasons[run.id] = reason
            continue
        tried = (shape, first is not None and in_time(run.limit, first, now))
        chosen = None
        if tried not in stuck:
            chosen = fit(run.need, free) if first is None else ahead(run, free, first, now)
        if chosen is not None:
            taken = {host: frozenset(slots) for host, slots in chosen}
            starts.append(Start(run.id, chosen))
            holders.append(Holder(run.id, taken, None if run.limit is None else now + run.limit))
            free = without(free, taken)
            continue
        stuck.add(tried)
        if first is None:
            first = _kept(run, hosts, holders, reserved) or reserve(run, hosts, holders)
            reasons[run.id] = Reason("slots", first.holders, first.at)
        else:
            reasons[run.id] = Reason("turn", (first.id,))
    return Decision(tuple(starts), first, reasons)


def free_slots(hosts: Slots, holders: Iterable[Holder]) -> Slots:
    taken: Dict[str, FrozenSet[int]] = {}
    for holder in holders:
        for host, slots in holder.slots.items():
            taken[host] = taken.get(host, frozenset()) | slots
    return without(hosts, taken)


def without(free: Slots, taken: Slots) -> Slots:
    return {host: slots - taken.get(host, frozenset()) for host, slots in free.items()}


def ahead(run: Waiting, free: Slots, first: Reservation, now: float) -> Optional[Chosen]:
    """Return slots on which the run delays nobody before it, or None."""
    chosen = fit(run.need, without(free, first.slots))
    if chosen is None and in_time(run.limit, first, now):
        chosen = fit(run.need, free)
    return chosen


def in_time(limit: Optional[float], first: Reservation, now: float) -> bool:
    """Return whether a run with this limit that starts now ends before the reserved slots are needed."""
    return limit is not None and first.at is not None and now + limit <= first.at


def delays(slots: Slots, limit: Optional[float], first: Reservation, now: float) -> bool:
    """Return whether a run that takes these slots now may delay the first in line."""
    return overlap(slots, first.slots) and not in_time(limit, first, now)


def reserve(run: Waiting, hosts: Slots, holders: Sequence[Holder]) -> Reservation:
    """Reserve slots for a run that does not fit now, and that fits on the empty hosts.

    The holders end in the order of their limits. Nobody knows when those without a limit end, so they count last.
    """
    living = sorted(holders, key=lambda holder: (holder.ends is None, holder.ends or 0.0))
    # How many of them must end: what fits goes on fitting when more of them have ended.
    least, enough = 1, len(living)
    while least < enough:
        middle = (least + enough) // 2
        if fit(run.need, free_slots(hosts, living[middle:])) is None:
            least = middle + 1
        else:
            enough = middle
    chosen = fit(run.need, free_slots(hosts, living[least:])) or ()
    slots = {host: frozenset(numbers) for host, numbers in chosen}
    return _reservation(run.id, slots, holders)


def _reservation(run_id: str, slots: Slots, holders: Iterable[Holder]) -> Reservation:
    blocking = [holder for holder in holders if overlap(holder.slots, slots)]
    ends = [holder.ends for holder in blocking]
    known = [end for end in ends if end is not None]
    at = max(known) if known and len(known) == len(ends) else None
    return Reservation(run_id, slots, at, tuple(holder.id for holder in blocking))


def _kept(
    run: Waiting, hosts: Slots, holders: Iterable[Holder], reserved: Optional[Reservation]
) -> Optional[Reservation]:
    """Return the last decision's reservation, with those of its holders that still live, if it is still good."""
    if reserved is None or reserved.id != run.id:
        return None
    if any(not numbers <= hosts.get(host, frozenset()) for host, numbers in reserved.slots.items()):
        return None
    return _reservation(run.id, reserved.slots, holders)


def overlap(one: Slots, other: Slots) -> bool:
    return any(not numbers.isdisjoint(other.get(host, frozenset())) for host, numbers in one.items())


def _not_yet(run: Waiting, in_line: Set[str], ended: Mapping[str, bool]) -> Optional[Reason]:
    """Return why the run may not start, whatever is free; None if it may."""
    if run.held:
        return Reason("held")
    never: List[str] = []
    pending: List[str] = []
    for ids, how in run.after:
        never += _against(ids, how, in_line, ended)
        pending += [other for other in ids if other not in ended]
    if never:
        return Reason("never", tuple(never))
    return Reason("after", tuple(pending)) if pending else None


def _against(ids: Sequence[str], how: str, in_line: Set[str], ended: Mapping[str, bool]) -> List[str]:
    """Return the runs because of which it will never be true that all of `ids` have ended, in this way."""
    # A run that nobody knows any more counts as one that has not ended: nobody knows how it did.
    gone = [other for other in ids if other not in ended and other not in in_line]
    if how == OK:
        return gone + [other for other in ids if ended.get(other) is False]
    if how == FAILED and all(ended.get(other) for other in ids):
        return list(ids)
    return gone


def _too_large(run: Waiting, hosts: Slots, everywhere: Slots) -> Optional[Reason]:
    """Return why the run does not even fit on the empty hosts that are left, for example because some are cordoned."""
    if fit(run.need, hosts) is not None:
        return None
    return Reason("gone" if fit(run.need, everywhere) is None else "hosts")
