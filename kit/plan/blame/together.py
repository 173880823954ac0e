"""Pairs readings of hosts that are about the same time. Pure.

The clocks of hosts differ, so kit's clock counts. If a connection breaks, kit starts the program again some seconds
later: its readings before and after the break are of two parts of the time, and nothing compares one with the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from kit.model.watch import SuspectReading

# Hosts read once a second, each at its own moment of it.
_APART_S = 0.5

Part = Mapping[str, Sequence[SuspectReading]]
# Moments, and the readings of them.
_Stream = list[tuple[float, SuspectReading]]


def parts(readings: Mapping[str, Sequence[SuspectReading]]) -> list[Part]:
    """Return the parts of the time in which no connection broke.

    In a part, all hosts have as many readings, and those with the same number are of about the same moment. If there
    is no such moment, the only part has the last reading of each host. All of `readings` have some.
    """
    streams = {host: _streams(rows) for host, rows in readings.items()}
    result: list[Part] = []
    while streams and all(streams.values()):
        begin = max(own[0][0][0] for own in streams.values())
        rows = {host: [one for at, one in own[0] if at >= begin - _APART_S] for host, own in streams.items()}
        count = min(len(row) for row in rows.values())
        if count:
            result.append({host: row[:count] for host, row in rows.items()})
        # The others go on while this host is away.
        ended = min(streams.values(), key=lambda own: own[0][-1][0])
        ended.pop(0)
    return result or ([{host: rows[-1:] for host, rows in readings.items()}] if readings else [])


def _streams(rows: Sequence[SuspectReading]) -> list[_Stream]:
    return [_timed(list(stream)) for _, stream in groupby(rows, key=lambda one: one.stream)]


def _timed(rows: Sequence[SuspectReading]) -> _Stream:
    """Return the moments of readings by kit's clock. A reading may come late, but none comes before its time."""
    past, passed = 0.0, []
    for number, one in enumerate(rows):
        past += (one.seconds or 0.0) if number else 0.0
        passed.append(past)
    start = min(one.heard - after for one, after in zip(rows, passed, strict=True))
    return [(start + after, one) for one, after in zip(rows, passed, strict=True)]
