"""Reads what kit-rank says: records of whole lines, among whatever else mpirun writes to standard error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kit.events import Stream

# As images/bin/kit-rank writes it: rank, stream, whether the last line goes on in the rank's next record, length.
HEAD = re.compile(rb"\x1ekit-line (\d+) ([oe]) ([+.]) (\d+)\n")
_BEGIN = b"\x1ekit-line "
_STREAMS: dict[bytes, Stream] = {b"o": "stdout", b"e": "stderr"}


@dataclass(frozen=True, kw_only=True, slots=True)
class RankLine:
    """A line with no newline. `rank` is '' for what is not a rank's: mpirun's own words, the launcher's."""

    text: bytes
    stream: Stream
    rank: str


class RankLines:
    """Takes bytes in pieces of any size, gives lines. What follows the last newline is kept for the next piece."""

    def __init__(self) -> None:
        self._rest = b""
        self._begun: dict[tuple[str, Stream], bytes] = {}

    def feed(self, data: bytes) -> Iterator[RankLine]:
        self._rest += data
        while True:
            at = self._rest.find(_BEGIN)
            plain = self._rest if at < 0 else self._rest[:at]
            end = plain.rfind(b"\n") + 1
            yield from self._plain(plain[:end])
            self._rest = self._rest[end:]
            if at < 0:
                return
            if at > end:
                # A record in the middle of another's line: that line ends here.
                yield from self._plain(self._rest[: at - end])
                self._rest = self._rest[at - end :]
            head = HEAD.match(self._rest)
            if head is None:
                if b"\n" not in self._rest:
                    return
                # Like a record, and none.
                line, _, self._rest = self._rest.partition(b"\n")
                yield from self._plain(line)
                continue
            size = int(head[4])
            if len(self._rest) < head.end() + size:
                return
            body = self._rest[head.end() : head.end() + size]
            self._rest = self._rest[head.end() + size :]
            yield from self._record(head[1].decode(), _STREAMS[head[2]], body, more=head[3] == b"+")

    def end(self) -> Iterator[RankLine]:
        """What is left when nothing comes any more."""
        yield from self._plain(self._rest)
        self._rest = b""
        for (rank, stream), text in self._begun.items():
            yield RankLine(text=text, stream=stream, rank=rank)
        self._begun = {}

    def _record(self, rank: str, stream: Stream, body: bytes, *, more: bool) -> Iterator[RankLine]:
        lines = (self._begun.pop((rank, stream), b"") + body).split(b"\n")
        last = lines.pop()
        if more:
            self._begun[rank, stream] = last
        elif last:
            lines.append(last)
        for text in lines:
            yield RankLine(text=text.rstrip(b"\r"), stream=stream, rank=rank)

    def _plain(self, text: bytes) -> Iterator[RankLine]:
        if text:
            for line in text.removesuffix(b"\n").split(b"\n"):
                yield RankLine(text=line.rstrip(b"\r"), stream="stderr", rank="")
