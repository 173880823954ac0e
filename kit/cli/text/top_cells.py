"""Lines of a screen, in pieces with a style, cut to the cells of a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

from kit.cli.screen.terminal import Style

Piece = tuple[str, Style | None]
Line = tuple[Piece, ...]


def fit(text: str, width: int, *, right: bool) -> str:
    """Return text in exactly this many cells of a terminal. Text that is too long ends in …"""
    if cells(text) > width:
        text = _cut(text, width - 1) + "…"
    room = " " * (width - cells(text))
    return room + text if right else text + room


def cropped(line: Line, width: int) -> Line:
    """Return the line in at most this many cells, without spaces at its end."""
    pieces: list[Piece] = []
    left = width
    for text, style in line:
        taken = cells(text)
        if taken > left:
            pieces.append((_cut(text, left - 1) + "…" if left > 0 else "", style))
            break
        pieces.append((text, style))
        left -= taken
    while pieces and not pieces[-1][0].strip():
        pieces.pop()
    if pieces:
        pieces[-1] = (pieces[-1][0].rstrip(), pieces[-1][1])
    return tuple(pieces)


def cells(text: str) -> int:
    """Return how many cells of a terminal a text takes."""
    return len(text) if text.isascii() else sum(_width(char) for char in text)


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def _cut(text: str, cells: int) -> str:
    """Return the beginning of a text in at most this many cells."""
    kept, left = [], cells
    for char in text:
        left -= _width(char)
        if left < 0:
            break
        kept.append(char)
    return "".join(kept)


def text_of(lines: Sequence[Line], paint: Callable[[str, Style], str] | None = None) -> str:
    """Return the lines as one text. `paint` colors a piece."""
    return "\n".join(
        "".join(text if style is None or paint is None else paint(text, style) for text, style in line)
        for line in lines
    )
