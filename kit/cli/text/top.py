"""kit top as text: a screen of any size, and everything below each other."""

from __future__ import annotations

from typing import NamedTuple

from kit.cli.text.top_cells import Line, Piece, cropped
from kit.cli.text.top_tables import section
from kit.model.pretended import MARK, pretended
from kit.model.text import one_line
from kit.plan.watch.rows import Tables
from kit.plan.watch.state import HELP, SECTIONS, Choice, chosen, own_order, rooms

_TITLES = {"hosts": "HOSTS", "gpus": "GPUS", "ranks": "RANKS"}


class Head(NamedTuple):
    """What the first line says. `note` is about the run."""

    cluster: str
    clock: str
    note: str = ""


def whole(head: Head, tables: Tables, width: int, *, ascii_only: bool = False) -> list[Line]:
    """Return all tables one below the other, without a limit of height, for --once."""
    lines = [_first_line(head, tables, Choice(), width)]
    for name in SECTIONS:
        if name == "hosts" or getattr(tables, name):
            lines += [(), *section(name, tables, Choice(), width, ascii_only=ascii_only)]
    return _plain(lines) if ascii_only else lines


class Page(NamedTuple):
    """A screen, and the first row of the chosen table that it shows."""

    lines: list[Line]
    first: int = 0


def page(head: Head, everything: Tables, choice: Choice, size: tuple[int, int], *, ascii_only: bool = False) -> Page:
    """Return a screen of `size` (columns, lines) with the chosen ones of these rows.

    It scrolls the chosen table; the others show their first rows.
    """
    width, height = size
    if choice.help:
        return Page(_help(width, height))
    tables = chosen(everything, choice)
    names = [name for name in SECTIONS if name in ("hosts", choice.section) or getattr(tables, name)]
    needs = [len(getattr(tables, name)) for name in names]
    room = height - 2 - 2 * len(names)
    given = rooms(needs, max(room, 0), names.index(choice.section))
    lines = [_first_line(head, everything, choice, width)]
    top = 0
    for name, need, rows in zip(names, needs, given, strict=True):
        first = 0
        if name == choice.section:
            first = top = min(choice.first, need - rows)
        # A screen is drawn for each key: only what it shows is made.
        shown = slice(first, first + rows)
        heading, *body = section(name, tables, choice, width, ascii_only=ascii_only, shown=shown)
        part = str(need) if rows == need else f"{first + 1}-{first + rows} of {need}" if rows else f"0 of {need}"
        lines += [_section_line(name, part, choice, width), heading, *body]
    lines = lines[: height - 1]
    lines += [()] * (height - 1 - len(lines))
    lines = [*lines, _keys(choice, width)]
    return Page(_plain(lines) if ascii_only else lines, top)


def _plain(lines: list[Line]) -> list[Line]:
    """Return the lines with a mark for cut text that every terminal has."""
    return [tuple((text.replace("…", "~"), style) for text, style in line) for line in lines]


def _first_line(head: Head, tables: Tables, choice: Choice, width: int) -> Line:
    troubled = sum(bool(row.trouble) for row in tables.hosts)
    hosts = f"{len(tables.hosts)} host{'' if len(tables.hosts) == 1 else 's'}"
    lost = f", {troubled} without figures" if troubled else ""
    count = sum(not row.trouble for row in tables.gpus)
    gpus = f", {count} GPU{'' if count == 1 else 's'}" if count else ""
    pieces: list[Piece] = [("kit top", "bold"), (f"  {one_line(head.cluster)}: {hosts}", None), (lost, "red")]
    pieces += [(gpus, None), (f"  {head.clock}", "dim"), (f"  {one_line(head.note)}" if head.note else "", None)]
    if choice.paused:
        pieces.insert(1, ("  PAUSED", "yellow"))
    if pretended(row.gpu.name for row in tables.gpus):
        # Early in the line: narrow tables have no column for the name, and wide ones cut it.
        pieces.insert(1, (f"  GPUs {MARK}", "yellow"))
    return cropped(tuple(pieces), width)


def _section_line(name: str, part: str, choice: Choice, width: int) -> Line:
    """Return the line above a table: its name, which rows are shown, and its order."""
    active = name == choice.section
    sort = choice.sort_of(name)
    order = f" by {sort}" if sort != own_order(name) else ""
    if choice.inverted and active:
        order += ", inverted" if order else " inverted"
    text = f"{'>' if active else ' '} {_TITLES[name]} {part}{order}"
    return cropped(((text, "bold" if active else "dim"),), width)


def _keys(choice: Choice, width: int) -> Line:
    if choice.typing:
        return cropped((("Filter: ", "bold"), (f"{one_line(choice.filter)}_", None), ("  Enter  Esc", "dim")), width)
    pieces: list[Piece] = []
    for key, text in (
        ("F1", "Help"),
        ("F4", "Filter"),
        ("F6", "Sort"),
        ("Tab", "Table"),
        ("Z", "Pause"),
        ("q", "Quit"),
    ):
        pieces += [(key, "bold"), (f" {text}  ", None)]
    if choice.filter:
        pieces.append((f"only: {one_line(choice.filter)}", "yellow"))
    return cropped(tuple(pieces), width)


def _help(width: int, height: int) -> list[Line]:
    lines: list[Line] = [(("The keys of kit top, which are those of htop:", "bold"),), ()]
    lines += [((f"  {keys:<28}", "bold"), (text, None)) for keys, text in HELP]
    lines += [(), (("Any key goes back.", "dim"),)]
    cut = [cropped(line, width) for line in lines[:height]]
    return cut + [()] * (height - len(cut))
