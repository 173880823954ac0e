"""How a command ended that has no exit code, beside a channel that is made up."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from kit.remote.ssh import fabric
from kit.remote.ssh.fabric import _is_cut


class Connection:
    def __init__(self) -> None:
        self.gone = threading.Event()

    def is_active(self) -> bool:
        return not self.gone.is_set()


def channel(connection: Connection, *, ended: bool) -> SimpleNamespace:
    return SimpleNamespace(get_transport=lambda: connection, eof_received=ended)


def test_a_connection_that_breaks_is_reported_after_its_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    # However late the timer comes.
    monkeypatch.setattr(fabric, "CUT_S", 60.0)
    connection = Connection()
    timer = threading.Timer(0.1, connection.gone.set)
    timer.start()
    assert _is_cut(channel(connection, ended=False))  # type: ignore[arg-type]
    timer.join()


def test_a_command_that_a_signal_ended_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waits"))
    assert not _is_cut(channel(Connection(), ended=True))  # type: ignore[arg-type]


def test_a_connection_that_stays_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric, "CUT_S", 0.05)
    assert not _is_cut(channel(Connection(), ended=False))  # type: ignore[arg-type]
