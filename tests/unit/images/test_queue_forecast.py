"""About when the runs in line start, if each run goes on until its time limit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import launcher

forecast: Any = launcher.load("kitqueue.forecast")
order: Any = launcher.load("kitqueue.order")

HOSTS = {"gpu1": frozenset(range(2)), "gpu2": frozenset(range(2))}


def run(place: int, *counts: int, limit: float | None = 60.0, **more: Any) -> Any:
    return order.Waiting(f"r{place}", place, order.Need(counts, tuple(HOSTS)), limit=limit, **more)


def holder(ends: float | None) -> Any:
    return order.Holder("holder", HOSTS, ends)


def about(line: list[Any], living: list[Any] | None = None, **ended: bool) -> dict[str, float]:
    starts: dict[str, float] = forecast.about(1000.0, HOSTS, living or [], line, ended=ended)
    return starts


def test_runs_start_when_those_before_them_end() -> None:
    line = [run(1, 2, 2), run(2, 2, 2, limit=100.0), run(3, 2), run(4, 2, 2)]
    assert about(line, [holder(1500.0)]) == {"r1": 1500.0, "r2": 1560.0, "r3": 1660.0, "r4": 1720.0}


def test_a_small_run_goes_ahead() -> None:
    half = order.Holder("holder", {"gpu1": HOSTS["gpu1"]}, 1500.0)
    assert about([run(1, 2, 2), run(2, 2)], [half]) == {"r1": 1500.0, "r2": 1000.0}


def test_behind_a_run_without_a_limit_nobody_knows() -> None:
    assert about([run(1, 2, 2)], [holder(None)]) == {}
    assert about([run(1, 2, 2, limit=None), run(2, 1)]) == {"r1": 1000.0}


def test_a_run_past_its_limit_ends_now() -> None:
    assert about([run(1, 2, 2)], [holder(900.0)]) == {"r1": 1000.0}


def test_a_run_after_another_counts_on_its_good_end() -> None:
    line = [run(1, 2, 2), run(2, 1, after=((("r1",), "ok"),)), run(3, 1, after=((("r1",), "failed"),))]
    assert about(line) == {"r1": 1000.0, "r2": 1060.0}


def test_a_run_after_a_lost_one_counts_on_how_that_ended() -> None:
    """Its slots are not free yet, but its end is known."""
    line = [run(1, 1, after=((("holder",), "ok"),)), run(2, 1, after=((("holder",), "failed"),))]
    assert about(line, [holder(1030.0)], holder=False) == {"r2": 1030.0}


@pytest.mark.parametrize(("ends", "then"), [(1500.0, {"r2": 1500.0}), (None, {})])
def test_a_run_after_another_waits_until_that_one_has_ended(ends: float | None, then: dict[str, float]) -> None:
    half = order.Holder("holder", {"gpu1": HOSTS["gpu1"]}, ends)
    line = [run(1, 1), run(2, 1, after=((("holder",), "ok"),))]
    assert about(line, [half]) == {"r1": 1000.0, **then}


def test_held_runs_and_those_that_fit_on_no_host_have_no_time() -> None:
    assert about([run(1, 1, held=True), run(2, 9), run(3, 1)]) == {"r3": 1000.0}


def test_the_times_are_made_seldom() -> None:
    moment = [50.0]
    kept = forecast.Kept(lambda: moment[0])
    first = kept.about(1000.0, HOSTS, [holder(1500.0)], [run(1, 2, 2)], ended={})
    assert first == {"r1": 1500.0}
    moment[0] += forecast.EVERY_S / 2
    assert kept.about(1002.0, HOSTS, [holder(1700.0)], [run(1, 2, 2)], ended={}) == first
    moment[0] += forecast.EVERY_S
    assert kept.about(1002.0, HOSTS, [holder(1700.0)], [run(1, 2, 2)], ended={}) == {"r1": 1700.0}


def test_only_the_first_of_a_long_line_have_a_time() -> None:
    line = [run(n, 2, 2) for n in range(3 * forecast.MOST)]
    assert list(about(line)) == [f"r{n}" for n in range(forecast.MOST)]


def test_a_cluster_that_is_too_large_to_play_forward_has_no_times() -> None:
    hosts = {f"gpu{n}": frozenset(range(8)) for n in range(1000)}
    need = order.Need((8,) * 600, tuple(hosts))
    line = [order.Waiting(f"r{n}", n, need, limit=60.0) for n in range(50)]
    assert forecast.about(0.0, hosts, [], line, ended={}) == {}
    assert forecast.about(0.0, hosts, [], line[:2], ended={}) == {"r0": 0.0, "r1": 60.0}


@given(
    st.lists(st.tuples(st.lists(st.integers(1, 2), min_size=1, max_size=2), st.integers(1, 99)), max_size=12),
    st.integers(0, 5),
)
def test_every_run_with_a_limit_starts_and_the_first_as_decided(runs: list[tuple[list[int], int]], held: int) -> None:
    line = [run(n, *counts, limit=float(limit)) for n, (counts, limit) in enumerate(runs)]
    living = [holder(1000.0 + held)] if held else []
    starts = about(line, living)
    assert starts.keys() == {one.id for one in line}
    made = order.decide(1000.0, HOSTS, living, line, ended={})
    assert {start.id for start in made.starts} == {name for name, at in starts.items() if at == 1000.0}
    if made.reservation is not None:
        assert starts[made.reservation.id] <= made.reservation.at
