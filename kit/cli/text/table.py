"""What every text is made of: aligned tables and the names of hosts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kit.model.text import fold

# A column that a narrow terminal may cut keeps this much.
_LEAST = 14


def table(rows: Iterable[Sequence[object]], header: Sequence[str] = (), indent: str = "") -> str:
    """Columns as wide as their widest cell, two spaces apart; numbers to the right."""
    cells = [[str(cell) for cell in row] for row in ([header] if header else [])]
    body = [list(row) for row in rows]
    cells += [[str(cell) for cell in row] for row in body]
    if not cells:
        return ""
    right = [bool(body) and all(isinstance(row[i], int) for row in body) for i in range(len(cells[0]))]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return "\n".join(
        indent
        + "  ".join(
            c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    )  # fmt: skip


def hosts(names: Sequence[str]) -> str:
    """`4 hosts: gpu[1-4]`."""
    return f"{len(names)} host{'' if len(names) == 1 else 's'}: {fold(names)}"


def fitted(body: Sequence[Sequence[str]], header: Sequence[str], width: int | None, *, flexible: Sequence[str]) -> str:
    """A table with no empty column; the `flexible` ones are cut, in this order, until it is `width` wide at most."""
    keep = [i for i in range(len(header)) if any(row[i] for row in body)]
    head = [header[i] for i in keep]
    cells = [[row[i] for i in keep] for row in body]
    if width is not None:
        for name in flexible:
            over = _width(cells, head) - width
            if over > 0 and name in head:
                at = head.index(name)
                room = max(_LEAST, max(len(row[at]) for row in cells) - over)
                cells = [[*row[:at], cut(row[at], room), *row[at + 1 :]] for row in cells]
    return table(cells, head)


def _width(cells: Sequence[Sequence[str]], head: Sequence[str]) -> int:
    widths = [max(len(row[i]) for row in (head, *cells)) for i in range(len(head))]
    return sum(widths) + 2 * (len(widths) - 1)


def cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"
