"""Takes the control sequences out of what ranks and commands write, except for color and carriage returns.

A sequence can set the clipboard (OSC 52) or the title, move the cursor, or change how the terminal reads what follows.
A sequence ends at the end of its line at the latest, so that none can swallow the lines of others.
"""

from __future__ import annotations

import re

# Color and other looks: SGR.
_LOOK = r"\x1b\[[0-9;:]{0,64}m"
_STRING = r"\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\|(?=[\x1b\n])|\Z)"
_SEQUENCE = r"\x1b\[[\x20-\x3f]*(?:[\x40-\x7e]|(?=[^\x20-\x7e])|\Z)"
_OTHER = r"\x1b[\x20-\x2f]*[\x30-\x7e]?"
_SINGLE = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
_LOOKS, _LOOKS_IN_BYTES = re.compile(_LOOK), re.compile(_LOOK.encode())
_TEXT = re.compile(f"({_LOOK})|{_STRING}|{_SEQUENCE}|{_OTHER}|{_SINGLE}|[\x80-\x9f]")
# In UTF-8, the control characters from U+0080 on are two bytes. The second one alone is a part of other characters. The
# first one alone goes, because it could make one with what follows a sequence.
_BYTES = re.compile(
    f"({_LOOK})|{_STRING}|{_SEQUENCE}|{_OTHER}|{_SINGLE}|\xc2(?:[\x80-\x9f]|(?![\xa0-\xbf]))".encode("latin-1")
)
_HAS_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_CONTROL_BYTES = bytes(sorted({*range(0x20), 0x7F, 0xC2} - set(b"\t\n\r")))
# The beginning of a sequence at the end of a piece, and of a string such as a title, of which the next piece has more.
_UNFINISHED = re.compile(rb"(?:\x1b(?:\[[\x20-\x3f]*|[\x20-\x2f]*)?|\xc2)\Z")
_IN_STRING = re.compile(rb"\x1b[\]PX^_][^\x07\x1b\n]*(?:\x1b)?\Z")
# A longer text is not the beginning of a sequence.
_LONGEST = 256
RESET = "\x1b[0m"
_RESETS = (RESET, "\x1b[m")
_BYTE_RESETS = tuple(reset.encode() for reset in _RESETS)


def filtered(text: str) -> str:
    """Return a line of output without control sequences. If it ends in color, the color ends with it."""
    if text.isprintable() or not _HAS_CONTROL.search(text):
        return text
    # Most lines with sequences have only color, and a template is faster than a function.
    if _HAS_CONTROL.search(_LOOKS.sub("", text)):
        text = _TEXT.sub(r"\1", text)
    last = text.rfind("\x1b")
    return text + RESET if last >= 0 and not text.startswith(_RESETS, last) else text


class ByteFilter:
    """Filters a stream that comes in pieces of any size. A sequence may be cut between two pieces.

    `colored`: what follows would have the color of the stream.
    """

    def __init__(self) -> None:
        self.colored = False
        self._rest = b""
        # Inside of a string, whose text is dropped up to its end.
        self._in_string = False

    line = staticmethod(filtered)

    def feed(self, data: bytes) -> bytes:
        """Return what a terminal may get of the stream up to here."""
        if not self._rest and not self._in_string and len(data.translate(None, _CONTROL_BYTES)) == len(data):
            return data
        data, self._rest = self._rest + data, b""
        if self._in_string:
            data = b"\x1b]" + data
            self._in_string = False
        data = self._whole(data)
        plain = _LOOKS_IN_BYTES.sub(b"", data)
        if len(plain.translate(None, _CONTROL_BYTES)) < len(plain):
            data = _BYTES.sub(rb"\1", data)
        last = data.rfind(b"\x1b")
        if last >= 0:
            self.colored = not data.startswith(_BYTE_RESETS, last)
        return data

    def _whole(self, data: bytes) -> bytes:
        """Return the data without the beginning of a sequence at its end, and keep that."""
        if (tail := _IN_STRING.search(data)) is not None:
            self._in_string = True
            self._rest = b"\x1b" if data.endswith(b"\x1b") and tail.end() - tail.start() > 1 else b""
            data = data[: tail.start()]
        elif (tail := _UNFINISHED.search(data)) is not None and tail.end() - tail.start() <= _LONGEST:
            self._rest, data = tail[0], data[: tail.start()]
        return data
