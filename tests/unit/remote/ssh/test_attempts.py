"""How often a session is begun."""

from __future__ import annotations

from pathlib import Path

from kit.model.host import Login
from kit.model.values import replace
from kit.remote.ssh.attempts import Attempts
from kit.remote.ssh.retry import DROPPED_ATTEMPTS

LOGIN = Login(host="gpu1", address="10.0.0.1", user="root", port=None, key=None, known_hosts=None)
HUNG_UP = "kex_exchange_identification: Connection closed by remote host"


def test_a_dead_kept_connection_costs_one_attempt_and_no_pause(tmp_path: Path) -> None:
    socket = tmp_path / "s"
    socket.touch()
    attempts = Attempts(LOGIN)
    attempts.begin(replace(LOGIN, socket=str(socket)))
    assert attempts.pause_s("") == 0.0
    attempts.begin(replace(LOGIN, socket=str(socket)))
    assert attempts.pause_s("") is None


def test_a_new_connection_that_is_refused_is_settled(tmp_path: Path) -> None:
    attempts = Attempts(LOGIN)
    attempts.begin(replace(LOGIN, socket=str(tmp_path / "missing")))
    assert attempts.pause_s("Permission denied (publickey).") is None


def test_a_host_that_hangs_up_gets_all_its_attempts() -> None:
    attempts = Attempts(LOGIN)
    pauses = []
    for _ in range(DROPPED_ATTEMPTS):
        attempts.begin(LOGIN)
        pauses.append(attempts.pause_s(HUNG_UP))
    assert all(pauses[:-1])
    assert pauses[-1] is None
