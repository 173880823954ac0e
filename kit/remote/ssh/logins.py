"""Turns of hosts to log in, where each host's command goes on for long, or for ever.

Such hosts all need a thread, and only their logins are limited. Where commands end soon, the threads of fanout are the
limit.
"""

from __future__ import annotations

import os
import threading
from types import TracebackType

from kit.remote.ssh import retry


class Logins:
    """Lets `width` hosts log in at a time: if it is None, as many as this machine's cores serve."""

    def __init__(self, width: int | None = None) -> None:
        self._places = threading.Semaphore(width or retry.width(os.cpu_count() or 1))

    def turn(self) -> Turn:
        """Wait for a host's turn, and return it."""
        return Turn(self._places)


class Turn:
    """A host's turn to log in, until `end` or the end of the context."""

    def __init__(self, places: threading.Semaphore) -> None:
        places.acquire()
        self._places: threading.Semaphore | None = places

    def __enter__(self) -> Turn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """End the turn, if it has not ended: the host has logged in, or could not. For one thread."""
        places, self._places = self._places, None
        if places is not None:
            places.release()
