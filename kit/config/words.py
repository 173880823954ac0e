"""Puts user input into messages: quoted, printable and short. Finds similar names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from kit.model.logins import without_logins

_LONGEST = 60
# A colon of a URL, as in http://, is no mistake, nor is that of a volume in a list.
_UNSPACED = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_.-]*):((?!//)[^\s:].*)")


def shown(text: str) -> str:
    """Return the text in quotes on one line, without logins. Unprintable characters are escaped. A long text is cut."""
    # Before the cut, which may leave a password without the @ that marks it.
    text = without_logins(text)
    cut = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return "'" + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut) + "'"


def plain(text: str) -> str:
    """Return the text like `shown`, but without quotes, for a line that you can type."""
    return shown(text)[1:-1]


def spaced(line: str, known: Collection[str]) -> str:
    """Return `user: ubuntu` for a line such as `  user:ubuntu`, whose colon has no space. '' for other lines.

    `known` are the settings that may be on the line. Another key may be a variable of `env:` with a secret as its
    value: return `TOKEN: VALUE` for it.
    """
    match = _UNSPACED.fullmatch(line)
    if match is None:
        return ""
    return f"{match[1]}: {plain(match[2].strip()) if match[1] in known else 'VALUE'}"


def variable_name(text: str) -> str:
    """Return the name of a variable for a message: `A=…` for `A=VALUE`, because the value may be a secret."""
    sign = re.search("[=:]", text)
    return f"{plain(text[: sign.start()])}{sign[0]}…" if sign else plain(text)


def near(word: str, known: Iterable[str], *, most: int = 3) -> tuple[str, ...]:
    """Return the names that start with the word, or the most similar ones, best first; empty if none is similar."""
    import difflib  # noqa: PLC0415  (only for an error)

    by_folded = {name.casefold(): name for name in known}
    folded = word.casefold()
    starting = [name for beginning, name in by_folded.items() if folded and beginning.startswith(folded)]
    if starting:
        return tuple(starting[:most])
    similar = difflib.get_close_matches(folded, by_folded, n=most, cutoff=0.6)
    return tuple(by_folded[name] for name in similar)


def listed(names: Iterable[str]) -> str:
    """Return `a`, `a or b`, or `a, b or c`."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
