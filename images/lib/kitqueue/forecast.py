"""Estimates when the runs in line start: it plays the line forward, as if each run went on until its time limit.

Runs end earlier than their limits, so this is about the latest time, and a run that joins with a higher priority can
make it later. Behind a run without a limit, nobody knows.
"""

import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence

from kitqueue import order

# The line is played forward for this many runs only, and for this many looks of a run at a host: below a second.
MOST, LOOKS = 50, 3000000
# How often the keeper does it.
EVERY_S = 5.0


def about(
    now: float,
    hosts: order.Slots,
    living: Sequence[order.Holder],
    line: Iterable[order.Waiting],
    *,
    ended: Mapping[str, bool],
    reserved: Optional[order.Reservation] = None,
) -> Dict[str, float]:
    """Return about when each run starts, in the seconds of `now`, without those of which nobody knows.

    The arguments are those of order.decide.
    """
    waiting: List[order.Waiting] = order.by_turn(line)[:MOST]
    holders, over = list(living), dict(ended)
    starts: Dict[str, float] = {}
    clock, looks = now, 0
    while waiting:
        looks += len(hosts) * sum(len(run.need.counts) for run in waiting)
        if looks > LOOKS:
            break
        made = order.decide(clock, hosts, holders, waiting, ended=over, reserved=reserved)
        reserved = made.reservation
        for start in made.starts:
            run = next(run for run in waiting if run.id == start.id)
            slots = {host: frozenset(numbers) for host, numbers in start.chosen}
            holders.append(order.Holder(run.id, slots, None if run.limit is None else clock + run.limit))
            waiting.remove(run)
            starts[run.id] = clock
        ends = [holder.ends for holder in holders if holder.ends is not None]
        if not ends:
            break
        # A run may be past its limit for a moment.
        clock = max(clock, min(ends))
        # A run that starts after another one counts on its good end. How a lost run ended is known, although its slots
        # are not free yet.
        for holder in holders:
            if holder.ends is not None and holder.ends <= clock:
                over.setdefault(holder.id, True)
        holders = [holder for holder in holders if holder.ends is None or holder.ends > clock]
    return starts


class Kept:
    """Keeps the result of `about` for some seconds. `clock` is monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: Optional[float] = None
        self._times: Dict[str, float] = {}

    def about(self, *arguments: Any, **named: Any) -> Dict[str, float]:
        """Return what `about` returned for the line of a moment ago, or returns now. The arguments are its own."""
        now = self._clock()
        if self._due is None or now >= self._due:
            self._due = now + EVERY_S
            self._times = about(*arguments, **named)
        return self._times
