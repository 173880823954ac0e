"""The operator's side of kit doctor's probes."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from kit.errors import StepError
from kit.model.host import Host
from kit.remote.doctor import probes
from kit.remote.ssh.transport import LiveTransport

ROOT = Path(__file__).parents[4]


def test_256_hosts_need_more_files_than_usual() -> None:
    text = (
        "import resource; from kit.remote.doctor.probes import _allow_files\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard)); _allow_files(1792)\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], min(1792, hard))"
    )
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True)
    allowed, expected = done.stdout.split()
    assert allowed == expected


def test_it_lowers_no_limit() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    probes._allow_files(16)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


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
