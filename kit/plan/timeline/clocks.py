"""Puts the clocks of hosts on one clock: by pings, and by all-reduces, which no rank can end before all have begun."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from kit.model.timeline import ALLREDUCE, Clock, Slice, Trace

# The ends of one all-reduce on two ranks differ by less than this share of the time to the one before or after it.
# Otherwise nobody can say that they belong together.
_NEAR = 0.25


def clock_of(pings: Iterable[tuple[int, int, int]]) -> Clock:
    """Return a host's clock from pings: (sent, the host's clock, received), in ns.

    The quickest ping counts. The host read its clock somewhere between its sending and its receipt.
    """
    sent, there, received = min(pings, key=lambda ping: ping[2] - ping[0])
    return Clock(offset_us=(there - (sent + received) / 2) / 1000, error_us=(received - sent) / 2000)


def together(clocks: Mapping[str, Clock], traces: Mapping[str, Sequence[Trace]]) -> Mapping[str, Clock]:
    """Return the clocks, corrected by what all-reduces prove, relative to the first host, which is exact by definition.

    Each maps a host to its clock, and to what its ranks wrote. If rank a ended an all-reduce at Ea by its clock, and
    rank b began it at Bb by its own, then a's clock is ahead of b's by at most Ea - Bb.
    """
    first, *others = clocks
    corrected = {first: Clock(offset_us=clocks[first].offset_us, error_us=0.0)}
    for host in others:
        offset = clocks[host].offset_us - clocks[first].offset_us
        error = clocks[host].error_us + clocks[first].error_us
        least, most = _bounds(traces.get(first, ()), traces.get(host, ()), offset)
        if least <= most:
            offset = min(max(offset, least), most)
            error = min(error, max(most - offset, offset - least))
        corrected[host] = Clock(offset_us=clocks[first].offset_us + offset, error_us=error)
    return corrected


def apart_us(clocks: Mapping[str, Clock]) -> float:
    """Return how wrong any two of the clocks may be, compared with each other: each is relative to the first host."""
    return sum(sorted(clock.error_us for clock in clocks.values())[-2:])


def _bounds(first: Sequence[Trace], other: Sequence[Trace], ahead: float) -> tuple[float, float]:
    """Return how far the other host's clock is ahead of the first one's at least and at most, in µs.

    `ahead` is about how far. Without all-reduces that belong together, the bounds are infinite.
    """
    least, most = float("-inf"), float("inf")
    for one, two in ((one, two) for one in first[:1] for two in other[:1]):
        shift = two.epoch_us - one.epoch_us
        for mine, yours in _pairs(one, two, ahead - shift):
            most = min(most, yours.end + shift - mine.start)
            least = max(least, yours.start + shift - mine.end)
    return least, most


def _pairs(one: Trace, two: Trace, ahead: float) -> Iterable[tuple[Slice, Slice]]:
    """Yield the slices of the same all-reduce on two ranks. `ahead` is what the second one's times are ahead by."""
    mine, yours = _all_reduces(one), _all_reduces(two)
    for tensor, slices in yours.items():
        known = mine.get(tensor, [])
        ends = [piece.end for piece in known]
        for piece in slices:
            at = bisect_left(ends, piece.end - ahead)
            near = sorted(range(max(0, at - 1), min(len(ends), at + 1)), key=lambda i: abs(ends[i] - piece.end + ahead))
            if near and abs(ends[near[0]] - piece.end + ahead) < _NEAR * _gap(ends, near[0]):
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
