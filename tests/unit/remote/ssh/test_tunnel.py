"""A tunnel's wait ends with Ctrl-C, whenever that comes."""

from __future__ import annotations

import threading

import pytest

from kit.model.host import Host, Login
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
