"""Reads the load of a benchmark's hosts over kept connections, because a login would be a load itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from kit.errors import Interrupted, KitError
from kit.model.host import Host
from kit.remote.scripts import script
from kit.remote.ssh import fanout
from kit.remote.ssh.transport import Connect, Transport

T = TypeVar("T")
TIMEOUT_S = 20.0


class Watch:
    """The hosts' connections. Each opens when it is first needed, and again after it broke."""

    def __init__(self, hosts: Sequence[Host], connect: Connect, folder: str) -> None:
        self._hosts = hosts
        self._connect = connect
        self._folder = folder
        self._open: dict[str, Transport] = {}

    def look(self, parse: Callable[[str], T]) -> Mapping[str, T]:
        """Return each host's parsed output of load.sh. A host that does not answer is missing: the run reports it."""
        try:
            return fanout.each(self._hosts, lambda host: parse(self._text(host))).results
        except Interrupted:
            # Which hosts were not looked at is nobody's concern.
            raise KeyboardInterrupt from None

    def close(self) -> None:
        # One at a time: after Ctrl-C a look may still go on, and connect.
        with contextlib.suppress(KeyError):
            while True:
                self._open.popitem()[1].close()

    def _text(self, host: Host) -> str:
        transport = self._open.get(host.name)
        if transport is None:
            transport = self._open[host.name] = self._connect(host)
        try:
            return transport.run(script("load", self._folder), timeout_s=TIMEOUT_S).text
        except KitError:
            # What was closed meanwhile is not here any more.
            self._open.pop(host.name, transport).close()
            raise
