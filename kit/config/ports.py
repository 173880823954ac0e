"""The ports in addresses of kit.yaml."""

from __future__ import annotations

from kit.config.kinds import FieldError

_MOST = 65535


def check_port(server: str) -> None:
    """Raise FieldError if HOST:PORT has a number that is no port. A server without a port is fine."""
    port = server.rpartition(":")[2] if ":" in server else ""
    if port.isascii() and port.isdigit() and not 1 <= int(port) <= _MOST:
        # Without the number: in an address that lacks its @, it is a password.
        raise FieldError(f"this has a port that is not from 1 to {_MOST}")
