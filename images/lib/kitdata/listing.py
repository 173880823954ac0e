"""A source's version and the list of its files, as one host that can read it reports them."""

import time
from typing import Any, Callable, List, Optional

from kitdata import wire
from kitdata.crew import PROGRESS_S, Calls, Crew, Failed
from kitdata.events import Events
from kitdata.source import Entry, Version

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
        self._version: Optional[Version] = None
        self._files = self._bytes = 0
        self._question = ""
        self._ended = False
        self._last = time.monotonic()

    def version(self) -> Optional[Version]:
        """Return which version of the source this is; None if only the list can tell, or if the host is lost meanwhile.
        Raises Failed.
        """
        return self._version if self._ask("version") else None

    def entries(self) -> Optional[List[Entry]]:
        """Return the list; None if the host is lost meanwhile. Raises Failed and SourceError."""
        self._files = self._bytes = 0
        return self._entries if self._ask("list") else None

    def _ask(self, what: str) -> bool:
        """Return whether the host answered to the end."""
        self._question, self._ended = what, False
        self._crew.send(self._reader, {what: 1})
        calls: Calls = {
            "counted": self._answer("version", self._counted),
            "version": self._answer("version", self._known),
            "unknown": self._answer("version", self._end),
            "list": self._answer("list", self._rows),
            "listed": self._answer("list", self._end),
            "unlisted": self._answer(what, self._unlisted),
        }
        self._crew.pump(lambda: self._ended or not self._crew.lives(self._reader), calls)
        if self._ended:
            self._tell()
        return self._ended

    def _answer(self, question: str, call: Callable[[List[Any]], None]) -> Callable[[int, List[Any]], None]:
        """Return a call that takes the answer of the host that has this question, and of no other."""

        def answer(member: int, values: List[Any]) -> None:
            if member != self._reader or question != self._question:
                raise wire.Broken("a list that it was not asked for")
            call(values)

        return answer

    def _counted(self, values: List[Any]) -> None:
        self._files, self._bytes = values
        self._tell()

    def _known(self, values: List[Any]) -> None:
        self._version = Version(*values)
        self._files, self._bytes = self._version.files, self._version.bytes
        self._ended = True

    def _rows(self, values: List[Any]) -> None:
        self._entries += values[0]
        self._files = len(self._entries)
        self._bytes += sum(entry.size for entry in values[0])
        if self._files > MOST_FILES:
            text = "%s has more than %d files; put them into larger ones, such as TFRecords or tar files"
            raise Failed("source-name", text % (self._label, MOST_FILES))
        if time.monotonic() - self._last > PROGRESS_S:
            self._tell()

    def _unlisted(self, values: List[Any]) -> None:
        raise Failed(values[0], values[1], self._crew.hosts[self._reader])

    def _end(self, _: List[Any]) -> None:
        self._ended = True

    def _tell(self) -> None:
        self._last = time.monotonic()
        self._events.add({"listing": {"files": self._files, "bytes": self._bytes}})
