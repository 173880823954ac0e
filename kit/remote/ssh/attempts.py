"""Attempts to begin one session: whether to connect again after a failure, and when. All of kit's sessions ask here."""

from __future__ import annotations

import os
import random

from kit.model.host import Login
from kit.remote.ssh.refusals import failure_of
from kit.remote.ssh.retry import pause_s


class Attempts:
    """Counts the attempts of one session in which nothing began, so that repeating it is safe."""

    def __init__(self) -> None:
        self._count = 0
        self._kept = False
        self._left_kept = False

    def begin(self, login: Login) -> None:
        """Note whether the attempt that starts now finds a kept connection."""
        self._kept = os.path.exists(login.socket or "")  # noqa: PTH110

    def pause_s(self, text: str) -> float | None:
        """Return the seconds to wait before the next attempt, or None to give up. `text` is what ssh wrote.

        A kept connection may be dead, after a reboot for example. Then connect again at once, and only once.
        """
        if self._kept and not self._left_kept:
            self._left_kept = True
            return 0.0
        self._count += 1
        return pause_s(failure_of(text), self._count, random.random())  # noqa: S311  (no secret)
