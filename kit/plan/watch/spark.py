"""Short forms for a screen: sparklines, amounts, shares. A value that a host does not have is N/A."""

from __future__ import annotations

from collections.abc import Sequence

MISSING = "N/A"
_BLOCKS, _ASCII = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
_UNITS = ("", "k", "M", "G", "T", "P")


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
    """Return `120/512G`: both in the unit of the total."""
    if used is None or not total:
        return MISSING
    # Up to four digits: the unit of 1082 GB is G.
    unit = next((index for index in range(len(_UNITS)) if total < 9999.5 * 1000**index), len(_UNITS) - 1)
    return f"{used / 1000**unit:.0f}/{total / 1000**unit:.0f}{_UNITS[unit]}"


def pair(value: float | None, limit: float | None, unit: str = "") -> str:
    """Return `694/700W`, with N/A for a missing one of the two."""
    if value is None and limit is None:
        return MISSING
    left, right = (MISSING if one is None else f"{one:.0f}" for one in (value, limit))
    return f"{left}/{right}{unit if limit is not None else ''}"


def share(value: float | None) -> str:
    """Return `97%`."""
    return MISSING if value is None else f"{value:.0f}%"


def percent(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else 100 * part / whole
