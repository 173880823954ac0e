"""Puts the clocks of hosts on one clock: by pings, and by all-reduces, which no rank can end before all have begun."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from kit.model.timeline import ALLREDUCE, Clock, Slice, Trace
from kit.model.values import replace

# The ends of one all-reduce on two ranks differ by less than this share of the time to the one before or after it.
# Otherwise nobody can say that they belong together.
_NEAR = 0.25


def clock_of(pings: Iterable[tuple[int, int, int]]) -> Clock:
    """Return a host's clock from pings: (sent, the host's clock, received), in ns.

    The quickest ping counts. The host read its clock somewhere between its sending and its receipt.
    """
    sent, there, received = min(pings, key=lambda ping: ping[2] - ping[0])
    return Clock(offset_us=(there - (sent + received) / 2) / 1000, error_us=(received - sent) / 2000)


def together(
    before: Mapping[str, Clock], after: Mapping[str, Clock], traces: Mapping[str, Sequence[Trace]]
) -> Mapping[str, Clock]:
    """Return the clocks, corrected by what all-reduces prove, relative to the first host, which is exact by definition.

    Each maps a host to its clock before and after the recording, and to what its ranks wrote. If rank a ended an
    all-reduce at Ea by its clock, and rank b began it at Bb by its own, then a's clock is ahead of b's by at most
    Ea - Bb.
    """
    first, *others = before
    origin = before[first].offset_us
    corrected = {first: Clock(offset_us=origin, error_us=0.0)}
    for host in others:
        # Of one time, so that it does not matter if this machine's clock was set meanwhile.
        begin, end = (_relative(clocks[host], clocks[first]) for clocks in (before, after))
        clock = min(begin, end, key=lambda one: one.error_us)
        if abs(begin.offset_us - end.offset_us) > begin.error_us + end.error_us:
            # One of the two clocks drifts, or was set.
            clock = _either(begin, end)
        else:
            clock = _proved(clock, traces.get(first, ()), traces.get(host, ()))
        corrected[host] = replace(clock, offset_us=origin + clock.offset_us)
    return corrected


def _relative(clock: Clock, first: Clock) -> Clock:
    return Clock(offset_us=clock.offset_us - first.offset_us, error_us=clock.error_us + first.error_us)


def _either(begin: Clock, end: Clock) -> Clock:
    """Return a clock that is not more wrong than it says at the begin, at the end, and between them."""
    least = min(clock.offset_us - clock.error_us for clock in (begin, end))
    most = max(clock.offset_us + clock.error_us for clock in (begin, end))
    return Clock(offset_us=(least + most) / 2, error_us=(most - least) / 2)


def _proved(clock: Clock, first: Sequence[Trace], other: Sequence[Trace]) -> Clock:
    """Return the clock as all-reduces prove it. No ping is wrong by more than its error."""
    least, most = _bounds(first, other, clock)
    least, most = max(least, clock.offset_us - clock.error_us), min(most, clock.offset_us + clock.error_us)
    if least > most:
        # All-reduces of other ranks with the same name: the two ranks are in different process sets of Horovod.
        return clock
    offset = min(max(clock.offset_us, least), most)
    return Clock(offset_us=offset, error_us=min(clock.error_us, max(most - offset, offset - least)))


def apart_us(clocks: Mapping[str, Clock]) -> float:
    """Return how wrong any two of the clocks may be, compared with each other: each is relative to the first host."""
    return sum(sorted(clock.error_us for clock in clocks.values())[-2:])


def _bounds(first: Sequence[Trace], other: Sequence[Trace], clock: Clock) -> tuple[float, float]:
    """Return how far the other host's clock is ahead of the first one's at least and at most, in µs.

    `clock` is about how far. Without all-reduces that belong together, the bounds are infinite.
    """
    least, most = float("-inf"), float("inf")
    for one, two in ((one, two) for one in first[:1] for two in other[:1]):
        shift = two.epoch_us - one.epoch_us
        for mine, yours in _pairs(one, two, replace(clock, offset_us=clock.offset_us - shift)):
            most = min(most, yours.end + shift - mine.start)
            least = max(least, yours.start + shift - mine.end)
    return least, most


def _pairs(one: Trace, two: Trace, clock: Clock) -> Iterable[tuple[Slice, Slice]]:
    """Yield the slices of the same all-reduce on two ranks. `clock` is what the second one's times are ahead by."""
    mine, yours, ahead = _all_reduces(one), _all_reduces(two), clock.offset_us
    for tensor, slices in yours.items():
        known = mine.get(tensor, [])
        ends = [piece.end for piece in known]
        for piece in slices:
            at = bisect_left(ends, piece.end - ahead)
            near = sorted(range(max(0, at - 1), min(len(ends), at + 1)), key=lambda i: abs(ends[i] - piece.end + ahead))
            gap = _gap(ends, near[0]) if near else 0.0
            # Otherwise it may as well be the one before or after it, in each step.
            if clock.error_us < gap / 2 and abs(ends[near[0]] - piece.end + ahead) < _NEAR * gap:
                yield known[near[0]], piece


def _gap(ends: Sequence[float], at: int) -> float:
    """Return the time to the nearest other end, or 0 without one."""
    beside = [abs(ends[i] - ends[at]) for i in (at - 1, at + 1) if 0 <= i < len(ends)]
    return min(beside, default=0.0)


def _all_reduces(trace: Trace) -> Mapping[str, list[Slice]]:
    by_tensor: dict[str, list[Slice]] = defaultdict(list)
    for piece in trace.slices:
        if piece.name == ALLREDUCE and piece.depth == 0:
            by_tensor[piece.tensor].append(piece)
    for slices in by_tensor.values():
        slices.sort(key=lambda piece: piece.end)
    return by_tensor
