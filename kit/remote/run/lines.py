"""Joins pieces of output into lines. It knows how far an unfinished line is, such as a progress bar or a prompt."""

from __future__ import annotations

from typing import Generic, TypeVar

from kit.events import OutputLine, Stream

# An unfinished line of this length is no prompt, but the first part of a line that is too long for one record
# (kit-rank's ROOM). Of a progress bar, only the last state is kept then.
LONG = 4048
# A line that is longer, and has no end yet, is cut there: nothing that a rank writes may fill kit's memory.
LONGEST = 4 * 2**20
# The size of all unfinished lines together, above which they are cut.
MOST_UNFINISHED = 64 * 2**20

Key = TypeVar("Key")


class Lines(Generic[Key]):
    """The lines of several streams, each with a key. Lines are without newlines, as a terminal shows them."""

    def __init__(self) -> None:
        self._partial: dict[Key, bytes] = {}
        # The size of all of them, in bytes.
        self._held = 0
        # The keys of unfinished lines that have changed since the last call of `unfinished`, in order.
        self._changed: dict[Key, None] = {}

    def feed(self, key: Key, data: bytes, *, more: bool = True) -> tuple[bytes, ...]:
        """Return the lines that end in `data`. `more`: what follows its last newline continues in the next piece."""
        before = self._partial.pop(key, b"")
        self._held -= len(before)
        lines = (before + data).split(b"\n")
        last = lines.pop()
        self._changed.pop(key, None)
        last = state(last) if more and len(last) >= LONG else last
        if more and last and len(last) <= LONGEST and self._held + len(last) <= MOST_UNFINISHED:
            self._partial[key] = last
            self._held += len(last)
            self._changed[key] = None
        elif last:
            lines.append(last)
        return tuple(shown(text) for text in lines)

    def unfinished(self) -> list[tuple[Key, bytes, bool]]:
        """Return the unfinished lines that have changed since the last call, each with whether it is a bar."""
        keys, self._changed = self._changed, {}
        return [(key, shown(self._partial[key]), is_bar(self._partial[key])) for key in keys]

    def again(self) -> None:
        """Let `unfinished` return all unfinished lines."""
        self._changed = dict.fromkeys(self._partial)

    def end(self) -> list[tuple[Key, bytes]]:
        """Return the lines that never ended."""
        partial, self._partial, self._changed, self._held = self._partial, {}, {}, 0
        return [(key, shown(text)) for key, text in partial.items()]


def state(line: bytes) -> bytes:
    """Return an unfinished line without the states that a terminal has overwritten at a carriage return."""
    return line[max(0, line.rstrip(b"\r\b").rfind(b"\r")) :]


def shown(line: bytes) -> bytes:
    """Return what a terminal shows of a line: of a progress bar, the last state."""
    return state(line).rstrip(b"\r\b").lstrip(b"\r") if b"\r" in line else line


def is_bar(line: bytes) -> bool:
    """Return whether a program goes back in an unfinished line, to write its next state."""
    return b"\r" in line or b"\b" in line


def output_line(line: bytes, *, stream: Stream, source: str) -> OutputLine:
    """Return the event for a whole line, with its bytes if it is not UTF-8."""
    try:
        return OutputLine(text=line.decode(), stream=stream, source=source)
    except UnicodeDecodeError:
        return OutputLine(text=line.decode(errors="replace"), stream=stream, source=source, raw=line)


def text_so_far(line: bytes) -> str:
    """Return the text of an unfinished line, whose last character may have come in part."""
    # Imported only here: most output has no such line.
    import codecs  # noqa: PLC0415

    return codecs.getincrementaldecoder("utf-8")("replace").decode(line)
