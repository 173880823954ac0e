"""Attempts to begin one session: whether to connect again after a failure, and when. All of kit's sessions ask here."""

from __future__ import annotations

import os

from kit.errors import UnreachableError
from kit.model.host import Login
from kit.remote.ssh.locked import locked_key
from kit.remote.ssh.proxies import complaint_of, proxy_of
from kit.remote.ssh.refusals import dropped, failure_of, is_bare, keys_refused, no_session
from kit.remote.ssh.retry import pause_s


class Attempts:
    """Counts the attempts of one session in which nothing began, so that repeating it is safe."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._count = 0
        self._kept = False
        self._left_kept = False
        # None until a connection ended before the login.
        self._proxy: str | None = None
        self._complaint = ""

    def begin(self, login: Login) -> None:
        """Note whether the attempt that starts now finds a kept connection."""
        self._kept = os.path.exists(login.socket or "")  # noqa: PTH110

    def pause_s(self, text: str) -> float | None:
        """Return the seconds to wait before the next attempt, or None to give up. `text` is what ssh wrote.

        A kept connection may be dead, after a reboot for example. Then connect again at once, and only once. If a
        proxy may be the cause, this connects once more to see what the proxy writes.
        """
        import random  # noqa: PLC0415  (slow to import, and most connections succeed)

        if self._kept and not self._left_kept:
            self._left_kept = True
            return 0.0
        self._count += 1
        self._look_for_proxy(text)
        failure = failure_of(self._whole(text), proxied=bool(self._proxy))
        return pause_s(failure, self._count, random.random())  # noqa: S311  (no secret)

    def error(self, text: str) -> UnreachableError:
        """Return the error of the last attempt. `text` is what ssh wrote."""
        whole = self._whole(text)
        locked = locked_key(self._login) if keys_refused(whole) else None
        return no_session(self._login, whole, proxy=self._proxy or "", locked=locked)

    def _whole(self, text: str) -> str:
        """Return what ssh wrote, or if it only lost its connection, what the proxy wrote at the time of the look."""
        return self._complaint if self._complaint and is_bare(text) else text

    def _look_for_proxy(self, text: str) -> None:
        """Look once, because a proxy that refuses logins counts each of them."""
        if self._proxy is not None or not dropped(text):
            return
        self._proxy = proxy_of(self._login)
        if self._proxy and is_bare(text):
            self._complaint = complaint_of(self._login)
