"""Spread and noise: the figures of some repeats, and whether two sets of repeats differ by more than their spread.

The rule is Student's t-test at 1 % (two-sided) on the logarithms, and at least 1 % between the geometric means. Two or
three repeats alone hardly show their own spread, so the cases of a session share one: the pooled standard deviation of
the residuals of their logarithms, with the degrees of freedom of all of them. A pooled variance needs cases that vary
alike. So a case that varies significantly more than the others (Cochran's test at 1 %) leaves the pool, as in ISO
5725-2, and keeps its own spread; its comparisons use Welch's test. Logarithms, because a busy machine changes rates and
times by a share of them.

Where the test finds nothing, kit computes its power. If it would have missed a difference of that size in more than one
of five sessions, the repeats are too few to tell.

Rules by rank alone (Mann-Whitney) cannot decide this: of three against three, one in ten equal pairs is wholly apart.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean, median, variance
from typing import Literal, TypeVar

from msgspec import Struct

from kit.model.benchsummary import Spread, Stat
from kit.plan.bench.report.student import f_tail, power, quantile

LEVEL = 0.01
# Kit calls no smaller difference a change.
FLOOR = 0.01
# "Within the noise" of two cases that differ by less than FLOOR: a difference of this size would have been detected.
WORTH = 0.05
POWER = 0.8
# The level of Cochran's test at which ISO 5725-2 calls a variance an outlier.
OUTLYING = 0.01
# Two cases cannot show which of them varies more than usual.
LEAST_POOLED = 3
# kit names no larger number of repeats.
MOST_REPEATS = 1000

Key = TypeVar("Key", bound=Hashable)


class Judgement(Struct, frozen=True, kw_only=True):
    """`repeats` of each side would detect the difference; None if kit cannot say or the number exceeds MOST_REPEATS."""

    verdict: Literal["apart", "noise", "unknown"]
    repeats: int | None = None


def stat(values: Sequence[float]) -> Stat:
    """Return the figures of at least one value."""
    middle = median(values)
    return Stat(
        median=middle,
        low=min(values),
        high=max(values),
        mad=median(abs(value - middle) for value in values),
        values=tuple(values),
    )


def spreads(cases: Mapping[Key, Sequence[float]]) -> dict[Key, Spread]:
    """Return the spread of each case of one metric. Cases that vary alike have the same pooled spread.

    A case with fewer than two repeats has none. Nor has one with a value that has no logarithm.
    """
    logs = {key: _logarithms(values) for key, values in cases.items()}
    own = {key: _spread([values]) for key, values in logs.items() if values is not None and len(values) > 1}
    pooled = dict(own)
    while len(pooled) >= LEAST_POOLED:
        widest = max(pooled, key=lambda key: pooled[key].sd)
        others = _together([spread for key, spread in pooled.items() if key != widest])
        ratio = _ratio(own[widest].sd ** 2, others.sd**2)
        if f_tail(ratio, own[widest].freedom, others.freedom) * len(pooled) > OUTLYING:
            shared = _together(list(pooled.values()))
            return own | dict.fromkeys(pooled, shared)
        del pooled[widest]
    return own


def judge(a: Sequence[float], b: Sequence[float], spread_a: Spread | None, spread_b: Spread | None) -> Judgement:
    """Decide whether the two differ by more than the noise. `spreads` has the spreads.

    The verdict is unknown if one side has a single repeat, or if the power is too low.
    """
    if min(len(a), len(b)) < 2:
        return Judgement(verdict="unknown")
    logs_a, logs_b = _logarithms(a), _logarithms(b)
    if logs_a is None or logs_b is None or spread_a is None or spread_b is None:
        return Judgement(verdict=apart(a, b))
    gap = abs(fmean(logs_b) - fmean(logs_a))
    least = math.log1p(FLOOR)
    error, freedom = _error(spread_a, spread_b, len(a), len(b))
    if gap >= least and _exceeds(gap, error, freedom):
        return Judgement(verdict="apart")
    size = gap if gap >= least else math.log1p(WORTH)
    if _power(size, error, freedom) >= POWER:
        return Judgement(verdict="noise")
    return Judgement(verdict="unknown", repeats=_enough(size, spread_a, spread_b, least=min(len(a), len(b)) + 1))


def apart(a: Sequence[float], b: Sequence[float]) -> Literal["apart", "noise", "unknown"]:
    """Decide by the values of the two alone, with Welch's t-test; unknown if one side has a single repeat."""
    if min(len(a), len(b)) < 2:
        return "unknown"
    mean_a, mean_b = fmean(a), fmean(b)
    gap = abs(mean_a - mean_b)
    if gap < FLOOR * abs(mean_a):
        return "noise"
    error_a, error_b = variance(a) / len(a), variance(b) / len(b)
    error = error_a + error_b
    if error == 0:
        return "apart" if gap > 0 else "noise"
    # By shares: the square of a small error may be less than the least number.
    freedom = 1 / ((error_a / error) ** 2 / (len(a) - 1) + (error_b / error) ** 2 / (len(b) - 1))
    return "apart" if gap / math.sqrt(error) > quantile(freedom) else "noise"


def _logarithms(values: Sequence[float]) -> list[float] | None:
    return [math.log(value) for value in values] if all(value > 0 for value in values) else None


def _spread(cases: Sequence[Sequence[float]]) -> Spread:
    squares = sum(variance(values) * (len(values) - 1) for values in cases)
    freedom = sum(len(values) - 1 for values in cases)
    return Spread(sd=math.sqrt(squares / freedom), freedom=freedom, cases=len(cases))


def _together(parts: Sequence[Spread]) -> Spread:
    """Return the pooled spread: the mean of the variances, weighted by their degrees of freedom."""
    freedom = sum(part.freedom for part in parts)
    squares = sum(part.sd**2 * part.freedom for part in parts)
    return Spread(sd=math.sqrt(squares / freedom), freedom=freedom, cases=sum(part.cases for part in parts))


def _ratio(above: float, below: float) -> float:
    if below > 0:
        return above / below
    return math.inf if above > 0 else 1.0


def _error(a: Spread, b: Spread, count_a: float, count_b: float) -> tuple[float, float]:
    """Return the standard error of a difference of means, and its degrees of freedom."""
    if a is b:
        return a.sd * math.sqrt(1 / count_a + 1 / count_b), a.freedom
    error_a, error_b = a.sd**2 / count_a, b.sd**2 / count_b
    error = error_a + error_b
    if error == 0:
        return 0.0, min(a.freedom, b.freedom)
    # Welch and Satterthwaite.
    freedom = 1 / ((error_a / error) ** 2 / a.freedom + (error_b / error) ** 2 / b.freedom)
    return math.sqrt(error), freedom


def _exceeds(gap: float, error: float, freedom: float) -> bool:
    return gap > 0 if error == 0 else gap / error > quantile(freedom, LEVEL)


def _power(size: float, error: float, freedom: float) -> float:
    return 1.0 if error == 0 else power(size / error, freedom, LEVEL)


def _enough(size: float, a: Spread, b: Spread, *, least: int) -> int | None:
    """Return the fewest repeats of every case that detect a difference of `size`, if the spread stays the same."""

    def detects(count: int) -> bool:
        more_a = Spread(sd=a.sd, freedom=a.cases * (count - 1), cases=a.cases)
        more_b = more_a if a is b else Spread(sd=b.sd, freedom=b.cases * (count - 1), cases=b.cases)
        return _power(size, *_error(more_a, more_b, count, count)) >= POWER

    if not detects(MOST_REPEATS):
        return None
    low, high = least - 1, MOST_REPEATS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if detects(middle) else (middle, high)
    return high
