"""The two kinds of records: what kit-rank sends through mpirun, and what a run's log consists of.

kit-rank sends these on standard error, among mpirun's own output:

    0x1e kit-line RANK KIND MORE LENGTH newline, LENGTH bytes, a newline if these do not end with one

Open MPI 5 holds an unfinished line back, and may print its own messages or other ranks' lines before it. So a record
ends with a newline. Readers drop this newline, and accept records without it.

The log, and the stream to kit, consist only of these:

    0x1e MILLISECONDS RANK KIND MORE LENGTH newline, LENGTH bytes

KIND: o and e are lines of standard output and error. MORE is + if the last line continues in the rank's next record:
it is too long for one, or the rank has not finished it. u: a rank is up, `HOST PID`. x: a rank has ended,
`HOST CODE SIGNAL OOM`, the last 1 or 0. l: a rank wrote something that is not sent yet; it is not in the log. m:
mpirun's own words (rank -). k: an event of the supervisor, JSON (rank -).
"""

import json
import re
from typing import Any, Iterator, Optional, Tuple

BEGIN = b"\x1ekit-line "
# mpirun's daemon reads at most 4,096 bytes at once. What claims to be longer is not a record, so nothing waits for it.
HEAD = re.compile(rb"\x1ekit-line (\d{1,9}) ([oeuxl]) ([+.]) (\d{1,4})\n")
# The longest head. Text that begins like a head and has no newline within this length is not one.
HEAD_ROOM = 64
# Half of a surrogate pair. In text that Python has read, there are no pairs.
HALF = re.compile("[\ud800-\udfff]")
# The end of a text that was too long.
CUT = " ... (cut)"

# (rank, kind, more, body); the rank of mpirun's own words is None.
Piece = Tuple[Optional[bytes], str, str, bytes]


def record(milliseconds: int, rank: bytes, kind: str, body: bytes, more: str = ".") -> bytes:
    """Return one record of the log."""
    return b"\x1e%d %s %s %s %d\n%s" % (milliseconds, rank, kind.encode(), more.encode(), len(body), body)


def relayed(rank: bytes, kind: str, body: bytes, more: str = ".") -> bytes:
    """Return one record as kit-rank sends it."""
    end = b"" if body.endswith(b"\n") else b"\n"
    return b"\x1ekit-line %s %s %s %d\n%s%s" % (rank, kind.encode(), more.encode(), len(body), body, end)


def text(value: object, **more: bool) -> str:
    """Return a value as JSON that kit can read: half a surrogate pair, which stands for a byte, as its escape's text.

    The command of a run, for example, may have words that are not UTF-8.
    """
    line = json.dumps(value, **more)  # type: ignore[arg-type]  # words of json.dumps
    if "\\ud" not in line:
        return line
    shown = HALF.sub(lambda match: "\\\\u%04x" % ord(match.group()), json.dumps(value, ensure_ascii=False))
    return json.dumps(json.loads(shown), **more)  # type: ignore[arg-type]


def shortened(words: str, room: int) -> str:
    """Return a text, or only its beginning with a mark, so that `text` of it has at most `room` bytes and quotes."""
    # A character takes one byte or more.
    if len(words) <= room and len(text(words)) - 2 <= room:
        return words
    start, mark = words[:room], CUT[:room]
    while start:
        size = len(text(start + mark)) - 2
        if size <= room:
            break
        start = start[: len(start) * room // size]
    return start + mark


def event(milliseconds: int, name: str, **fields: Any) -> bytes:
    fields["event"] = name
    return record(milliseconds, b"-", "k", text(fields, sort_keys=True).encode())


def state(line: bytes) -> bytes:
    """Return an unfinished line without the states that a terminal has overwritten at a carriage return."""
    return line[max(0, line.rstrip(b"\r\b").rfind(b"\r")) :]


def shown(line: bytes) -> bytes:
    """Return what a terminal shows of a line: of a progress bar, the last state."""
    return state(line).rstrip(b"\r\b").lstrip(b"\r") if b"\r" in line else line


class Splitter:
    """Splits mpirun's bytes, which come in pieces of any size, into records and whole lines of mpirun's own words."""

    def __init__(self) -> None:
        self._rest = b""
        # This much of the rest is certainly mpirun's own words.
        self._plain = 0
        # The next byte ends the last record if it is a newline. The rest is empty then.
        self._ending = False

    def feed(self, data: bytes) -> Iterator[Piece]:
        if self._ending and data:
            self._ending = False
            data = data[1:] if data.startswith(b"\n") else data
        self._rest += data
        while True:
            at = self._rest.find(BEGIN, self._plain)
            if at < 0:
                # A head may have begun at the very end, behind the last newline.
                at = self._rest.rfind(b"\n") + 1
                if at:
                    yield self._words(at)
                return
            head = HEAD.match(self._rest, at)
            if head is None:
                if len(self._rest) - at < HEAD_ROOM and b"\n" not in self._rest[at:]:
                    return
                # It looks like a record, but is not.
                self._plain = at + 1
                continue
            end = head.end() + int(head.group(4))
            if len(self._rest) < end:
                return
            if at:
                # A record in the middle of another line ends that line.
                yield self._words(at)
            end -= at
            body = self._rest[head.end() - at : end]
            if not body.endswith(b"\n"):
                self._ending = len(self._rest) == end
                end += self._rest.startswith(b"\n", end)
            self._rest = self._rest[end:]
            yield head.group(1), head.group(2).decode(), head.group(3).decode(), body

    def _words(self, end: int) -> Piece:
        words, self._rest, self._plain = self._rest[:end], self._rest[end:], 0
        return None, "m", ".", words

    def end(self) -> Iterator[Piece]:
        """Yield what is left when the stream has ended."""
        rest, self._rest, self._plain = self._rest, b"", 0
        if rest:
            yield None, "m", ".", rest
