"""Makes the real transports, one for each host and thread."""

from __future__ import annotations

from collections.abc import Mapping

from kit.model.host import Host, Login
from kit.remote.ssh.fabric import FabricTransport
from kit.remote.ssh.transport import Connect, Transport


def connector(logins: Mapping[str, Login]) -> Connect:
    """Connects to a host by fabric, as its login says."""

    def connect(host: Host) -> Transport:
        return FabricTransport(host, logins[host.name])

    return connect
