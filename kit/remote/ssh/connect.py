"""Makes the real transports, and ends those that are still at work when kit ends."""

from __future__ import annotations

import atexit
import contextlib
import weakref

from kit.model.host import Host, Login
from kit.remote.ssh.multiplexed import OpenSshTransport
from kit.remote.ssh.transport import LiveTransport


def connected(host: Host, login: Login, *, alone: bool = False) -> LiveTransport:
    """Return a transport to the host. The first command connects it.

    OpenSSH's client serves many hosts, and keeps connections. fabric serves a host that is `alone`, if nothing is kept.
    """
    if alone and login.socket is None:
        from kit.remote.ssh.fabric import FabricTransport  # noqa: PLC0415  (paramiko is slow to import)

        return FabricTransport(host, login)
    transport = OpenSshTransport(host, login)
    # After Ctrl-C, threads that nobody waits for may still be at work.
    atexit.register(_end, weakref.ref(transport))
    return transport


def _end(reference: weakref.ref[OpenSshTransport]) -> None:
    transport = reference()
    if transport is not None:
        with contextlib.suppress(Exception):
            transport.close()
