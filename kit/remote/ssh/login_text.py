"""What a VM prints besides the output of a command: by the files of its login, by sudo and by its shell. Pure."""

from __future__ import annotations

import re

from kit.model.answer import OddAnswer
from kit.remote.ssh.transport import BEGUN

# What a login may print before the command, in bytes.
MOST_BEFORE = 2**20
_SHOWN = 100
# How warnings of sudo and of a shell begin. sudo cannot resolve the VM's own name; the shell lacks a locale, and may
# name its line, which `_NUMBER` matches.
_WARNINGS = (
    "sudo: unable to resolve host ",
    "bash: warning: setlocale: ",
    "sh: warning: setlocale: ",
)
_NUMBER = re.compile(r"((?:ba)?sh: )line [0-9]+: ")
_BEFORE_NUMBER = ("bash: line ", "sh: line ")
_PART_OF_NUMBER = re.compile(r"(?:ba)?sh: line [0-9]+:?")


class LoginText:
    """Cuts off what a login prints before a command of kit.remote.ssh.transport.marked, in one stream.

    The stream's bytes come in pieces. `before` is what was cut off so far.
    """

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
    """Return what a command of `marked` wrote, of all that came. Return everything if the command never began."""
    at = text.find(BEGUN)
    return bytes(memoryview(text)[at + len(BEGUN) :] if at >= 0 else text)


def without_warnings(errors: str) -> str:
    """Return standard error without the warnings that sudo and a shell write before the command's own words."""
    while _NUMBER.sub(r"\1", errors, count=1).startswith(_WARNINGS):
        errors = errors.partition("\n")[2]
    return errors


def may_be_warning(beginning: str) -> bool:
    """Return whether this beginning of a line can still become such a warning."""
    words = _NUMBER.sub(r"\1", beginning, count=1)
    beginnings = (*_WARNINGS, *_BEFORE_NUMBER) if words == beginning else _WARNINGS
    return any(text.startswith(words) for text in beginnings) or bool(_PART_OF_NUMBER.fullmatch(beginning))
