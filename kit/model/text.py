"""Values as short text: host names folded (gpu1 gpu2 gpu3 → gpu[1-3]), bytes with a unit, numbers with a noun."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})(\D*)", re.ASCII | re.DOTALL)

_Family = tuple[str, str, int]  # before the number, after it, its width (0: written without leading zeros)


def fold(names: Iterable[str], *, most: int | None = None) -> str:
    """Return `gpu[1-3],head` for `gpu1, gpu2, gpu3, head`. Families keep the order of their first names.

    With `most`, name only that many ranges and single names, and count the rest: `gpu[1,3,5] and 61 more`.
    """
    families: dict[_Family | str, set[int]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            families[name] = set()
        else:
            families.setdefault(_family(match, families), set()).add(int(match[2]))
    parts: list[str] = []
    room, hidden = most, 0
    for family, numbers in families.items():
        ranges = _ranges(numbers)
        if room is not None:
            hidden += sum(last - first + 1 for first, last in ranges[room:])
            ranges = ranges[:room]
            room -= len(ranges)
        if ranges:
            parts.append(_folded(family, ranges))
    return ",".join(parts) + (f" and {hidden} more" if hidden else "")


def _family(match: re.Match[str], families: Iterable[_Family | str]) -> _Family:
    """Return the family of a name. gpu01 and gpu1 are different hosts; gpu10 follows gpu09 as well as gpu9."""
    padded = (match[1], match[3], len(match[2]))
    if (match[2].startswith("0") and len(match[2]) > 1) or padded in families:
        return padded
    return (match[1], match[3], 0)


def _ranges(numbers: set[int]) -> list[tuple[int, int]]:
    """Return the first and last number of each run of numbers; one range for a name without a number."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges or [(0, 0)]


def _folded(family: _Family | str, ranges: list[tuple[int, int]]) -> str:
    if isinstance(family, str):
        return family
    before, after, width = family
    inner = ",".join(f"{a:0{width}}" if a == b else f"{a:0{width}}-{b:0{width}}" for a, b in ranges)
    single = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return f"{before}{inner}{after}" if single else f"{before}[{inner}]{after}"


def size(count: int) -> str:
    """Return a count of bytes as docker prints it: 1.87 GB (powers of 1000)."""
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.2f} GB"


def files(count: int) -> str:
    """Return `1 file` or `2 files`."""
    return f"{count} file{'' if count == 1 else 's'}"


# What a terminal acts on, or shows in another order or not at all: C0 and C1 without newlines and tabs, controls of the
# direction of writing, other ends of lines, and tags.
CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u2069\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def escaped(text: str) -> str:
    """Return text in which everything is escaped that a terminal acts on, except for newlines and tabs."""
    if text.isprintable():
        return text
    return CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """Return `escaped` text on one line, for a cell of a table: an end of a line becomes \\n."""
    return text if text.isprintable() else escaped(text).replace("\n", "\\n").replace("\t", " ")


def hanging(text: str) -> str:
    """Return text whose further lines are indented, so that a host's words never look like a line of kit."""
    return text.replace("\n", "\n    ")


def printable(text: str) -> str:
    """Return a name that a terminal can show: what is not printable is escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def plural(count: int, word: str) -> str:
    """Return `1 rank` or `8 ranks`."""
    return f"{count} {word}{'' if count == 1 else 's'}"
