"""How many cells of a terminal a text takes: two for each Chinese, Japanese or Korean character."""

from __future__ import annotations


def cells(text: str) -> int:
    """Return how many cells of a terminal a text takes."""
    return len(text) if text.isascii() else sum(_width(char) for char in text)


def _width(char: str) -> int:
    # Few texts need the tables of Unicode.
    import unicodedata  # noqa: PLC0415

    # Marks, and the vowels and final consonants of Korean, which join the letter before them.
    if unicodedata.category(char) in ("Mn", "Me") or "\u1160" <= char <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def beginning(text: str, most: int) -> str:
    """Return the beginning of a text in at most this many cells."""
    if text.isascii():
        return text[: max(most, 0)]
    kept, left = [], most
    for char in text:
        left -= _width(char)
        if left < 0:
            break
        kept.append(char)
    return "".join(kept)
