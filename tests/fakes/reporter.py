"""A reporter that remembers its events."""

from __future__ import annotations

import threading
from typing import TypeVar

from kit.events import Event, HostFailed, OutputLine, Warned

E = TypeVar("E")


class Remembering:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self._lock = threading.Lock()

    def report(self, event: Event) -> None:
        with self._lock:
            self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def lines(self) -> list[OutputLine]:
        return self.of(OutputLine)

    @property
    def warnings(self) -> list[Warned]:
        return self.of(Warned)

    @property
    def failed(self) -> list[str]:
        return [event.host for event in self.of(HostFailed)]
