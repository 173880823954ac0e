"""Spread and noise: the figures of some repeats, and whether two sets of repeats differ by more than their spread.

The rule: Welch's t-test at 1 % (two-sided), and at least 1 % between the means. It wants two repeats on each side.
Rules by rank alone (Mann-Whitney) cannot do it: of three against three, one in ten equal pairs lies wholly apart.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from statistics import fmean, median, variance
from typing import Literal

from kit.model.benchsummary import Stat

LEVEL = 0.01
FLOOR = 0.01

# Student's t, 99.5 % quantile, by degrees of freedom (any table of it; scipy.stats.t.ppf(0.995, n) gives the same).
_T = (
    (1, 63.657), (2, 9.925), (3, 5.841), (4, 4.604), (5, 4.032), (6, 3.707), (7, 3.499), (8, 3.355), (9, 3.250),
    (10, 3.169), (12, 3.055), (15, 2.947), (20, 2.845), (30, 2.750), (60, 2.660), (120, 2.617),
)  # fmt: skip
_T_LIMIT = 2.576


def stat(values: Sequence[float]) -> Stat:
    """Of at least one value."""
    middle = median(values)
    return Stat(
        median=middle,
        low=min(values),
        high=max(values),
        mad=median(abs(value - middle) for value in values),
        values=tuple(values),
    )


def apart(a: Sequence[float], b: Sequence[float]) -> Literal["apart", "noise", "unknown"]:
    """Whether the two differ by more than the noise; unknown where one side has a single repeat."""
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


def quantile(freedom: float) -> float:
    """Student's t at 99.5 % for any degrees of freedom from 1 on, between the table's rows by 1 / freedom."""
    at = bisect_right(_T, freedom, key=lambda row: row[0])
    if at == 0:
        return _T[0][1]
    below, low = _T[at - 1]
    above, high = _T[at] if at < len(_T) else (math.inf, _T_LIMIT)
    share = (1 / below - 1 / freedom) / (1 / below - 1 / above)
    return low + (high - low) * share
