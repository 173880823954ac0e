"""Reads a run's log as the head sends it: records, and nothing else (images/lib/kitrun/frames.py)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

# 0x1e MILLISECONDS RANK KIND MORE LENGTH newline, LENGTH bytes.
HEAD = re.compile(rb"\x1e(\d+) (\d+|-) ([oeuxmk]) ([+.]) (\d+)\n")
HEAD_ROOM = 64

Kind = Literal["out", "err", "up", "end", "mpirun", "event"]
_KINDS: dict[bytes, Kind] = {b"o": "out", b"e": "err", b"u": "up", b"x": "end", b"m": "mpirun", b"k": "event"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """What a run said at one moment. `time`: seconds since 1970, by the head's clock. `rank` is '' for mpirun
    and events.

    out, err, mpirun: `lines`, with no newline. up: `words` host, pid. end: host, exit code, signal, 1 if out of memory.
    event: `fields`.
    """

    time: float
    rank: str
    kind: Kind
    lines: tuple[bytes, ...] = ()
    words: tuple[str, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)


class RunLog:
    """Takes bytes in pieces of any size, gives entries. `taken` counts the bytes of all whole records so far."""

    def __init__(self) -> None:
        self._rest = b""
        self._begun: dict[tuple[bytes, bytes], bytes] = {}
        self.taken = 0

    def feed(self, data: bytes) -> Iterator[Entry]:
        self._rest += data
        at = 0
        try:
            while True:
                head = HEAD.match(self._rest, at)
                if head is None:
                    begins = self._rest.find(b"\x1e", at + 1)
                    if len(self._rest) - at < HEAD_ROOM and begins < 0:
                        return
                    # Reading began in the middle of a record, or a disk lost a part of one: on to the next.
                    at = begins if begins >= 0 else len(self._rest)
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
        """What comes next is read from byte `taken` on: a piece of a record goes, a line that was begun stays."""
        self._rest = b""

    def end(self) -> Iterator[Entry]:
        """Lines that were begun, when nothing comes any more."""
        for (rank, kind), text in self._begun.items():
            yield Entry(time=0.0, rank=rank.decode(), kind=_KINDS[kind], lines=(text,))
        self._begun = {}

    def _entry(self, head: re.Match[bytes], body: bytes) -> Entry:
        when, kind = int(head[1]) / 1000, _KINDS[head[3]]
        rank = "" if head[2] == b"-" else head[2].decode()
        match kind:
            case "up" | "end":
                return Entry(time=when, rank=rank, kind=kind, words=tuple(body.decode(errors="replace").split()))
            case "event":
                return Entry(time=when, rank=rank, kind=kind, fields=_json(body))
            case _:
                lines = self._lines((head[2], head[3]), body, more=head[4] == b"+")
                return Entry(time=when, rank=rank, kind=kind, lines=lines)

    def _lines(self, key: tuple[bytes, bytes], body: bytes, *, more: bool) -> tuple[bytes, ...]:
        lines = (self._begun.pop(key, b"") + body).split(b"\n")
        last = lines.pop()
        if more:
            self._begun[key] = last
        elif last:
            lines.append(last)
        return tuple(text.rstrip(b"\r") for text in lines)


def _json(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
