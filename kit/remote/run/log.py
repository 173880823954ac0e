"""Reads the log of a run, which consists of records (images/lib/kitrun/frames.py)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct, field

from kit.model.answer import MOST_BYTES, OddAnswer, decode
from kit.remote.run.lines import Lines

# 0x1e MILLISECONDS RANK KIND MORE LENGTH newline, LENGTH bytes. More digits than these are no record's head.
HEAD = re.compile(rb"\x1e(\d{1,14}) (\d{1,9}|-) ([oeuxmk]) ([+.]) (\d{1,9})\n")
HEAD_ROOM = 64
# The longest record, in bytes. What claims to be longer is not a record, so that kit does not wait for its end.
MOST_RECORD = MOST_BYTES

Kind = Literal["out", "err", "up", "end", "mpirun", "event"]
_KINDS: dict[bytes, Kind] = {b"o": "out", b"e": "err", b"u": "up", b"x": "end", b"m": "mpirun", b"k": "event"}


class LogEntry(Struct, frozen=True, kw_only=True):
    """One record of a run's log. `time` is in seconds since 1970, by the head's clock. `rank` is '' for mpirun and
    events.

    out, err, mpirun have the `lines` that end in the record, without newlines, as a terminal shows them; with `bar`, it
    is the state of a progress bar. up has the `words` host, pid. end has the `words` host, exit code, signal, and 1 if
    out of memory. event has `fields`.
    """

    time: float
    rank: str
    kind: Kind
    lines: tuple[bytes, ...] = ()
    bar: bool = False
    words: tuple[str, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)


class RunLog:
    """Splits bytes of any size into entries. `taken` counts the bytes of all complete records so far."""

    def __init__(self) -> None:
        self._rest = b""
        # By rank and kind.
        self._lines: Lines[tuple[bytes, bytes]] = Lines()
        self.taken = 0

    def feed(self, data: bytes) -> Iterator[LogEntry]:
        self._rest += data
        at = 0
        try:
            while True:
                head = HEAD.match(self._rest, at)
                length = int(head[5]) if head else 0
                if head is None or length > MOST_RECORD:
                    next_head = self._rest.find(b"\x1e", at + 1)
                    if len(self._rest) - at < HEAD_ROOM and next_head < 0:
                        return
                    # Reading started in the middle of a record, a disk lost part of one, or somebody imitates one:
                    # skip to the next.
                    at = next_head if next_head >= 0 else len(self._rest)
                    continue
                end = head.end() + length
                if len(self._rest) < end:
                    return
                body = self._rest[head.end() : end]
                at = end
                yield self._entry(head, body)
        finally:
            self.taken += at
            self._rest = self._rest[at:]

    def again(self) -> None:
        """Continue at byte `taken`: drop an incomplete record, but keep the start of an incomplete line."""
        self._rest = b""
        self._lines.again()

    def unfinished(self) -> list[LogEntry]:
        """Return the unfinished lines that have changed since the last call: bars, prompts, parts of long lines."""
        return [self._line(key, text, bar=bar) for key, text, bar in self._lines.unfinished()]

    def end(self) -> Iterator[LogEntry]:
        """Yield incomplete lines after the end of the log."""
        for key, text in self._lines.end():
            yield self._line(key, text)

    def _line(self, key: tuple[bytes, bytes], text: bytes, *, bar: bool = False) -> LogEntry:
        return LogEntry(time=0.0, rank=_rank(key[0]), kind=_KINDS[key[1]], lines=(text,), bar=bar)

    def _entry(self, head: re.Match[bytes], body: bytes) -> LogEntry:
        when, kind = int(head[1]) / 1000, _KINDS[head[3]]
        rank = _rank(head[2])
        match kind:
            case "up" | "end":
                return LogEntry(time=when, rank=rank, kind=kind, words=tuple(body.decode(errors="replace").split()))
            case "event":
                return LogEntry(time=when, rank=rank, kind=kind, fields=_json(body))
            case _:
                lines = self._lines.feed((head[2], head[3]), body, more=head[4] == b"+")
                return LogEntry(time=when, rank=rank, kind=kind, lines=lines)


def _rank(word: bytes) -> str:
    return "" if word == b"-" else word.decode()


def _json(body: bytes) -> dict[str, Any]:
    """Return the fields of an event; empty if a disk lost part of it."""
    try:
        return decode(body, dict[str, Any])
    except OddAnswer:
        return {}
