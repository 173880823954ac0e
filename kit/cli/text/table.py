"""What every text is made of: aligned tables and the names of hosts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    least: int = _LEAST,
) -> str:
    """Return columns as wide as their widest cell, two spaces apart, with numbers to the right.

    The `flexible` columns are cut, in this order, until the table is at most `width` wide. They keep `least` letters.
    Name them by their heading or, without a header, by their position: -1 is the last. Do not name columns of figures,
    because half a number is a wrong one.
    """
    body = [list(row) for row in rows]
    cells = [[str(cell) for cell in row] for row in ([header] if header else [])]
    cells += [[one_line(str(cell)) for cell in row] for row in body]
    if not cells:
        return ""
    right = [bool(body) and all(isinstance(row[i], int) for row in body) for i in range(len(cells[0]))]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    if width is not None:
        for name in flexible:
            over = sum(widths) + 2 * (len(widths) - 1) + len(indent) - width
            if over > 0 and (isinstance(name, int) or name in header):
                at = name if isinstance(name, int) else list(header).index(name)
                widths[at] = min(widths[at], max(least, widths[at] - over))
        cells = [[cut(cell, room) for cell, room in zip(row, widths, strict=True)] for row in cells]
    return "\n".join(
        indent
        + "  ".join(
            c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    )  # fmt: skip


def hosts(names: Sequence[str]) -> str:
    """Return `4 hosts: gpu[1-4]`."""
    return f"{len(names)} host{'' if len(names) == 1 else 's'}: {fold(names)}"


def fitted(
    body: Sequence[Sequence[str]],
    header: Sequence[str],
    width: int | None,
    *,
    flexible: Sequence[str],
    least: int = _LEAST,
) -> str:
    """Return a table without the columns that are empty; see `table` for the rest."""
    keep = [i for i in range(len(header)) if any(row[i] for row in body)]
    cells = [[row[i] for i in keep] for row in body]
    return table(cells, [header[i] for i in keep], width=width, flexible=flexible, least=least)


def cut(text: str, room: int) -> str:
    """Return the text, or its beginning and … if it is longer than `room`."""
    return text if len(text) <= room else text[: room - 1] + "…"
