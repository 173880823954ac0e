"""What every text is made of: aligned tables and the names of hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from kit.cli.screen.cells import beginning, cells
from kit.model.text import fold, one_line

# A column that a narrow terminal may cut keeps this much.
_LEAST = 14


def table(
    rows: Iterable[Sequence[object]],
    header: Sequence[str] = (),
    indent: str = "",
    *,
    width: int | None = None,
    flexible: Sequence[str | int] = (),
    drop: Sequence[str] = (),
    least: int = _LEAST,
    keeps: Mapping[str, int] = MappingProxyType({}),
) -> str:
    """Return columns as wide as their widest cell, two spaces apart, with numbers to the right.

    The `flexible` columns are cut, in this order, until the table is at most `width` wide. They keep `least` cells,
    or what `keeps` says. Name them by their heading or, without a header, by their position: -1 is the last. Do not
    name columns of figures, because half a number is a wrong one. If that is not enough, the columns of `drop` are left
    out, the least important one first. Do not name the column of the host or the state there.
    """
    body = [list(row) for row in rows]
    texts = [[str(cell) for cell in row] for row in ([header] if header else [])]
    texts += [[one_line(str(cell)) for cell in row] for row in body]
    if not texts:
        return ""
    right = [bool(body) and all(isinstance(row[i], int) for row in body) for i in range(len(texts[0]))]
    widths = [max(cells(row[i]) for row in texts) for i in range(len(texts[0]))]
    shown = list(range(len(widths)))
    if width is not None:
        places = [name if isinstance(name, int) else _place(header, name) for name in flexible]
        kept = {
            at % len(widths): keeps.get(name, least) if isinstance(name, str) else least
            for name, at in zip(flexible, places, strict=True)
            if at is not None
        }
        dropped = [at for at in (_place(header, name) for name in drop) if at is not None]
        shown = _fit(widths, kept, dropped, width - len(indent))
    lines = (
        indent + "  ".join(_padded(cut(row[i], widths[i]), widths[i], right=right[i]) for i in shown).rstrip()
        for row in texts
    )
    return "\n".join(lines if width is None else (cut(line, width) for line in lines))


def _place(header: Sequence[str], name: str) -> int | None:
    return list(header).index(name) if name in header else None


def _fit(widths: list[int], kept: Mapping[int, int], dropped: Sequence[int], room: int) -> list[int]:
    """Return the columns that are shown, and make `widths` smaller so that they fit."""
    least = [min(width, kept.get(at, width)) for at, width in enumerate(widths)]
    shown = list(range(len(widths)))
    for at in dropped:
        if _total(least[i] for i in shown) > room:
            shown.remove(at)
    for at, _ in kept.items():
        over = _total(widths[i] for i in shown) - room
        if over > 0 and at in shown:
            widths[at] = max(least[at], widths[at] - over)
    return shown


def _total(widths: Iterable[int]) -> int:
    """Return the width of columns that are two spaces apart."""
    return sum(width + 2 for width in widths) - 2


def hosts(names: Sequence[str]) -> str:
    """Return `4 hosts: gpu[1-4]`."""
    return f"{len(names)} host{'' if len(names) == 1 else 's'}: {fold(names)}"


def fitted(
    body: Sequence[Sequence[str]],
    header: Sequence[str],
    width: int | None,
    *,
    flexible: Sequence[str],
    drop: Sequence[str] = (),
    least: int = _LEAST,
    keeps: Mapping[str, int] = MappingProxyType({}),
) -> str:
    """Return a table without the columns that are empty; see `table` for the rest."""
    keep = [i for i in range(len(header)) if any(row[i] for row in body)]
    cells = [[row[i] for i in keep] for row in body]
    names = [header[i] for i in keep]
    return table(cells, names, width=width, flexible=flexible, drop=drop, least=least, keeps=keeps)


def cut(text: str, room: int) -> str:
    """Return the text, or its beginning and … if it takes more than `room` cells of a terminal."""
    return text if cells(text) <= room else beginning(text, room - 1) + "…"


def _padded(text: str, width: int, *, right: bool) -> str:
    spaces = " " * (width - cells(text))
    return spaces + text if right else text + spaces
