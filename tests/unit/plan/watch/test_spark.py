"""Short forms for a screen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.plan.watch.spark import PAIR, amount, core_time, of, pair, percent, share, sparkline


def test_a_sparkline_has_the_newest_value_at_the_right() -> None:
    assert sparkline([0, 1, 50, 100, None, 250], 8) == "   ▁▄█ █"
    assert sparkline([100, 0, 100], 2) == " █"
    assert sparkline([100, 0, 50], 3, ascii_only=True) == "@ ="
    assert sparkline([1], 0) == ""
    assert sparkline([5], 1, top=0) == " "
    assert sparkline([5, -5], 2, top=10) == "▄ "


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "N/A"), (0, "0"), (999.4, "999"), (999.6, "1.0k"), (9949, "9.9k"), (9951, "10k"), (12_345, "12k"),
     (1.1e9, "1.1G"), (999_600_000, "1.0G"), (4e15, "4.0P"), (9e20, "900E"), (-5, "0")],
)  # fmt: skip
def test_amounts(value: float | None, text: str) -> None:
    assert amount(value) == text


@given(st.floats(min_value=0, max_value=9e17))
def test_an_amount_has_at_most_four_letters(value: float) -> None:
    assert len(amount(value)) <= 4


def test_pairs_and_shares() -> None:
    assert of(120e9, 512e9) == "120/512G"
    assert of(None, 5) == of(1, 0) == of(1, None) == "N/A"
    assert of(0, 9_999_600) == "0/10M"
    assert pair(694.1, 700, "W") == "694/700W"
    assert (pair(None, 700, "W"), pair(1, None), pair(None, None, "W")) == ("N/A/700W", "1/N/A", "N/A")
    assert (share(96.6), share(None)) == ("97%", "N/A")
    assert (percent(1, 4), percent(None, 4), percent(1, 0), percent(1, None)) == (25.0, None, None, None)


@pytest.mark.parametrize(
    ("used", "total", "text"),
    [
        (999e9, 2164e9, "999/2164G"),
        (1288e9, 2324e9, "1.3/2.3T"),
        (9.96e12, 9.99e12, "10/10T"),
        (12e12, 24e12, "12/24T"),
    ],
)
def test_memory_of_large_hosts(used: float, total: float, text: str) -> None:
    assert of(used, total) == text


@given(st.floats(min_value=1, max_value=9e17), st.floats(min_value=0, max_value=1))
def test_memory_fits_its_cell(total: float, part: float) -> None:
    assert len(of(part * total, total)) <= PAIR


@pytest.mark.parametrize(
    ("power", "limit", "text"), [(995.4, 1000, "995/1000W"), (1003, 1200, "1003/1200"), (1003, None, "1003/N/A")]
)
def test_power_of_large_gpus(power: float, limit: float | None, text: str) -> None:
    assert pair(power, limit, "W") == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (1894.4, "1894s"), (999_999, "999999s"), (999_999.7, "278h"), (1_234_567, "343h")]
)
def test_core_times(seconds: float, text: str) -> None:
    assert core_time(seconds) == text
