"""A machine that cannot start ssh: every way to a host says why, and what to do."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.errors import StepError
from kit.flows.cluster.exec import exec_in_terminal
from kit.flows.cluster.ssh import ssh
from kit.flows.context import Context
from kit.model.host import Host, Login
from kit.remote.cluster import lock
from kit.remote.engine.client import Engine
from kit.remote.run.door import Door
from kit.remote.ssh.multiplexed import OpenSshTransport
from tests.fakes.fleet import Fleet
from tests.fakes.reporter import Remembering

LOGIN = Login(host="gpu1", address="10.0.0.1", user="root", port=None, key=None, known_hosts=None)
LONG = "x" * 200_000


@pytest.fixture
def context() -> Context:
    return Fleet(2).context(Remembering())


@pytest.mark.parametrize(
    "start",
    [
        lambda _: Door(LOGIN, "kit-lab-mpihead").start(),
        lambda _: lock.take(LOGIN, "/opt/kit/.lock/lab", "kit deploy"),
        lambda _: OpenSshTransport(Host(name="gpu1", address="10.0.0.1"), LOGIN).run(["true"]),
        lambda _: Engine.over_ssh(LOGIN),
        lambda context: ssh(context, "gpu2", [], tty=True),
        lambda context: exec_in_terminal(context, "gpu2", ["bash"]),
    ],
    ids=["door", "lock", "command", "engine", "kit ssh", "kit exec -t"],
)
def test_a_machine_without_ssh(
    start: Callable[[Context], object], context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = signal.getsignal(signal.SIGINT)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StepError, match="no ssh client") as caught:
        start(context)
    assert caught.value.hint == "install OpenSSH: apt-get install openssh-client"
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.parametrize(
    "start",
    [
        lambda _: OpenSshTransport(Host(name="gpu2", address="10.0.0.2"), LOGIN).run(["echo", LONG]),
        lambda context: ssh(context, "gpu2", ["echo", LONG], tty=False),
        lambda context: exec_in_terminal(context, "gpu2", ["echo", LONG]),
    ],
    ids=["command", "kit ssh", "kit exec -t"],
)
def test_a_command_that_is_too_long(
    start: Callable[[Context], object], context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ssh").write_text("#!/bin/sh\nexit 255\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StepError, match=r"^gpu2: the command is too long") as caught:
        start(context)
    assert caught.value.hint == "write it to a file, and give that as the input: -- sh < FILE"
