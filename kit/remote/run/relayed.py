"""Reads what kit-rank sends through mpirun: records with lines of ranks, among mpirun's own words.

images/lib/kitrun/frames.py describes the records and reads them on a cluster. kit reads them itself in `kit local`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

BEGIN = b"\x1ekit-line "
HEAD = re.compile(rb"\x1ekit-line (\d{1,9}) ([oeuxl]) ([+.]) (\d{1,4})\n")
# The longest head.
HEAD_ROOM = 64

Kind = Literal["out", "err", "words", "other"]
_KINDS: dict[bytes, Kind] = {b"o": "out", b"e": "err"}


class Piece(Struct, frozen=True, kw_only=True):
    """Bytes of a rank's stream, or words of mpirun, which have no rank. `more`: the last line may continue."""

    kind: Kind
    data: bytes
    rank: str = ""
    more: bool = True


class Relayed:
    """Splits bytes of any size into pieces. It keeps at most one incomplete record."""

    def __init__(self) -> None:
        self._rest = b""
        # The next byte ends the last record if it is a newline. The rest is empty then.
        self._ending = False

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Yield the words and the complete records so far."""
        if self._ending and data:
            self._ending = False
            data = data.removeprefix(b"\n")
        rest, self._rest = self._rest + data, b""
        while rest:
            at = rest.find(BEGIN[:1])
            if at:
                words = rest if at < 0 else rest[:at]
                yield Piece(kind="words", data=words)
                rest = rest[len(words) :]
                continue
            head = HEAD.match(rest)
            end = head.end() + int(head[4]) if head else 0
            if len(rest) < end or (head is None and _may_begin(rest)):
                self._rest = rest
                return
            if head is None:
                # It looks like a record, but is not.
                yield Piece(kind="words", data=rest[:1])
                rest = rest[1:]
                continue
            body, rest = rest[head.end() : end], rest[end:]
            if not body.endswith(b"\n"):
                self._ending = not rest
                rest = rest.removeprefix(b"\n")
            yield Piece(kind=_KINDS.get(head[2], "other"), data=body, rank=head[1].decode(), more=head[3] == b"+")

    def end(self) -> Iterator[Piece]:
        """Yield what is left when the stream has ended."""
        rest, self._rest = self._rest, b""
        if rest:
            yield Piece(kind="words", data=rest)


def _may_begin(rest: bytes) -> bool:
    """Return whether this may be the first part of a record's head."""
    alike = rest.startswith(BEGIN) or BEGIN.startswith(rest)
    return alike and len(rest) < HEAD_ROOM and b"\n" not in rest
