"""Sends kit's standard input to rank 0 of a run, while the run's output comes."""

from __future__ import annotations

import base64
import fcntl
import os
import stat
import sys
import termios
import threading
from typing import Any

from kit.remote.machine.stdin import read_some
from kit.remote.run.door import Door

CHUNK = 32768


def piped(stream: Any) -> int | None:
    """Return the descriptor of a stream that is a pipe, a socket or a file; None for a terminal or /dev/null."""
    try:
        descriptor = int(stream.fileno())
        mode = os.fstat(descriptor).st_mode
    except (AttributeError, OSError, ValueError):
        return None
    return descriptor if stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode) else None


def holds_data(descriptor: int) -> bool:
    """Return whether a pipe, a socket or a file has bytes that nobody has read yet. It reads none and never waits."""
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return os.lseek(descriptor, 0, os.SEEK_CUR) < os.fstat(descriptor).st_size
        waiting = bytearray(4)
        fcntl.ioctl(descriptor, termios.FIONREAD, waiting)
    except OSError:
        return False
    return int.from_bytes(waiting, sys.byteorder) > 0


class Feed(threading.Thread):
    """Reads a descriptor to its end, and sends what it reads through a door."""

    def __init__(self, descriptor: int, door: Door) -> None:
        super().__init__(name="kit-stdin", daemon=True)
        self._descriptor, self._door = descriptor, door
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            try:
                data = read_some(self._descriptor, CHUNK)
            except OSError:
                data = b""
            if self._over.is_set():
                return
            if not data:
                self._over.set()
            self._door.send({"stdin": base64.b64encode(data).decode() if data else None})

    def cut(self) -> bool:
        """Stop, because the connection broke. Return whether the input had not ended."""
        before = self._over.is_set()
        self._over.set()
        return not before
