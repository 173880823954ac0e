"""The keys that a person presses, without waiting for the end of a line, and the terminal as it was afterwards."""

from __future__ import annotations

import contextlib
import os
import select
import termios
import tty
from types import TracebackType
from typing import Any

# What terminals send for keys without a letter.
_NAMED = {
    b"\x1b[A": "up", b"\x1bOA": "up", b"\x1b[B": "down", b"\x1bOB": "down",
    b"\x1b[5~": "pageup", b"\x1b[6~": "pagedown",
    b"\x1b[H": "home", b"\x1bOH": "home", b"\x1b[1~": "home", b"\x1b[7~": "home",
    b"\x1b[F": "end", b"\x1bOF": "end", b"\x1b[4~": "end", b"\x1b[8~": "end",
    b"\x1bOP": "f1", b"\x1b[11~": "f1", b"\x1b[[A": "f1",
    b"\x1bOR": "f3", b"\x1b[13~": "f3", b"\x1b[[C": "f3",
    b"\x1bOS": "f4", b"\x1b[14~": "f4", b"\x1b[[D": "f4",
    b"\x1b[17~": "f6", b"\x1b[21~": "f10",
    b"\t": "tab", b"\r": "enter", b"\n": "enter", b"\x7f": "backspace", b"\x08": "backspace", b"\x1b": "esc",
}  # fmt: skip
_LONGEST = max(map(len, _NAMED))
# The rest of a key's sequence comes with its beginning, or at once after it.
_REST_S = 0.05


def split(data: bytes) -> tuple[list[str], bytes]:
    """Return the keys in what a terminal sent, and the beginning of a key that is not complete."""
    keys: list[str] = []
    while data:
        for length in range(min(_LONGEST, len(data)), 0, -1):
            name = _NAMED.get(data[:length])
            if name is not None and (name != "esc" or data[1:2] not in (b"[", b"O")):
                keys.append(name)
                data = data[length:]
                break
        else:
            if data[:1] == b"\x1b":
                end = next((at for at, byte in enumerate(data[2:], 2) if 0x40 <= byte <= 0x7E), None)
                if end is None:
                    return keys, data
                # A key that kit does not know.
                data = data[end + 1 :]
                continue
            length = _length(data[0])
            if len(data) < length:
                return keys, data
            text = data[:length].decode(errors="ignore")
            keys += [text] if text.isprintable() and text else []
            data = data[length:]
    return keys, b""


def _length(first: int) -> int:
    """Return how many bytes a character has that begins with this one, in UTF-8."""
    return 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2 if first >= 0xC0 else 1


class Keys:
    """Reads keys from a terminal. Ctrl-C stays a signal. Leaving the context sets the terminal as it was."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._before: Any = None
        self._rest = b""
        self.over = False

    def __enter__(self) -> Keys:
        self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The terminal may be gone.
        with contextlib.suppress(termios.error):
            # What was typed for the screen must not reach the shell.
            termios.tcsetattr(self._descriptor, termios.TCSAFLUSH, self._before)

    def read(self, wait_s: float) -> list[str]:
        """Return the keys that came, after at most this time."""
        if self.over or not select.select([self._descriptor], [], [], wait_s)[0]:
            return []
        data = os.read(self._descriptor, 1024)
        self.over = not data
        keys, self._rest = split(self._rest + data)
        if self._rest and not select.select([self._descriptor], [], [], _REST_S)[0]:
            # It was no sequence: Esc, and then a bracket.
            keys += ["esc"]
            self._rest = b""
        return keys
