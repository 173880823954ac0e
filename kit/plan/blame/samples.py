"""Turns what Horovod counts in each rank into samples: how long each rank waited in the same part of the run. Pure.

The ranks must be the same all the time (kit.plan.blame.steady).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from kit.model.blame import HostInterval, Readiness, Watched


class Sample(Struct, frozen=True, kw_only=True):
    """One part of the run in which every rank summed at least one tensor, and ended a step if Horovod counts steps.

    By rank: `wait` is seconds between enqueue and operation, for the mean tensor; `tail` and `operation` are shares of
    the time. `steps` is steps per second, or None.
    """

    seconds: float
    wait: Mapping[int, float]
    tail: Mapping[int, float]
    operation: Mapping[int, float]
    steps: float | None


class Totals(Struct, frozen=True, kw_only=True):
    """What the ranks did in the whole time, per second: tensors, bytes, and steps or None if Horovod counts none."""

    seconds: float
    tensors: float
    bytes: float
    steps: float | None


_Look = dict[int, Readiness]


def samples(watched: Watched) -> tuple[Sample, ...]:
    """Return the samples. An interval in which a rank made no progress is joined with the next one."""
    looks = _looks(watched)
    if not looks:
        return ()
    result: list[Sample] = []
    first, seconds = looks[0][1], 0.0
    for length, look in looks[1:]:
        seconds += length
        if first and all(_progress(first[rank], look[rank]) for rank in first):
            result.append(_sample(seconds, {rank: (first[rank], look[rank]) for rank in sorted(first)}))
            first, seconds = look, 0.0
    return tuple(result)


def totals(watched: Watched) -> Totals | None:
    """Return what the mean rank did in the whole time, or None without two looks at one."""
    looks = _looks(watched)
    seconds = sum(length for length, _ in looks[1:])
    if seconds <= 0 or not looks[0][1]:
        return None
    first, last = looks[0][1], looks[-1][1]

    def rate(of: Callable[[Readiness], int]) -> float:
        return sum(of(last[rank]) - of(first[rank]) for rank in first) / len(first) / seconds

    steps = rate(lambda one: one.steps)
    return Totals(
        seconds=seconds,
        tensors=rate(lambda one: one.tensors),
        bytes=rate(lambda one: one.bytes),
        steps=steps if steps > 0 else None,
    )


def _looks(watched: Watched) -> list[tuple[float, _Look]]:
    """Return the seconds since the look before, and all ranks' counters. Hosts look at about the same times."""
    return [
        (
            _mean_seconds(row),
            {one.rank: one.readiness for interval in row for one in interval.ranks if one.readiness is not None},
        )
        for row in zip(*watched.hosts.values(), strict=False)
    ]


def _mean_seconds(row: tuple[HostInterval, ...]) -> float:
    return sum(interval.seconds for interval in row) / len(row)


def _progress(before: Readiness, after: Readiness) -> bool:
    return after.tensors > before.tensors and (after.steps > before.steps or after.steps == 0)


def _sample(seconds: float, ranks: Mapping[int, tuple[Readiness, Readiness]]) -> Sample:
    steps = sum(after.steps - before.steps for before, after in ranks.values()) / len(ranks) / seconds
    return Sample(
        seconds=seconds,
        wait={r: (b.wait_us - a.wait_us) / (b.tensors - a.tensors) / 1e6 for r, (a, b) in ranks.items()},
        tail={r: (b.tail_us - a.tail_us) / seconds / 1e6 for r, (a, b) in ranks.items()},
        operation={r: (b.op_us - a.op_us) / seconds / 1e6 for r, (a, b) in ranks.items()},
        steps=steps if steps > 0 else None,
    )
