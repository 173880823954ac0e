"""Cuts off what the files of a VM's login print before a command of kit.remote.ssh.transport.marked. Pure."""

from __future__ import annotations

from kit.model.answer import OddAnswer
from kit.remote.ssh.transport import BEGUN

# What a login may print before the command, in bytes.
MOST_BEFORE = 2**20
_SHOWN = 100


class LoginText:
    """Cuts it off one stream whose bytes come in pieces. `before` is what was cut off so far."""

    def __init__(self) -> None:
        self.before = bytearray()
        self.begun = False

    def cut(self, data: bytes) -> bytes:
        """Return the part of `data` that the command wrote. Raises OddAnswer if the login prints too much."""
        if self.begun:
            return data
        searched = max(0, len(self.before) - len(BEGUN))
        self.before += data
        at = self.before.find(BEGUN, searched)
        if (at if at >= 0 else len(self.before)) > MOST_BEFORE:
            raise OddAnswer(f"it has more than {MOST_BEFORE} bytes", bytes(self.before[:_SHOWN]))
        if at < 0:
            return b""
        own = bytes(self.before[at + len(BEGUN) :])
        del self.before[at:]
        self.begun = True
        return own


def own_output(text: bytearray) -> bytes:
    """Return what the command wrote, of all that came. Return everything if the command never began."""
    at = text.find(BEGUN)
    return bytes(memoryview(text)[at + len(BEGUN) :] if at >= 0 else text)
