"""kit's standard input for commands on many hosts: each host gets all of it, and no more than a part is in memory."""

from __future__ import annotations

import os
import stat
import tempfile
import threading
from typing import BinaryIO

from kit.errors import KitError, StepError
from kit.remote.machine.scratch import scratch_folder

# A single host's input is kept this far, in case its command has to be started again. A command that has not begun
# leaves less than this in the buffers on the way.
KEPT = 8 << 20


def read_some(descriptor: int, most: int) -> bytes:
    """Read up to `most` bytes, or nothing at the end. It waits for them, also if another program forbids that.

    Another program with the same pipe, such as Node or ssh, may make reads fail instead, at any time.
    """
    while True:
        try:
            return os.read(descriptor, most)
        except BlockingIOError:
            os.set_blocking(descriptor, True)


class Input:
    """One descriptor, read once, for `hosts` readers. kit reads only as far as the fastest host has taken it.

    A file is read in place. Other input goes to a temporary file on disk, except for that of a single host.
    """

    def __init__(self, descriptor: int, *, hosts: int) -> None:
        self._descriptor = descriptor
        self._hosts = hosts
        self._changed = threading.Condition()
        self._reading = False
        self._over = False
        self._size = 0
        self._dropped = False
        self._spool: BinaryIO | None = None
        self.error: KitError | None = None
        self._start = _place(descriptor)

    def reader(self) -> _Reader:
        """Return a reader from the start. It may be called again for a host whose command did not begin."""
        if self._dropped:
            self.error = StepError(
                "the command did not start after it was sent some of its input", hint="start it again"
            )
            raise self.error
        return _Reader(self)

    def at(self, offset: int, most: int, closed: threading.Event) -> bytes:
        """Return bytes at the offset, or nothing at the end. It waits for them."""
        if self._start is not None:
            return os.pread(self._descriptor, most, self._start + offset)
        with self._changed:
            while True:
                if closed.is_set():
                    return b""
                if offset < self._size:
                    return self._stored(offset, min(most, self._size - offset))
                if self._over:
                    return b""
                if not self._reading:
                    self._reading = True
                    break
                self._changed.wait()
        return self._read(most)

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _read(self, most: int) -> bytes:
        data = b""
        try:
            data = read_some(self._descriptor, most)
        finally:
            with self._changed:
                self._reading = False
                self._over = not data
                try:
                    self._store(data)
                except OSError as error:
                    self._over, data = True, b""
                    self.error = StepError(
                        f"the input could not be kept on this machine: {error.strerror}",
                        hint="make room in /var/tmp, or set TMPDIR to another disk",
                    )
                self._changed.notify_all()
        return data

    def _store(self, data: bytes) -> None:
        self._dropped = self._dropped or (self._hosts == 1 and self._size + len(data) > KEPT)
        if not self._dropped and data:
            if self._spool is None:
                folder = scratch_folder(os.environ)
                self._spool = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  (it ends with kit)
            view = memoryview(data)
            while view:
                view = view[os.pwrite(self._spool.fileno(), view, self._size + len(data) - len(view)) :]
        self._size += len(data)

    def _stored(self, offset: int, count: int) -> bytes:
        return os.pread(self._spool.fileno(), count, offset) if self._spool is not None else b""


class _Reader:
    def __init__(self, source: Input) -> None:
        self._source = source
        self._offset = 0
        self._closed = threading.Event()

    def read(self, most: int) -> bytes:
        data = self._source.at(self._offset, most, self._closed)
        self._offset += len(data)
        return data

    def close(self) -> None:
        self._closed.set()
        self._source.wake()


def _place(descriptor: int) -> int | None:
    """Return where a regular file is read from, or None for a pipe or a device."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return None
    return os.lseek(descriptor, 0, os.SEEK_CUR)
