"""Passes the standard input of `kit run` on to mpirun, which gives it to rank 0."""

import contextlib
import fcntl
import os
from typing import IO

from kitrun import store

CHUNK = 65536
# Linux's F_SETPIPE_SZ, which Python's fcntl does not name before 3.10. A large pipe needs few looks at it.
SET_SIZE, SIZE = 1031, 1 << 20


class Feeder:
    """Copies the run's file `stdin`, as it grows, into mpirun's standard input. It never waits.

    When kit's standard input or its connection has ended, rank 0 sees the end of its input, and the run continues.
    """

    def __init__(self, run: store.Run, pipe: "IO[bytes]") -> None:
        self._run, self._pipe = run, pipe
        self._file = open(run.path("stdin"), "rb")  # noqa: SIM115  (open as long as the attempt)
        self._rest = b""
        os.set_blocking(pipe.fileno(), False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe.fileno(), SET_SIZE, SIZE)

    def feed(self) -> None:
        """Write what there is and fits."""
        while not self._pipe.closed:
            if not self._rest:
                # Look before reading: what is written before the end is read.
                over = os.path.exists(self._run.path("stdin.end"))
                self._rest = self._file.read(CHUNK)
                if not self._rest:
                    if over:
                        self.close()
                    return
            try:
                self._rest = self._rest[os.write(self._pipe.fileno(), self._rest) :]
            except BlockingIOError:
                return
            except OSError:
                # Nobody reads it any more.
                self.close()

    def close(self) -> None:
        self._file.close()
        with contextlib.suppress(OSError):
            self._pipe.close()
