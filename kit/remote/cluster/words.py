"""Short words in what a VM prints about itself: names and versions that a terminal can show."""

from __future__ import annotations

from kit.model.answer import OddAnswer

_LONGEST = 200


def word(text: str | None) -> str:
    """Return a short line that a terminal can show. Raises OddAnswer."""
    if text and not (len(text) <= _LONGEST and text.isprintable()):
        raise OddAnswer("this is not a version or a name", text)
    return text or ""


def version(text: str | None) -> str:
    """Return a short line in ASCII, of whose digits int() can make a number. Raises OddAnswer."""
    if text and not text.isascii():
        raise OddAnswer("this is not a version", text)
    return word(text)
