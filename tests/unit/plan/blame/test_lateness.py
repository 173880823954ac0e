"""Who is late: what a rank does itself, and what the network does to it."""

from __future__ import annotations

import pytest

from kit.plan.blame.lateness import Late, late
from kit.plan.blame.samples import Sample

HOSTS = {rank: f"gpu{rank + 1}" for rank in range(4)}


def sample(number: int, *, late_wait: float, operation: float) -> Sample:
    """Rank 2 waits for `late_wait` seconds a tensor, and `operation` of the time is its operations'. Others: 80 ms,
    30 %."""
    wait = dict.fromkeys(HOSTS, 0.08 + 0.001 * (number % 3)) | {2: late_wait}
    return Sample(
        seconds=1.0,
        wait=wait,
        tail=dict.fromkeys(HOSTS, 0.0),
        operation=dict.fromkeys(HOSTS, 0.3) | {2: operation},
        steps=3.0,
    )


def found(*, late_wait: float, operation: float) -> Late | None:
    return late([sample(number, late_wait=late_wait, operation=operation) for number in range(10)], HOSTS)


def test_the_rank_that_waits_least_is_late() -> None:
    one = found(late_wait=0.01, operation=0.3)
    assert one
    assert (one.host, one.ranks, one.wins) == ("gpu3", (2,), 10)
    assert one.share == pytest.approx(3 * 0.071, abs=0.002)


def test_a_rank_whose_operations_end_late_is_not_late_by_itself() -> None:
    """A slow link gives it its sums later, and so it begins the next step later, by not more than that."""
    assert found(late_wait=0.01, operation=0.55) is None


def test_what_it_is_late_beside_its_operations_stays_its_own() -> None:
    one = found(late_wait=0.01, operation=0.4)
    assert one
    assert one.share == pytest.approx(3 * 0.071 - 0.1, abs=0.002)
