"""Lets one program at a time work in a folder of this host."""

import contextlib
import fcntl
import os
import time
from typing import IO, Callable, Optional

from . import names

LOCK = "lock"
# A porter of the same cluster whose operator is gone ends in a minute (DEAF_S of main.py).
LOCK_S = 75.0
_POLL_S, _REPORT_S = 0.2, 2.0


class Hold:
    """The right to work in a folder. The system releases it with its process."""

    def __init__(self, busy: str = "another ship of this cluster is running here") -> None:
        """`busy` is what the error says if another program does not end."""
        self._busy = busy
        self._held = ""
        self._file: Optional[IO[str]] = None

    def take(self, folder: str, limit_s: Optional[float] = None, waiting: Optional[Callable[[], None]] = None) -> None:
        """Make the folder, and take it for this program alone. Raises OSError if another one does not end in time.

        `waiting` is called every two seconds meanwhile.
        """
        if self._held == folder:
            return
        report = time.monotonic()
        end = report + (LOCK_S if limit_s is None else limit_s)
        while True:
            # The program before may remove the folder, and the lock with it, as it ends.
            with contextlib.suppress(FileNotFoundError):
                # A private image or private code is in it.
                names.private(os.path.dirname(folder))
                names.private(folder)
                self._file = open(names.below(folder, LOCK), "w")
                if _is_mine(self._file):
                    self._held = folder
                    return
            now = time.monotonic()
            if now > end:
                raise OSError(self._busy)
            if waiting is not None and now >= report:
                report = now + _REPORT_S
                waiting()
            time.sleep(_POLL_S)

    def release(self) -> None:
        """Give the folder back, and remove it if nothing is in it."""
        if self._file is None:
            return
        # Who waits for the lock sees that its file is gone, and makes another one.
        if os.listdir(self._held) == [LOCK]:
            os.unlink(names.below(self._held, LOCK))
            with contextlib.suppress(OSError):
                os.rmdir(self._held)
        self._file.close()
        self._file, self._held = None, ""


def _is_mine(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return os.fstat(file.fileno()).st_nlink > 0
