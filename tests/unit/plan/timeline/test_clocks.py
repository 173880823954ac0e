"""Clocks of hosts on one clock: what pings say, and what all-reduces prove."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.model.timeline import Clock, Slice, Trace
from kit.plan.timeline.clocks import apart_us, clock_of, together


@pytest.mark.parametrize(
    ("errors", "apart"), [((0.0,), 0.0), ((0.0, 300.0), 300.0), ((0.0, 200.0, 300.0, 100.0), 500.0)]
)
def test_two_clocks_may_be_wrong_in_opposite_directions(errors: tuple[float, ...], apart: float) -> None:
    clocks = {f"gpu{n}": Clock(offset_us=5.0 * n, error_us=error) for n, error in enumerate(errors)}
    assert apart_us(clocks) == apart


def test_the_quickest_ping_counts() -> None:
    # Its way there took all the time: the host's clock is ahead by 5 ms, give or take half of that time.
    slow, quick = (0, 9_000_000, 80_000_000), (100_000_000, 106_000_000, 102_000_000)
    assert clock_of([slow, quick]) == Clock(offset_us=5000, error_us=1000)


def traces(seed: int, aheads: list[float], *, period: float = 20_000, length: float = 300) -> list[list[Trace]]:
    """Return what one rank on each host wrote: each all-reduce ends on all after the last one has begun it."""
    luck = random.Random(seed)  # noqa: S311  (the same each time)
    slices: list[list[Slice]] = [[] for _ in aheads]
    for step in range(30):
        begins = [step * period + luck.uniform(0, 200) for _ in aheads]
        done = max(begins) + length
        for host, ahead in enumerate(aheads):
            end = done + luck.uniform(0, 200)
            slices[host] += [
                Slice("grad", "WAIT", begins[host] + ahead - 50, begins[host] + ahead),
                Slice("grad", "ALLREDUCE", begins[host] + ahead, end + ahead),
            ]
    # A timeline begins somewhere in the first steps, and its epoch is by the host's own clock.
    epochs = [1_000_000 + luck.randrange(1000) for _ in aheads]
    return [
        [
            Trace(
                epoch_us=epoch,
                slices=tuple(
                    piece._replace(start=piece.start - epoch, end=piece.end - epoch)
                    for piece in pieces[2 * luck.randrange(5) :]
                ),
            )
        ]
        for epoch, pieces in zip(epochs, slices, strict=True)
    ]


@given(
    seed=st.integers(0, 10_000),
    ahead=st.floats(-1e6, 1e6),
    wrong=st.floats(-3000, 3000),
)
def test_all_reduces_correct_what_pings_say(seed: int, ahead: float, wrong: float) -> None:
    hosts = dict(zip(("gpu1", "gpu2"), traces(seed, [0.0, ahead]), strict=True))
    pinged = {
        "gpu1": Clock(offset_us=70.0, error_us=10.0),
        "gpu2": Clock(offset_us=70.0 + ahead + wrong, error_us=3000),
    }
    found = together(pinged, pinged, hosts)
    assert found["gpu1"] == Clock(offset_us=70.0, error_us=0.0)
    assert abs(found["gpu2"].offset_us - 70.0 - ahead) <= found["gpu2"].error_us + 1e-3
    # From the begin of an all-reduce on one rank to its end on another.
    assert found["gpu2"].error_us <= 900


@given(seed=st.integers(0, 10_000), ahead=st.floats(-1e6, 1e6), wrong=st.floats(-100, 100))
def test_a_ping_that_agrees_with_them_stays(seed: int, ahead: float, wrong: float) -> None:
    hosts = dict(zip(("gpu1", "gpu2"), traces(seed, [0.0, ahead]), strict=True))
    pinged = {"gpu1": Clock(offset_us=0.0, error_us=50.0), "gpu2": Clock(offset_us=ahead + wrong, error_us=50.0)}
    found = together(pinged, pinged, hosts)["gpu2"]
    assert found.offset_us == pytest.approx(ahead + wrong)
    assert found.error_us <= 100


def test_without_all_reduces_the_pings_count() -> None:
    pinged = {"gpu1": Clock(offset_us=1.0, error_us=2.0), "gpu2": Clock(offset_us=11.0, error_us=3.0)}
    nothing = [Trace(epoch_us=0, slices=())]
    assert together(pinged, pinged, {"gpu1": nothing, "gpu2": nothing})["gpu2"] == Clock(offset_us=11.0, error_us=5.0)
    assert together(pinged, pinged, {})["gpu2"] == Clock(offset_us=11.0, error_us=5.0)


def test_a_ping_that_may_be_wrong_by_a_whole_step_proves_nothing() -> None:
    """Each all-reduce then seems to be the one before it. The clock must not be called exact."""
    hosts = dict(zip(("gpu1", "gpu2"), traces(1, [0.0, 0.0], period=2000), strict=True))
    pinged = {"gpu1": Clock(offset_us=0.0, error_us=0.0), "gpu2": Clock(offset_us=2000.0, error_us=2500.0)}
    assert together(pinged, pinged, hosts)["gpu2"] == Clock(offset_us=2000.0, error_us=2500.0)


@given(drift=st.floats(-1e5, 1e5), wrong=st.floats(-200, 200), here=st.floats(-1e6, 1e6))
def test_a_clock_that_drifts_or_was_set_is_never_called_exact(drift: float, wrong: float, here: float) -> None:
    """This machine's clock may be set, too, which changes nothing between the hosts."""
    hosts = dict(zip(("gpu1", "gpu2"), traces(1, [0.0, 0.0]), strict=True))
    before = {"gpu1": Clock(offset_us=0.0, error_us=100.0), "gpu2": Clock(offset_us=wrong, error_us=100.0)}
    after = {"gpu1": Clock(offset_us=here, error_us=100.0), "gpu2": Clock(offset_us=here + drift, error_us=100.0)}
    clock = together(before, after, hosts)["gpu2"]
    if abs(drift) > 400:
        for now in (0.0, drift):
            assert abs(clock.offset_us - now) <= clock.error_us + 1e-3
    else:
        assert clock.error_us <= 400


