"""When a failed connection is tried again, and how wide kit works."""

from __future__ import annotations

import pytest

from kit.remote.ssh.retry import ABSENT_ATTEMPTS, DROPPED_ATTEMPTS, pause_s, width


def test_a_dropped_connection_waits_longer_each_time_and_ends() -> None:
    pauses = [pause_s("dropped", attempt, 0.5) for attempt in range(1, DROPPED_ATTEMPTS + 1)]
    assert pauses[:3] == [0.4, 0.8, 1.6]
    assert pauses[-1] is None
    waits = [pause for pause in pauses if pause is not None]
    assert waits == sorted(waits)
    assert 15 < sum(waits) < 30


def test_hosts_that_were_dropped_together_do_not_come_back_together() -> None:
    first, last = pause_s("dropped", 1, 0.0), pause_s("dropped", 1, 1.0)
    assert first is not None
    assert last is not None
    assert last >= 3 * first


def test_a_host_that_is_absent_is_tried_again_soon_and_a_settled_failure_never() -> None:
    assert [pause_s("absent", attempt, 0.9) for attempt in range(1, ABSENT_ATTEMPTS + 1)] == [0.5, 1.0, None]
    assert pause_s("settled", 1, 0.5) is None


@pytest.mark.parametrize(("cores", "hosts"), [(1, 32), (2, 64), (4, 128), (8, 256), (64, 256)])
def test_width_follows_the_cores(cores: int, hosts: int) -> None:
    assert width(cores) == hosts
