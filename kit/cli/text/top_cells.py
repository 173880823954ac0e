"""Lines of a screen, in pieces with a style, cut to the cells of a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kit.cli.screen.cells import beginning, cells
from kit.cli.screen.terminal import Style

Piece = tuple[str, Style | None]
Line = tuple[Piece, ...]


def fit(text: str, width: int, *, right: bool) -> str:
    """Return text in exactly this many cells of a terminal. Text that is too long ends in …"""
    if cells(text) > width:
        text = beginning(text, width - 1) + "…"
    room = " " * (width - cells(text))
    return room + text if right else text + room


def cropped(line: Line, width: int) -> Line:
    """Return the line in at most this many cells, without spaces at its end."""
    pieces: list[Piece] = []
    left = width
    for text, style in line:
        taken = cells(text)
        if taken > left:
            pieces.append((beginning(text, left - 1) + "…" if left > 0 else "", style))
            break
        pieces.append((text, style))
        left -= taken
    while pieces and not pieces[-1][0].strip():
        pieces.pop()
    if pieces:
        pieces[-1] = (pieces[-1][0].rstrip(), pieces[-1][1])
    return tuple(pieces)


def text_of(lines: Sequence[Line], paint: Callable[[str, Style], str] | None = None) -> str:
    """Return the lines as one text. `paint` colors a piece."""
    return "\n".join(
        "".join(text if style is None or paint is None else paint(text, style) for text, style in line)
        for line in lines
    )
