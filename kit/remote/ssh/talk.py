"""Talks with one process of ssh: lets its command begin, feeds it, and passes on what it writes."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import threading
import time
from typing import IO

from msgspec import Struct

from kit.remote.ssh.transport import BEGUN, Live, Reader

# From the start of ssh to the start of the command. sshd's own limit for a login is 120 s.
START_S = 60.0
CHUNK = 1 << 16
# After the end of ssh, a master that was left behind by an old version may still hold standard error.
_DRAIN_S = 0.2
# How soon a live command notices that it must stop.
_LOOK_S = 0.2
# A live command has this time to end after it must stop. The one who stops it ends it on the host.
STOP_S = 15.0
_TAIL = 4096
_LOGIN_BYTES = 1 << 18


class Ended(Struct, frozen=True, kw_only=True):
    """How one process of ssh ended, and whether the command began.

    `errors` is what ssh wrote to standard error if the command did not begin, else the last of what both wrote there.
    `before` is the end of what the VM printed before a command began.
    """

    begun: bool
    code: int
    errors: bytes
    before: bytes = b""


class LateError(Exception):
    """The command did not begin in time, or did not end in time."""

    def __init__(self, *, begun: bool) -> None:
        super().__init__()
        self.begun = begun


class StoppedError(Exception):
    """The command was not allowed to begin."""


class Talk:
    """Feeds one process of ssh and passes on all that it writes, until it ends or its time is over."""

    def __init__(self, process: subprocess.Popen[bytes], live: Live, *, stdin: bytes = b"", timeout_s: float) -> None:
        self._process = process
        self._live = live
        # The first line lets the command begin. It is sent after the session answered: a connection that is dead
        # can never run the command later, behind the back of another attempt.
        self._pending = memoryview(b"\n" + stdin)
        self._timeout_s = timeout_s
        self._errors = bytearray()
        self._before = b""
        self._begun = False
        self._reader: Reader | None = None
        self._deadline = time.monotonic() + START_S
        self._selector = selectors.DefaultSelector()

    def run(self) -> Ended:
        """Return how it ended. Raise LateError if its time is over, and StoppedError if it may not begin."""
        try:
            with self._selector:
                for pipe in (self._process.stdout, self._process.stderr):
                    self._selector.register(_pipe(pipe), selectors.EVENT_READ)
                os.set_blocking(_pipe(self._process.stdin).fileno(), False)
                self._pump()
        finally:
            if self._reader is not None:
                self._reader.close()
        code = self._process.wait()
        return Ended(begun=self._begun, code=code, errors=bytes(self._errors), before=self._before)

    def _pump(self) -> None:
        while self._reads():
            now = time.monotonic()
            ended = self._process.poll() is not None
            self._look_for_stop(now)
            if not ended and now > self._deadline:
                raise LateError(begun=self._begun)
            longest = _LOOK_S if self._live.stop is not None else 1.0
            ready = self._selector.select(_DRAIN_S if ended else min(self._deadline - now, longest))
            for key, _ in ready:
                pipe = key.fileobj
                if pipe is self._process.stdin:
                    self._feed()
                else:
                    self._read(pipe)  # type: ignore[arg-type]  # the pipes that were registered
            if ended and not ready:
                return

    def _look_for_stop(self, now: float) -> None:
        if self._live.stop is not None and self._live.stop.is_set():
            if not self._begun:
                raise StoppedError
            self._deadline = min(self._deadline, now + STOP_S)

    def _reads(self) -> bool:
        return any(key.fileobj is not self._process.stdin for key in self._selector.get_map().values())

    def _read(self, pipe: IO[bytes]) -> None:
        data = os.read(pipe.fileno(), CHUNK)
        if not data:
            self._selector.unregister(pipe)
            return
        if pipe is self._process.stdout:
            # Before the command, a login's own files may print something. It matters only if no command begins.
            if self._begun:
                self._live.out(data)
            else:
                self._before = (self._before + data)[-_TAIL:]
            return
        self._errors += data
        if self._begun:
            self._errors = self._errors[-_TAIL:]
            self._live.err(data)
        else:
            # A login prints little before the session, and its end is what matters.
            self._errors = self._errors[-_LOGIN_BYTES:]
            self._begin()

    def _begin(self) -> None:
        """Let the command begin when the session answers. What a login's own files wrote before is not its output."""
        _, mark, after = bytes(self._errors).partition(BEGUN)
        if not mark:
            return
        if self._live.begin is not None and not self._live.begin():
            raise StoppedError
        self._errors = bytearray(after)
        self._begun = True
        self._deadline = time.monotonic() + self._timeout_s
        self._selector.register(_pipe(self._process.stdin), selectors.EVENT_WRITE)
        if after:
            self._live.err(after)

    def _feed(self) -> None:
        stdin = _pipe(self._process.stdin)
        try:
            self._pending = self._pending[os.write(stdin.fileno(), self._pending[:CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:
            # A command may end without reading its input.
            self._pending = self._pending[:0]
        if self._pending:
            return
        self._selector.unregister(stdin)
        if self._live.stdin is not None:
            self._reader = self._live.stdin()
            # The thread has its own descriptor, because nobody knows when it gets to close it.
            own = os.dup(stdin.fileno())
            os.set_blocking(own, True)
            threading.Thread(target=pour, args=(self._reader, own), daemon=True).start()
        with contextlib.suppress(OSError):
            stdin.close()


def pour(reader: Reader, descriptor: int) -> None:
    """Write all that the reader has to the descriptor, and close it. A command may end without reading its input."""
    try:
        while data := reader.read(CHUNK):
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
    except OSError:
        return
    finally:
        os.close(descriptor)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RuntimeError("the process was started without this pipe")
    return pipe
