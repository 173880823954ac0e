"""Forwarded ports and TensorBoard as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kit.model.forward import Board, Forwarded, Forwards

LOCAL = "127.0.0.1"


def forwards(value: Forwards) -> str:
    """Return a line for each port."""
    return "\n".join(_line(value.host, port) for port in value.ports)


def _line(host: str, port: Forwarded) -> str:
    line = f"{LOCAL}:{port.local} → {host}, port {port.port}"
    if not port.address:
        return f"{line}: nothing listens there yet"
    return line if port.address in (LOCAL, "::1", "localhost") else f"{line} of {port.address}"


def board(value: Board) -> str:
    """Return where to open it, where it runs and what it reads."""
    return f"{value.url}: TensorBoard runs in the node on {value.host} and reads {value.logdir} there"
