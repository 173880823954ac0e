"""How this package puts what a person wrote into its messages: quoted, printable, short; and near names."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST = 60


def shown(text: str) -> str:
    """The text in quotes, on one line: what does not print is escaped, what is long is cut."""
    cut = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return "'" + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut) + "'"


def plain(text: str) -> str:
    """As `shown`, with no quotes: for the line that a person is asked to write."""
    return shown(text)[1:-1]


def near(word: str, known: Iterable[str], *, most: int = 3) -> tuple[str, ...]:
    """The names that begin with the word, or those most like it, best first; empty when none is like it."""
    import difflib  # noqa: PLC0415  (only when something is wrong)

    by_folded = {name.casefold(): name for name in known}
    folded = word.casefold()
    begun = [name for beginning, name in by_folded.items() if folded and beginning.startswith(folded)]
    if begun:
        return tuple(begun[:most])
    found = difflib.get_close_matches(folded, by_folded, n=most, cutoff=0.6)
    return tuple(by_folded[name] for name in found)


def listed(names: Iterable[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
