"""A tunnel's wait ends with Ctrl-C, whenever that comes, and an ssh that does not answer is reported."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from kit.errors import StepError
from kit.model.host import Host, Login
from kit.remote.ssh import tunnel as tunnels
from kit.remote.ssh.tunnel import Tunnel

LOGIN = Login(host="gpu1", address="192.0.2.1", user=None, port=None, key=None, known_hosts=None)


class _PressedJustBefore(threading.Condition):
    """A condition whose wait begins just after Ctrl-C. Python raises it when the wait ends."""

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None, "nothing ends this wait"
        raise KeyboardInterrupt


def test_ctrl_c_just_before_the_wait_ends_it() -> None:
    tunnel = Tunnel(Host(name="gpu1", address="192.0.2.1"), LOGIN, ["true"], line=print, refused=print)
    tunnel._changed = _PressedJustBefore()
    with tunnel, pytest.raises(KeyboardInterrupt):
        tunnel.wait()


def test_an_ssh_that_does_not_answer_whether_it_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nexec sleep 60\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(tunnels, "_ASK_S", 0.2)
    tunnel = Tunnel(Host(name="gpu1", address="192.0.2.1"), LOGIN, ["true"], line=print, refused=print)
    with pytest.raises(StepError, match="ssh did not answer") as caught:
        tunnel.forward(8000, "10.0.0.1", 6006)
    assert caught.value.hint == "run the same again"
