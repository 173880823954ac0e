"""Student's t and F, compared with scipy, which comes with scikit-learn and is no dependency of kit itself."""

from __future__ import annotations

import math

import pytest

from kit.plan.bench.report import student
from kit.plan.bench.report.student import f_tail, power, quantile

stats = pytest.importorskip("scipy.stats")

FREEDOM = [0.7, 1, 1.3, 2, 4.5, 7, 14, 100, 5e4, 9e5, 1e7]


@pytest.mark.parametrize("freedom", FREEDOM)
def test_the_quantile_is_that_of_scipy(freedom: float) -> None:
    for level in (0.01, 0.05):
        assert quantile(freedom, level) == pytest.approx(stats.t.ppf(1 - level / 2, freedom), rel=1e-6)


@pytest.mark.parametrize("freedom", FREEDOM)
@pytest.mark.parametrize("shift", [0, 0.5, 2, 4, 12])
def test_the_power_is_the_tail_of_the_noncentral_t(freedom: float, shift: float) -> None:
    needed = stats.t.ppf(0.995, freedom)
    other_tail = stats.nct.cdf(-needed, freedom, shift)
    # For tails that are as good as 0, scipy returns NaN.
    expected = stats.nct.sf(needed, freedom, shift) + (0 if math.isnan(other_tail) else other_tail)
    assert power(shift, freedom) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("above", [1, 2, 5])
@pytest.mark.parametrize("below", [1, 4, 14, 80])
def test_the_tail_of_f_is_that_of_scipy(above: int, below: int) -> None:
    for ratio in (0.5, 1, 3, 40, 4000):
        assert f_tail(ratio, above, below) == pytest.approx(stats.f.sf(ratio, above, below), abs=1e-9)
    assert f_tail(math.inf, above, below) == 0


@pytest.mark.parametrize(
    ("shift", "freedom", "chance"),
    [
        (0.5, 0.7, 0.010851935684936817),
        (3, 2.5, 0.1323029054170748),
        (2, 14, 0.21014857065531875),
        (4, 6993, 0.922664069826871),
        (12, 100, 1.0),
    ],
)
def test_the_power_is_the_same_to_the_last_digits(shift: float, freedom: float, chance: float) -> None:
    """Each value is the sum with both tails by statistics.NormalDist, step by step: too slow for a report."""
    assert power(shift, freedom) == pytest.approx(chance, rel=1e-13)
    assert power(shift, freedom) <= 1


def test_differences_with_the_same_degrees_of_freedom_share_the_steps_of_the_sum() -> None:
    student._grid.cache_clear()
    for tenths in range(100):
        power(tenths / 10, 14)
    assert student._grid.cache_info().misses == 1
