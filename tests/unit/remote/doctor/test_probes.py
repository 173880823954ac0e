"""The operator's side of kit doctor's probes."""

from __future__ import annotations

import pytest

from kit.errors import StepError
from kit.model.host import Host
from kit.remote.doctor import probes
from kit.remote.ssh.transport import LiveTransport


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(24, "Too many open files"), "this machine cannot open another connection: Too many open files"),
        (ZeroDivisionError("division by zero"), "kit failed: ZeroDivisionError: division by zero"),
    ],
)
def test_no_host_waits_for_a_connection_that_failed_here(error: Exception, text: str) -> None:
    def connect(_host: Host) -> LiveTransport:
        raise error

    with probes.Probes([Host(name="gpu1", address="10.0.0.1")], connect) as made:
        assert made.greet(len) == {}
        assert made.alive == ()
        failure = made.failures["gpu1"]
    assert isinstance(failure, StepError)
    assert failure.message == text
