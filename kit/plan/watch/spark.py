"""Short forms for a screen: sparklines, amounts, shares. A value that a host does not have is N/A."""

from __future__ import annotations

from collections.abc import Sequence

MISSING = "N/A"
_BLOCKS, _ASCII = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
_UNITS = ("", "k", "M", "G", "T", "P")
# The letters of a cell with two figures, such as 1755/1980.
PAIR = 9


def sparkline(values: Sequence[float | None], width: int, *, top: float = 100.0, ascii_only: bool = False) -> str:
    """Return the last `width` values as a line of blocks, the newest at the right. A missing value is a space.

    `top` is the value of a full block.
    """
    marks = _ASCII if ascii_only else _BLOCKS
    shown = [_mark(value, top, marks) for value in values[-width:]] if width > 0 else []
    return "".join(shown).rjust(width)


def _mark(value: float | None, top: float, marks: str) -> str:
    if value is None or top <= 0:
        return " "
    # A value above zero is always visible.
    level = min(max(value, 0.0) / top, 1.0) * (len(marks) - 1)
    return marks[max(round(level), 1 if value > 0 else 0)]


def amount(value: float | None) -> str:
    """Return a number of bytes in at most 4 letters: 950, 12k, 1.1G (powers of 1000)."""
    if value is None:
        return MISSING
    number = max(value, 0.0)
    for unit in _UNITS:
        if number < 999.5:
            return f"{number:.1f}{unit}" if unit and number < 9.95 else f"{number:.0f}{unit}"
        number /= 1000
    return f"{number:.0f}E"


def of(used: float | None, total: float | None) -> str:
    """Return `120/512G`: both in the unit of the total, in at most PAIR letters."""
    if used is None or not total:
        return MISSING
    # Up to four digits: the unit of 1082 GB is G.
    unit = next((index for index in range(len(_UNITS)) if total < 9999.5 * 1000**index), len(_UNITS) - 1)
    text = f"{used / 1000**unit:.0f}/{total / 1000**unit:.0f}{_UNITS[unit]}"
    if len(text) <= PAIR or unit + 1 == len(_UNITS):
        return text
    thousands = [part / 1000 ** (unit + 1) for part in (used, total)]
    left, right = (f"{part:.1f}" if part < 9.95 else f"{part:.0f}" for part in thousands)
    return f"{left}/{right}{_UNITS[unit + 1]}"


def pair(value: float | None, limit: float | None, unit: str = "") -> str:
    """Return `694/700W`, with N/A for a missing one of the two. Two numbers of four digits leave no room for the unit.

    So no figure is cut in PAIR letters.
    """
    if value is None and limit is None:
        return MISSING
    left, right = (MISSING if one is None else f"{one:.0f}" for one in (value, limit))
    text = f"{left}/{right}"
    return f"{text}{unit}" if limit is not None and len(text) + len(unit) <= PAIR else text


def core_time(seconds: float) -> str:
    """Return a time of cores in at most 7 letters: `1894s`, and `343h` for what has more digits."""
    return f"{seconds:.0f}s" if seconds < 999_999.5 else f"{seconds / 3600:.0f}h"


def share(value: float | None) -> str:
    """Return `97%`."""
    return MISSING if value is None else f"{value:.0f}%"


def percent(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else 100 * part / whole
