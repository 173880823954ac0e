"""How long a wait for tasks bears with nodes that are down, by a clock of the test."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from kit.remote.swarm.down import DownNodes

GPU3 = "gpu3 (10.0.0.3)"


def waited(
    is_down: Callable[[float], bool], *, changed: float = 0.0, until: float = 100.0
) -> tuple[list[float], float]:
    """Return when the manager was asked, and when the wait gave up on gpu3 (`until` if it did not).

    The wait looks at the tasks each 0.3 s. They last changed at `changed`.
    """
    nodes, asked, now = DownNodes(), [], 0.0
    while now < until:
        progress = changed if now >= changed else 0.0
        if nodes.is_due(now, progress):
            asked.append(now)
            nodes.note(now, [GPU3] if is_down(now) else [])
        if nodes.steady(progress) == [GPU3]:
            return asked, now
        now = round(now + 0.3, 1)
    return asked, until


def test_a_node_that_stays_down_ends_the_wait_after_a_minute() -> None:
    _, end = waited(lambda _now: True)
    assert 60 <= end < 65.3


def test_the_manager_is_asked_each_five_seconds_at_most() -> None:
    asked, _ = waited(lambda _now: False)
    assert asked[0] == 45
    assert len(asked) == 11
    assert min(later - sooner for sooner, later in pairwise(asked)) >= 5


@pytest.mark.parametrize("start", [45.0, 50.0, 58.0, 61.0])
def test_a_node_that_is_down_briefly_does_not_end_the_wait(start: float) -> None:
    _, end = waited(lambda now: start <= now < start + 14)
    assert end == 100


def test_a_node_that_goes_down_twice_is_down_since_the_second_time() -> None:
    _, end = waited(lambda now: not 52 <= now < 58)
    assert 73 <= end < 80


def test_progress_begins_the_minute_again() -> None:
    asked, end = waited(lambda _now: True, changed=50.0, until=130.0)
    assert 110 <= end < 116
    assert not any(50 < now < 95 for now in asked)
