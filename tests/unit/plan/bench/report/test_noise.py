"""The rule of the noise, tried on random numbers: how often it sees a change without one, and with one."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kit.plan.bench.report.figures import GREATEST
from kit.plan.bench.report.noise import apart, quantile, stat

Draw = Callable[[random.Random], float]
ROUNDS = 1500


def share(a: Draw, b: Draw, count: int) -> float:
    """How often, of many sessions of `count` repeats, the rule calls the two different."""
    source = random.Random(20261121)  # noqa: S311  (no secret)
    found = [
        apart([a(source) for _ in range(count)], [b(source) for _ in range(count)]) == "apart" for _ in range(ROUNDS)
    ]
    return sum(found) / ROUNDS


def normal(mean: float, deviation: float) -> Draw:
    return lambda source: source.gauss(mean, deviation)


def spiky(source: random.Random) -> float:
    """One repeat in ten is a fifth slower: a cluster that somebody else uses, too."""
    return source.gauss(100, 1) * (0.8 if source.random() < 0.1 else 1.0)


def skewed(source: random.Random) -> float:
    return 100 - source.expovariate(1 / 3)


@pytest.mark.parametrize("count", [2, 3, 5, 10])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        (normal(100, 3), normal(100, 3)),
        (normal(100, 1), normal(100, 8)),
        (spiky, spiky),
        (skewed, skewed),
    ],
    ids=["alike", "one noisier", "spikes", "skewed"],
)
def test_where_nothing_changed_at_most_a_few_in_a_hundred_are_called_a_change(a: Draw, b: Draw, count: int) -> None:
    # 1 % is what the rule aims at; with two repeats on unequal noise it is more.
    assert share(a, b, count) <= 0.025


def test_three_repeats_of_quiet_machines_show_a_tenth() -> None:
    assert share(normal(100, 1), normal(110, 1), 3) > 0.95
    assert share(normal(100, 1), normal(105, 1), 3) > 0.5


def test_ranks_alone_would_be_wrong_once_in_ten() -> None:
    """Why it is not the simplest rule: that all of one side lie beyond all of the other."""
    source = random.Random(7)  # noqa: S311  (no secret)
    wrong = 0
    for _ in range(ROUNDS):
        a, b = ([source.gauss(100, 3) for _ in range(3)] for _ in range(2))
        wrong += max(a) < min(b) or max(b) < min(a)
    assert 0.08 < wrong / ROUNDS < 0.12


def test_a_single_repeat_tells_no_noise() -> None:
    assert apart([100.0], [200.0, 201.0]) == "unknown"
    assert apart([100.0, 101.0], [200.0]) == "unknown"


def test_equal_repeats_have_no_noise_but_a_change_below_one_percent_is_none() -> None:
    assert apart([100.0, 100.0], [102.0, 102.0]) == "apart"
    assert apart([100.0, 100.0], [100.5, 100.5]) == "noise"
    assert apart([0.0, 0.0], [0.0, 0.0]) == "noise"


def test_the_quantile_is_students() -> None:
    """Against the closed forms for 1, 2 and 4 degrees of freedom, and the normal distribution's for many."""
    assert quantile(1) == pytest.approx(63.657, rel=1e-4)
    assert quantile(2) == pytest.approx(9.9248, rel=1e-4)
    assert quantile(4) == pytest.approx(4.6041, rel=1e-4)
    assert quantile(1e9) == pytest.approx(2.5758, rel=1e-3)
    assert 4.604 < quantile(3.2) < 5.841
    falling = [quantile(1 + each / 10) for each in range(2000)]
    assert falling == sorted(falling, reverse=True)


def test_median_and_spread() -> None:
    found = stat([3.0, 1.0, 2.0, 10.0])
    assert (found.median, found.low, found.high, found.mad, found.count) == (2.5, 1.0, 10.0, 1.0, 4)


figures = st.lists(st.floats(-GREATEST, GREATEST), min_size=1, max_size=5)


@given(figures, figures)
@example([GREATEST, -GREATEST], [GREATEST] * 2)
@example([1e-100, 2e-100], [3e-100, 5e-324])
def test_figures_of_any_size_are_judged(a: list[float], b: list[float]) -> None:
    assert apart(a, b) in ("apart", "noise", "unknown")
    assert apart(a, a) != "apart"
