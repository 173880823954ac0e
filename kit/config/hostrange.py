"""Expands ranges in names: gpu[01-08], 10.0.0.[1-4], r[1-2]n[1,3,5-7]."""

from __future__ import annotations

import itertools
import re

from kit.config.words import plain, shown

_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
# Word processors and chat programs replace a typed '-' with one of these.
_FALSE_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"


class RangeError(ValueError):
    """A range that cannot be read: the problem, and what to write."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def expand(word: str, *, most: int) -> list[str]:
    """Return the names of a range in order; the last bracket changes fastest. Zero padding is kept.

    Raises RangeError for brackets that cannot be read, and for more than `most` names.
    """
    if "[" not in word and "]" not in word:
        return [word]
    parts: list[list[str]] = []
    count = 1
    for text, inside in _pieces(word):
        values = _values(text, most=most) if inside else [text]
        count *= len(values)
        if count > most:
            raise RangeError(f"{shown(word)} has more than {most} hosts", "write a smaller range")
        parts.append(values)
    return ["".join(choice) for choice in itertools.product(*parts)]


def _pieces(word: str) -> list[tuple[str, bool]]:
    """Return the pieces of the word: (text, whether it was in brackets)."""
    pieces: list[tuple[str, bool]] = []
    rest = word
    while rest:
        before, bracket, after = rest.partition("[")
        if "]" in before:
            raise RangeError(f"{shown(word)} has a ']' with no '[' before it", "write a range as gpu[01-08]")
        if before:
            pieces.append((before, False))
        if not bracket:
            break
        inside, closed, rest = after.partition("]")
        if not closed:
            raise RangeError(
                f"{shown(word)} has a '[' with no ']' after it",
                f"close the bracket, without a space inside: {plain(word)}]",
            )
        if "[" in inside:
            raise RangeError(f"{shown(word)} has a bracket inside a bracket", "write a range as gpu[01-08]")
        pieces.append((inside, True))
    return pieces


def _values(inside: str, *, most: int) -> list[str]:
    """Return the numbers of one bracket. A number may occur only once."""
    values: list[str] = []
    for item in inside.split(","):
        if _NUMBER.fullmatch(item):
            values.append(item)
        else:
            values.extend(_run(item, inside, most=most))
        if len(values) > most:
            raise RangeError(f"[{plain(inside)}] has more than {most} hosts", "write a smaller range")
    if len(set(values)) < len(values):
        known: set[str] = set()
        twice = next(value for value in values if value in known or known.add(value))  # type: ignore[func-returns-value]
        raise RangeError(f"[{plain(inside)}] has {twice} twice", "write each number once")
    return values


def _run(item: str, inside: str, *, most: int) -> list[str]:
    """Return `01-08` as eight words, as wide as the first number if that is padded with zeros."""
    if any(dash in item for dash in _FALSE_DASHES):
        corrected = item
        for dash in _FALSE_DASHES:
            corrected = corrected.replace(dash, "-")
        raise RangeError(f"[{plain(inside)}] has a long dash in it", f"write a plain minus sign: [{plain(corrected)}]")
    low, dash, high = item.partition("-")
    start, colon, end = item.partition(":")
    if colon and _NUMBER.fullmatch(start) and _NUMBER.fullmatch(end):
        raise RangeError(f"[{plain(inside)}] is a range in Ansible's syntax", f"write [{start}-{end}]")
    if not dash or not _NUMBER.fullmatch(low) or not _NUMBER.fullmatch(high):
        raise RangeError(
            f"[{plain(inside)}] is not a range of numbers",
            "write whole numbers of at most 9 digits: [1-4], [01-08] or [1,3,5-7]",
        )
    first, last = int(low), int(high)
    if first > last:
        raise RangeError(f"[{plain(inside)}] runs backwards: {low} is above {high}", f"write [{high}-{low}]")
    padded = low[0] == "0" and len(low) > 1
    if (padded and len(high) < len(low)) or (high[0] == "0" and len(high) > 1 and len(high) != len(low)):
        width = max(len(low), len(high))
        raise RangeError(
            f"[{plain(inside)}] has ends of different width",
            f"write [{low.zfill(width)}-{high.zfill(width)}] or [{first}-{last}]",
        )
    if last - first >= most:
        raise RangeError(f"[{plain(inside)}] has more than {most} hosts", "write a smaller range")
    # A later number is never shorter than the first, so zfill only pads.
    return [str(number).zfill(len(low)) for number in range(first, last + 1)]
