"""Student's t and F distributions: the quantile, the tail and the power that the rule of the noise needs.

kit does not depend on scipy. Tests compare every function here with scipy.stats.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_NORMAL = NormalDist()
# With more degrees of freedom than this, Student's t and the normal distribution agree to six digits.
_NORMAL_FROM = 1e6
_ROOT_2 = math.sqrt(2)
# A share of the density that adds less than the last digit to a sum.
_LEAST_DENSITY = 1e-20


@lru_cache(maxsize=1024)
def quantile(freedom: float, level: float = 0.01) -> float:
    """Return the t that a two-sided test at `level` must exceed, for any degrees of freedom above 0."""
    if freedom > _NORMAL_FROM:
        return _NORMAL.inv_cdf(1 - level / 2)
    # Newton's method. The tail is convex, and the normal quantile is below the root, so each step stays below it.
    t = _NORMAL.inv_cdf(1 - level / 2)
    log_peak = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    while True:
        density = math.exp(log_peak - (freedom + 1) / 2 * math.log1p(t * t / freedom))
        step = (_two_tails(t, freedom) - level) / (2 * density)
        if step <= 1e-13 * t:
            return t
        t += step


def f_tail(ratio: float, above: float, below: float) -> float:
    """Return the chance that a ratio of two variances exceeds `ratio`; the others are their degrees of freedom."""
    if math.isinf(ratio):
        return 0.0
    return _beta(below / (below + above * ratio), below / 2, above / 2)


def power(shift: float, freedom: float, level: float = 0.01) -> float:
    """Return the chance that a two-sided t-test detects a difference of `shift` standard errors.

    This is the tail of the noncentral t distribution: with W = chi-squared / freedom, the mean over W of
    P(|Z + shift| > t sqrt(W)) for a standard normal Z. The sum runs over log W in equal steps, where the density is
    smooth and falls fast to both sides, so few steps give eight digits.
    """
    if freedom > _NORMAL_FROM:
        needed = quantile(freedom, level)
        return _NORMAL.cdf(shift - needed) + _NORMAL.cdf(-shift - needed)
    # P(Z > bar - shift) + P(Z > bar + shift), each of which is erfc() / 2 of its bound over the root of 2.
    erfc, moved = math.erfc, shift / _ROOT_2
    chance = sum([weight * (erfc(bar - moved) + erfc(bar + moved)) for weight, bar in _grid(freedom, level)])
    return min(chance, 1.0)


@lru_cache(maxsize=256)
def _grid(freedom: float, level: float) -> tuple[tuple[float, float], ...]:
    """Return what the sum of `power` needs for any shift: the weight of each W, in sum 1/2, and t sqrt(W / 2)."""
    needed, half = quantile(freedom, level), freedom / 2
    width = math.sqrt(2 / freedom)
    step = min(width, 1.0) / 8
    # The density of log W is exp(half * (u - exp(u))) over a constant. exp(-45) of it no longer counts.
    first, last = -45 / half - 10 * width, math.log1p(45 / half) + 10 * width
    points: list[tuple[float, float]] = []
    u = first
    while u <= last:
        points.append((math.exp(half * (u + 1 - math.exp(u))), needed * math.exp(u / 2) / _ROOT_2))
        u += step
    total = 2 * sum(density for density, _ in points)
    return tuple((density / total, bar) for density, bar in points if density > _LEAST_DENSITY * total)


def _two_tails(t: float, freedom: float) -> float:
    return _beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def _beta(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function, by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    # The fraction converges fast only to this side of the mean.
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(1 - x, b, a)
    log_front = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    fraction = 1.0
    for m in range(min(400, 30 + int(2 * math.sqrt(a + b))), 0, -1):
        fraction = 1 + m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)) / fraction
        odd = m - 1
        fraction = 1 - (a + odd) * (a + b + odd) * x / ((a + 2 * odd) * (a + 2 * odd + 1)) / fraction
    return math.exp(log_front) / (a * fraction)
