"""Makes the real transports, and ends those that are still at work when kit ends."""

from __future__ import annotations

import atexit
import contextlib
import weakref

from kit.model.host import Host, Login
from kit.remote.ssh.multiplexed import OpenSshTransport
from kit.remote.ssh.transport import Transport


def connected(host: Host, login: Login) -> Transport:
    """Return a transport by OpenSSH's client. The first command connects it."""
    transport = OpenSshTransport(host, login)
    # After Ctrl-C, threads that nobody waits for may still be at work.
    atexit.register(_end, weakref.ref(transport))
    return transport


def _end(reference: weakref.ref[OpenSshTransport]) -> None:
    transport = reference()
    if transport is not None:
        with contextlib.suppress(Exception):
            transport.close()
