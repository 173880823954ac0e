"""Reads the log of a run, which consists of records (images/lib/kitrun/frames.py)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

# 0x1e MILLISECONDS RANK KIND MORE LENGTH newline, LENGTH bytes.
HEAD = re.compile(rb"\x1e(\d+) (\d+|-) ([oeuxmk]) ([+.]) (\d+)\n")
HEAD_ROOM = 64

# Of an unfinished line that is longer, only the last state is kept if it is a progress bar.
LONG = 8192

Kind = Literal["out", "err", "up", "end", "mpirun", "event"]
_KINDS: dict[bytes, Kind] = {b"o": "out", b"e": "err", b"u": "up", b"x": "end", b"m": "mpirun", b"k": "event"}


@dataclass(frozen=True, kw_only=True, slots=True)
class LogEntry:
    """One record of a run's log. `time` is in seconds since 1970, by the head's clock. `rank` is '' for mpirun and
    events.

    out, err, mpirun have the `lines` that end in the record, without newlines, as a terminal shows them. up has the
    `words` host, pid. end has the `words` host, exit code, signal, and 1 if out of memory. event has `fields`.
    """

    time: float
    rank: str
    kind: Kind
    lines: tuple[bytes, ...] = ()
    words: tuple[str, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)


class RunLog:
    """Splits bytes of any size into entries. `taken` counts the bytes of all complete records so far."""

    def __init__(self) -> None:
        self._rest = b""
        self._partial: dict[tuple[bytes, bytes], bytes] = {}
        # The keys of unfinished lines that have changed since the last call of `unfinished`, in order.
        self._changed: dict[tuple[bytes, bytes], None] = {}
        self.taken = 0

    def feed(self, data: bytes) -> Iterator[LogEntry]:
        self._rest += data
        at = 0
        try:
            while True:
                head = HEAD.match(self._rest, at)
                if head is None:
                    next_head = self._rest.find(b"\x1e", at + 1)
                    if len(self._rest) - at < HEAD_ROOM and next_head < 0:
                        return
                    # Reading started in the middle of a record, or a disk lost part of one: skip to the next.
                    at = next_head if next_head >= 0 else len(self._rest)
                    continue
                end = head.end() + int(head[5])
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

    def unfinished(self) -> list[LogEntry]:
        """Return the unfinished lines that have changed since the last call: bars, prompts, parts of long lines."""
        keys, self._changed = self._changed, {}
        return [self._line(key, self._partial[key]) for key in keys]

    def end(self) -> Iterator[LogEntry]:
        """Yield incomplete lines after the end of the log."""
        partial, self._partial, self._changed = self._partial, {}, {}
        for key, text in partial.items():
            yield self._line(key, text)

    def _line(self, key: tuple[bytes, bytes], text: bytes) -> LogEntry:
        return LogEntry(time=0.0, rank=key[0].decode(), kind=_KINDS[key[1]], lines=(shown(text),))

    def _entry(self, head: re.Match[bytes], body: bytes) -> LogEntry:
        when, kind = int(head[1]) / 1000, _KINDS[head[3]]
        rank = "" if head[2] == b"-" else head[2].decode()
        match kind:
            case "up" | "end":
                return LogEntry(time=when, rank=rank, kind=kind, words=tuple(body.decode(errors="replace").split()))
            case "event":
                return LogEntry(time=when, rank=rank, kind=kind, fields=_json(body))
            case _:
                lines = self._lines((head[2], head[3]), body, more=head[4] == b"+")
                return LogEntry(time=when, rank=rank, kind=kind, lines=lines)

    def _lines(self, key: tuple[bytes, bytes], body: bytes, *, more: bool) -> tuple[bytes, ...]:
        lines = (self._partial.pop(key, b"") + body).split(b"\n")
        last = lines.pop()
        self._changed.pop(key, None)
        if more:
            self._partial[key] = last if len(last) < LONG else state(last)
            self._changed[key] = None
        elif last:
            lines.append(last)
        return tuple(shown(text) for text in lines)


def state(line: bytes) -> bytes:
    """Return an unfinished line without the states that a terminal has overwritten at a carriage return."""
    return line[max(0, line.rstrip(b"\r\b").rfind(b"\r")) :]


def shown(line: bytes) -> bytes:
    """Return what a terminal shows of a line: of a progress bar, the last state."""
    return state(line).rstrip(b"\r\b").lstrip(b"\r") if b"\r" in line else line


def _json(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
