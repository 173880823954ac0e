"""The unfinished line at the end of a stream: a rank's progress bar or prompt, between the whole lines of all ranks.

One line at a time is unfinished on the screen. It belongs to one rank's stream, its `owner`, until that line ends.
Whole lines of others go above it, so that no line ever contains a part of another one.
"""

from __future__ import annotations

import re
import time

# On a terminal, the line of a rank that has not changed it for this time gives way to another rank's.
STALE_S = 1.0
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

# The stream and the rank of a line.
Owner = tuple[str, str]


class LiveLine:
    """Returns what to write so that a stream shows an unfinished line. It writes nothing.

    `columns` is the width of a terminal. It is None for a file or pipe, which cannot take back what was written: there
    a line that was interrupted begins again.
    """

    def __init__(self) -> None:
        self.owner: Owner | None = None
        self._shown = ""
        self._at = 0.0

    def update(self, owner: Owner, text: str, columns: int | None) -> str:
        """Return what shows `text` as the unfinished line; '' if another rank's line is shown."""
        now = time.monotonic()
        if self.owner not in (None, owner) and (columns is None or now - self._at < STALE_S):
            return ""
        if columns is not None:
            text = _fitted(_ESCAPES.sub("", text), columns - 1)
        written = self._replaced(text, columns) if self.owner == owner else self._away(columns) + text
        self.owner, self._shown, self._at = owner, text, now
        return written

    def whole(self, owner: Owner | None, text: str, columns: int | None) -> str:
        """Return what prints one or more whole lines: the end of the unfinished line, or lines above it."""
        if self.owner is None or not (self._shown or owner == self.owner):
            return f"{text}\n"
        if owner == self.owner:
            written = f"{self._replaced(text, columns)}\n"
            self.owner, self._shown = None, ""
            return written
        above = f"{self._away(columns)}{text}\n"
        if columns is None:
            self._shown = ""
            return above
        return above + self._shown

    def end(self) -> str:
        """Return what ends the unfinished line where it is."""
        shown, self.owner, self._shown = self._shown, None, ""
        return "\n" if shown else ""

    def _replaced(self, text: str, columns: int | None) -> str:
        if text.startswith(self._shown):
            return text[len(self._shown) :]
        return f"\r{text}" if columns is None else f"\r\x1b[K{text}"

    def _away(self, columns: int | None) -> str:
        if not self._shown:
            return ""
        return "\n" if columns is None else "\r\x1b[K"


def _fitted(text: str, most: int) -> str:
    """Return the beginning of a text in at most this many cells. A text that wraps leaves a line at each change."""
    if text.isascii() and "\t" not in text:
        return text[:most]
    # Few lines need the tables of Unicode.
    from kit.cli.screen.cells import beginning  # noqa: PLC0415

    return beginning(text.expandtabs(), most)
