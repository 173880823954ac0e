"""A program in a real terminal, with a person's keys."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROWS, COLUMNS = 33, 101


class Terminal:
    """A terminal in which a program runs. `text` is what it showed until now."""

    def __init__(
        self, argv: Sequence[str], environ: Mapping[str, str], *, rows: int = ROWS, columns: int = COLUMNS
    ) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(argv[0], list(argv), {**environ, "TERM": "xterm-256color"})  # noqa: S606  (an argv, no shell)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.text = ""
        self._code: int | None = None

    def read_until(self, done: Callable[[str], bool], *, patience_s: float = 30.0) -> None:
        end = time.monotonic() + patience_s
        while not done(self.text):
            assert select.select([self.fd], [], [], max(0.0, end - time.monotonic()))[0], self.text
            try:
                data = os.read(self.fd, 4096)
            except OSError:
                data = b""
            if not data:
                assert done(self.text), self.text
                return
            self.text += data.decode(errors="replace")

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def code(self) -> int:
        """Wait for the program's end and return its exit code."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def close(self) -> None:
        """Close the terminal, and end the program if it does not end by that."""
        with contextlib.suppress(OSError):
            os.close(self.fd)
        end = time.monotonic() + 20
        while self._code is None and time.monotonic() < end:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self._code = os.waitstatus_to_exitcode(status)
                    return
            time.sleep(0.02)
        if self._code is None and Path(f"/proc/{self.pid}").exists():
            os.kill(self.pid, signal.SIGKILL)
            self.code()
