"""The limit of open files: kit raises it for many hosts, and names it where that is not enough."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.errors import StepError
from kit.model.host import Host
from kit.remote.doctor.probes import Probes
from kit.remote.ssh import fanout, open_files
from kit.remote.ssh.transport import LiveTransport
from kit.remote.watch.watchers import Watchers
from tests.fakes.facts import host

ROOT = Path(__file__).parents[4]
HOSTS = [host(n) for n in range(1, 41)]


def test_256_hosts_need_more_files_than_usual() -> None:
    text = (
        "import resource; from kit.remote.ssh import open_files\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard)); open_files.allow(256)\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], min(2304, hard))"
    )
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True)
    allowed, expected = done.stdout.split()
    assert allowed == expected


def test_it_lowers_no_limit() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_files.allow(0)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def _gone(_host: Host) -> LiveTransport:
    raise StepError("gone")


def _enter(context: Any) -> None:
    with context:
        pass


@pytest.mark.parametrize(
    ("start", "commands"),
    [
        (lambda: fanout.each(HOSTS, lambda one: one.name, width=32), 32),
        (lambda: fanout.each(HOSTS[:3], lambda one: one.name, width=32), 3),
        (lambda: _enter(Watchers(HOSTS, _gone, count=1)), 40),
        (lambda: _enter(Probes(HOSTS, _gone)), 40),
    ],
    ids=["fan-out", "few", "watchers", "probes"],
)
def test_who_starts_commands_allows_their_files(
    start: Callable[[], object], commands: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 5000))
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: set_to.append(both))
    start()
    assert set_to == [(8 * commands + 256, 5000)]


def test_a_machine_without_memory_for_a_process_needs_another_hint() -> None:
    error = open_files.no_connection(OSError(errno.EAGAIN, "Resource temporarily unavailable"), "gpu1")
    assert error.message == "this machine cannot open another connection: Resource temporarily unavailable"
    assert error.hint == "end other processes here, then run the same again"


def test_descriptors_over_1023_are_waited_for() -> None:
    open_files.allow(128)
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1200:
        pytest.skip("the system permits no more open files")
    pipe = os.pipe()
    high = fcntl.fcntl(pipe[0], fcntl.F_DUPFD, 1100)
    try:
        assert open_files.ready([high], 0.0) == []
        os.write(pipe[1], b"x")
        assert open_files.ready([high], None) == [high]
    finally:
        for descriptor in (*pipe, high):
            os.close(descriptor)
