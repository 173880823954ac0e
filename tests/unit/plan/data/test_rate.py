"""The text of a bar, and how far all hosts are."""

from __future__ import annotations

import pytest

from kit.model.staging import Need, StagingPlan, StagingProgress
from kit.plan.data.rate import Rate, bar_text, clock, fraction_of

MEGA = 1_000_000


def test_the_rate_is_that_of_the_last_seconds() -> None:
    rate = Rate()
    assert rate.bytes_per_s is None
    rate.add(0.0, 0)
    assert rate.bytes_per_s is None
    for second in range(1, 21):
        rate.add(second, second * MEGA)
    assert rate.bytes_per_s == MEGA
    for second in range(21, 41):
        rate.add(second, 20 * MEGA + (second - 20) * 3 * MEGA)
    assert rate.bytes_per_s == 3 * MEGA


def test_a_count_that_begins_again_is_no_negative_rate() -> None:
    rate = Rate()
    for second, at in enumerate((0, 5 * MEGA, 9 * MEGA, MEGA, 2 * MEGA)):
        rate.add(second, at)
    assert rate.bytes_per_s == MEGA


@pytest.mark.parametrize(
    ("at", "need", "rate", "text"),
    [
        (0, 60_000 * MEGA, None, "0.00 of 60.00 GB"),
        (1_200 * MEGA, 60_000 * MEGA, 112 * MEGA, "1.20 of 60.00 GB, 112.0 MB/s, 0:08:45 left"),
        (1_200 * MEGA, 60_000 * MEGA, 0, "1.20 of 60.00 GB, 0.0 MB/s"),
        (1_000, 2_000, 5.0, "data"),
    ],
)
def test_a_bar(at: int, need: int, rate: float | None, text: str) -> None:
    assert bar_text(at, need, rate) == text


def test_a_clock() -> None:
    assert [clock(seconds) for seconds in (0, 59.4, 3600, 1e12)] == ["0:00:00", "0:00:59", "1:00:00", "999:00:00"]


def test_all_hosts_together() -> None:
    plan = StagingPlan(hosts={"a": Need(need=100), "b": Need(need=300), "c": Need(have=9)})
    assert fraction_of(plan, StagingProgress(at={"a": 100, "b": 100, "stranger": 999})) == 0.5
    assert fraction_of(StagingPlan(), StagingProgress()) == 0.0
