"""The list of a source's files, as one host that can read it reports it, row by row."""

import time
from typing import Any, List, Optional

from kitdata import wire
from kitdata.crew import PROGRESS_S, Calls, Crew, Failed
from kitdata.events import Events
from kitdata.source import Entry

# All hosts have the list in memory, and a list without an end would take all of it.
MOST_FILES = 5_000_000


class Listing:
    """What `reader` lists. `label` is what people call the source."""

    def __init__(self, crew: Crew, events: Events, reader: int, label: str) -> None:
        self._crew = crew
        self._events = events
        self._reader = reader
        self._label = label
        self._entries: List[Entry] = []
        self._bytes = 0
        self._ended = False
        self._last = time.monotonic()

    def entries(self) -> Optional[List[Entry]]:
        """Return the list; None if the host is lost meanwhile. Raises Failed and SourceError."""
        self._crew.send(self._reader, {"list": 1})
        calls: Calls = {"list": self._rows, "unlisted": self._unlisted, "listed": self._end}
        self._crew.pump(lambda: self._ended or not self._crew.lives(self._reader), calls)
        if not self._ended:
            return None
        self._tell()
        return self._entries

    def _asked(self, member: int) -> None:
        if member != self._reader:
            raise wire.Broken("a list that it was not asked for")

    def _rows(self, member: int, values: List[Any]) -> None:
        self._asked(member)
        self._entries += values[0]
        self._bytes += sum(entry.size for entry in values[0])
        if len(self._entries) > MOST_FILES:
            text = "%s has more than %d files; put them into larger ones, such as TFRecords or tar files"
            raise Failed("source-name", text % (self._label, MOST_FILES))
        if time.monotonic() - self._last > PROGRESS_S:
            self._tell()

    def _unlisted(self, member: int, values: List[Any]) -> None:
        self._asked(member)
        raise Failed(values[0], values[1], self._crew.hosts[member])

    def _end(self, member: int, _: List[Any]) -> None:
        self._asked(member)
        self._ended = True

    def _tell(self) -> None:
        self._last = time.monotonic()
        self._events.add({"listing": {"files": len(self._entries), "bytes": self._bytes}})