def test_the_better_pings_of_one_time_count() -> None:
    worse, better = (
        {"gpu1": Clock(offset_us=at, error_us=error), "gpu2": Clock(offset_us=at + 70, error_us=error)}
        for at, error in ((0.0, 50.0), (9000.0, 20.0))
    )
    assert together(worse, better, {})["gpu2"] == Clock(offset_us=70.0, error_us=40.0)
    assert together(better, worse, {})["gpu2"] == Clock(offset_us=9070.0, error_us=40.0)


@pytest.mark.parametrize("later", [-3000.0, 3000.0])
def test_all_reduces_of_two_process_sets_prove_nothing(later: float) -> None:
    """Their tensors have the same names, and each set sums its own when it likes."""
    one, two = traces(1, [0.0, later])
    pinged = {"gpu1": Clock(offset_us=0.0, error_us=100.0), "gpu2": Clock(offset_us=0.0, error_us=100.0)}
    assert together(pinged, pinged, {"gpu1": one, "gpu2": two})["gpu2"] == Clock(offset_us=0.0, error_us=200.0)


def test_steps_quicker_than_the_error_of_a_ping_prove_nothing() -> None:
    """Nobody can say which all-reduce of one rank is which of the other: they must not be forced together."""
    hosts = dict(zip(("gpu1", "gpu2"), traces(1, [0.0, 0.0], period=2000), strict=True))
    pinged = {"gpu1": Clock(offset_us=0.0, error_us=500.0), "gpu2": Clock(offset_us=900.0, error_us=500.0)}
    assert together(pinged, pinged, hosts)["gpu2"] == Clock(offset_us=900.0, error_us=1000.0)
