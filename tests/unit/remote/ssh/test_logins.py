"""Turns to log in: no more than the width at a time, and none is kept or given back twice."""

from __future__ import annotations

import threading

import pytest

from kit.remote.ssh.logins import Logins, Turn

A_MOMENT_S = 0.1
LONG_S = 30.0


def taken(logins: Logins) -> tuple[list[Turn], threading.Thread]:
    """Begin to wait for a turn in another thread."""
    turns: list[Turn] = []
    thread = threading.Thread(target=lambda: turns.append(logins.turn()), daemon=True)
    thread.start()
    return turns, thread


def test_one_more_than_the_width_waits_for_the_end_of_a_turn() -> None:
    logins = Logins(2)
    first, _ = logins.turn(), logins.turn()
    turns, thread = taken(logins)
    thread.join(A_MOMENT_S)
    assert not turns
    first.end()
    thread.join(LONG_S)
    assert len(turns) == 1


def test_a_turn_that_ended_twice_lets_one_host_in() -> None:
    logins = Logins(1)
    with logins.turn() as turn:
        turn.end()
        turn.end()
    held = logins.turn()
    turns, thread = taken(logins)
    thread.join(A_MOMENT_S)
    assert not turns
    held.end()
    thread.join(LONG_S)
    assert turns


def test_a_login_that_fails_ends_its_turn() -> None:
    logins = Logins(1)
    with pytest.raises(OSError, match="refused"), logins.turn():
        raise OSError("refused")
    turns, thread = taken(logins)
    thread.join(LONG_S)
    assert turns
