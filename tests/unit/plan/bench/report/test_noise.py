"""The rule of the noise, tried on random numbers: how often it sees a change without one, and with one."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kit.plan.bench.report.figures import GREATEST
from kit.plan.bench.report.noise import LEVEL, MOST_REPEATS, POWER, Judgement, apart, judge, spreads, stat
from kit.plan.bench.report.student import quantile

Draw = Callable[[random.Random], float]
ROUNDS = 1500


def share(a: Draw, b: Draw, count: int) -> float:
    """How often, of many sessions of `count` repeats, the rule calls the two different."""
    source = random.Random(20261121)  # noqa: S311  (no secret)
    verdicts = [
        apart([a(source) for _ in range(count)], [b(source) for _ in range(count)]) == "apart" for _ in range(ROUNDS)
    ]
    return sum(verdicts) / ROUNDS


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


def test_a_single_repeat_shows_no_noise() -> None:
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
    falling = [quantile(1 + step / 10) for step in range(2000)]
    assert falling == sorted(falling, reverse=True)


def test_median_and_spread() -> None:
    summary = stat([3.0, 1.0, 2.0, 10.0])
    assert (summary.median, summary.low, summary.high, summary.mad, summary.count) == (2.5, 1.0, 10.0, 1.0, 4)


figures = st.lists(st.floats(-GREATEST, GREATEST), min_size=1, max_size=5)


@given(figures, figures)
@example([GREATEST, -GREATEST], [GREATEST] * 2)
@example([1e-100, 2e-100], [3e-100, 5e-324])
def test_figures_of_any_size_are_judged(a: list[float], b: list[float]) -> None:
    assert apart(a, b) in ("apart", "noise", "unknown")
    assert apart(a, a) != "apart"


Cases = Mapping[str, Sequence[float]]
SETTINGS = "abcdefg"


def session(source: random.Random, deviation: float, repeats: int, *, factor: float = 1.0) -> dict[str, list[float]]:
    """Return a session whose repeats vary by `deviation` in every case. Case b is `factor` times as fast as a."""
    speeds = {name: 100.0 * (index + 1) for index, name in enumerate(SETTINGS)} | {"b": 100.0 * factor}
    return {
        name: [speed * math.exp(source.gauss(0, deviation)) for _ in range(repeats)] for name, speed in speeds.items()
    }


def judged(cases: Cases, a: str = "a", b: str = "b") -> Judgement:
    pooled = spreads(cases)
    return judge(cases[a], cases[b], pooled.get(a), pooled.get(b))


@pytest.mark.parametrize("repeats", [2, 3, 5])
def test_pooled_false_verdicts_stay_at_the_stated_rate(repeats: int) -> None:
    source = random.Random(repeats)  # noqa: S311  (no secret)
    wrong = sum(judged(session(source, 0.04, repeats)).verdict == "apart" for _ in range(2000))
    # Three standard errors of the simulation above the stated rate.
    assert wrong / 2000 <= LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / 2000)


@pytest.mark.parametrize(("repeats", "most"), [(3, 0.11), (5, 0.08)])
def test_one_case_that_varies_three_times_as_much_costs_what_the_docs_say(repeats: int, most: float) -> None:
    source = random.Random(repeats)  # noqa: S311  (no secret)
    wrong = 0
    for _ in range(1000):
        cases = session(source, 0.02, repeats)
        cases["a"] = [100 * math.exp(source.gauss(0, 0.06)) for _ in range(repeats)]
        wrong += judged(cases).verdict == "apart"
    assert wrong / 1000 <= most


@pytest.mark.parametrize(("deviation", "factor"), [(0.06, 0.85), (0.02, 1.05), (0.01, 1.02)])
def test_the_named_number_of_repeats_detects_the_difference(deviation: float, factor: float) -> None:
    """At this number, the stated power is reached; a third of it would miss the difference too often."""
    spread = {name: [100.0, 100.0 * math.exp(deviation * math.sqrt(2))] for name in SETTINGS}
    moved = spread | {"b": [value * factor for value in spread["a"]]}
    enough = judged(moved).repeats
    assert enough is not None

    def share_found(repeats: int) -> float:
        source = random.Random(repeats)  # noqa: S311  (no secret)
        rounds = 600
        verdicts_seen = (judged(session(source, deviation, repeats, factor=factor)).verdict for _ in range(rounds))
        return sum(verdict == "apart" for verdict in verdicts_seen) / rounds

    assert share_found(enough) >= POWER - 3 * math.sqrt(POWER * (1 - POWER) / 600)
    if enough > 3:
        assert share_found(max(2, enough // 3)) < POWER - 0.1


def test_the_session_of_the_key_value_stores_shows_what_two_repeats_alone_cannot() -> None:
    """docs/benchmarks/resnet18-kvstore: each pair alone called all of these within the noise."""
    cases = {
        "local": [71.745, 81.060, 82.361],
        "device": [84.920, 84.383, 80.086],
        "dist_sync": [59.579, 57.521],
        "dist_sync-2bit": [57.861, 65.493],
        "dist_device_sync": [49.748, 71.163, 51.029],
        "dist_async": [57.222, 65.875],
        "horovod": [49.391, 42.480],
    }
    assert apart(cases["local"], cases["horovod"]) == "noise"
    assert judged(cases, "local", "horovod") == Judgement(verdict="apart")
    # A smaller difference: the spread of 11 % hides it, and kit says how many repeats would show it.
    assert judged(cases, "local", "dist_async") == Judgement(verdict="unknown", repeats=6)
    assert judged(cases, "local", "device") == Judgement(verdict="unknown", repeats=80)


def test_the_pooled_spread_is_the_root_of_the_mean_variance() -> None:
    pooled = spreads({"a": [1, math.e], "b": [1, math.e], "c": [1, 1, 1]})
    # Variances 1/2, 1/2 and 0 with 1, 1 and 2 degrees of freedom.
    assert pooled["a"] is pooled["b"] is pooled["c"]
    assert (pooled["a"].sd, pooled["a"].freedom, pooled["a"].cases) == (pytest.approx(math.sqrt(1 / 4)), 4, 3)


def test_a_case_that_varies_more_than_the_others_keeps_its_own_spread() -> None:
    quiet = {name: [100.0, 100.1, 99.9] for name in "abcd"}
    pooled = spreads(quiet | {"wild": [50.0, 100.0, 150.0]})
    assert pooled["wild"].cases == 1
    assert {pooled[name].cases for name in "abcd"} == {4}
    assert pooled["a"].sd < 0.002
    # Its comparisons use its own spread: 49.7 to 150.3 says nothing about 100.
    assert judged(quiet | {"wild": [50.0, 100.0, 150.0]}, "a", "wild").verdict == "unknown"
    # Cases without any spread are quiet, too.
    assert spreads({"a": [1.0, 1.0], "b": [2.0, 2.0], "c": [1.0, 3.0]})["c"].cases == 1


def test_cases_that_share_nothing_are_judged_alone() -> None:
    # Two cases cannot show which of them varies more than usual.
    two = {"a": [100.0, 101.0], "b": [100.0, 108.0]}
    assert [spread.cases for spread in spreads(two).values()] == [1, 1]
    # A case with one repeat has no spread, nor has one with a value without a logarithm.
    odd = {"single": [1.0], "zero": [0.0, 1.0], "a": [1.0, 2.0]}
    assert list(spreads(odd)) == ["a"]
    assert judged(odd, "single", "a") == Judgement(verdict="unknown")
    assert judged({"a": [0.0, 0.0], "b": [5.0, 5.0]}).verdict == "apart"


def test_a_difference_below_one_percent_is_none_if_a_larger_one_would_have_shown() -> None:
    calm = {name: [100.0, 100.5, 99.5] for name in SETTINGS}
    assert judged(calm | {"b": [100.3, 100.8, 99.8]}) == Judgement(verdict="noise")
    # The same difference with a spread of 20 %: anything could hide in it.
    rough = {name: [80.0, 100.0, 120.0] for name in SETTINGS}
    verdicts = judged(rough | {"b": [80.3, 100.3, 120.3]})
    assert verdicts.verdict == "unknown"
    assert verdicts.repeats is not None
    assert verdicts.repeats > 100


def test_kit_names_no_number_of_repeats_that_nobody_would_launch() -> None:
    rough = {name: [50.0, 100.0, 200.0] for name in SETTINGS}
    assert judged(rough | {"b": [51.0, 101.0, 201.0]}) == Judgement(verdict="unknown", repeats=None)
    assert MOST_REPEATS == 1000


@given(st.dictionaries(st.sampled_from(SETTINGS), figures, min_size=2))
def test_sessions_of_any_figures_are_judged(cases: dict[str, list[float]]) -> None:
    a, b, *_ = cases
    verdicts = judged(cases, a, b)
    assert verdicts.verdict in ("apart", "noise", "unknown")
