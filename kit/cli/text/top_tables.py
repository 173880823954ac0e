"""The tables of kit top: hosts, GPUs and ranks, at any width."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kit.cli.screen.controls import filtered
from kit.cli.screen.terminal import Style
from kit.cli.text.top_cells import Line, Piece, cropped, fit
from kit.model.text import one_line
from kit.plan.watch.rows import HEAT, GpuRow, Tables
from kit.plan.watch.spark import MISSING, PAIR, amount, core_time, of, pair, share, sparkline
from kit.plan.watch.state import Choice

# From these widths on, tables have more columns, and longer sparklines.
WIDE, WIDER = 110, 150
# A terminal that is narrower shows fewer columns: half a number is a wrong one.
NARROW = 80
_LOOKS = re.compile(r"\x1b\[[0-9;:]*m")
_HIGH, _FULL = 90.0, 95.0
_ALL = slice(None)


class Column(NamedTuple):
    """A column: its heading, its width (0: the rest of the line), whether it is aligned to the right, and a cell.

    `cell` returns the text and its style. `least` is the width of a screen from which on the column is shown. `key` is
    what the section is sorted by, if it can be.
    """

    title: str
    width: int
    cell: Callable[[Any], Piece]
    right: bool = True
    least: int = 0
    key: str = ""


def _share(value: float | None, *, high: float = 101.0) -> Piece:
    return share(value), "dim" if value is None else "yellow" if value >= high else None


def _plain(text: str) -> Piece:
    return text, "dim" if text == MISSING else None


def _spark(values: Sequence[float | None], width: int, *, ascii_only: bool) -> Piece:
    return sparkline(values, width, ascii_only=ascii_only), "green"


def _hosts(width: int, *, ascii_only: bool) -> list[Column]:
    long = 8 if width < WIDE else 20
    return [
        Column("HOST", 10 if width < WIDE else 16, lambda row: (one_line(row.name), "bold"), right=False, key="HOST"),
        Column("CPU", 4, lambda row: _share(row.cpu, high=_FULL), key="CPU"),
        Column("", long, lambda row: _spark(row.cpus, long, ascii_only=ascii_only), least=NARROW),
        Column("CORES", 5, lambda row: _plain(str(row.cores)), least=WIDE),
        Column("RUNQ", 4, lambda row: (str(row.runq), "yellow" if row.runq > row.cores > 0 else None)),
        Column("LOAD", 5, lambda row: _plain(MISSING if row.load is None else f"{row.load:.1f}"), least=WIDE),
        Column("STEAL", 5, lambda row: _share(row.steal, high=5.0), least=WIDE),
        Column("IOWAIT", 6, lambda row: _share(row.iowait, high=20.0), least=WIDE),
        Column("MEM", PAIR, lambda row: _plain(of(row.mem_used, row.mem_total)), least=NARROW),
        Column("MEM%", 4, lambda row: _share(row.mem, high=_HIGH), key="MEM"),
        Column("DISK", 4, lambda row: _share(row.disk, high=_HIGH), least=NARROW, key="DISK"),
        Column("BUSY", 4, lambda row: _share(row.busy, high=_HIGH), least=WIDE),
        Column("IN/s", 5, lambda row: _plain(amount(row.rx)), key="NET"),
        Column("OUT/s", 5, lambda row: _plain(amount(row.tx))),
        Column("LINK", 4, lambda row: _share(row.link, high=_HIGH)),
        Column("GPU", 4, lambda row: _plain("-") if not row.gpus else _share(row.gpu), key="GPU"),
        Column("", long, lambda row: _spark(row.uses, long, ascii_only=ascii_only), least=WIDE),
        Column("BUSIEST OTHER", 24, lambda row: (one_line(row.other), "yellow"), right=False, least=WIDER),
    ]


def _gpus(width: int, *, ascii_only: bool) -> list[Column]:
    long = 8 if width < WIDE else 20
    return [
        Column("GPU", 12 if width < WIDE else 18, lambda row: (one_line(row.place), "bold"), right=False, key="GPU"),
        Column("NAME", 24, lambda row: _plain(one_line(row.gpu.name)), right=False, least=WIDE),
        Column("USE", 4, lambda row: _share(row.gpu.use), key="USE"),
        Column("", long, lambda row: _spark(row.uses, long, ascii_only=ascii_only), least=NARROW),
        Column("MEM", PAIR, lambda row: _plain(of(row.gpu.mem_used, row.gpu.mem_total))),
        Column("MEM%", 4, lambda row: _share(row.mem), least=WIDE, key="MEM"),
        Column("TEMP", 5, _temperature, key="TEMP"),
        Column("POWER", PAIR, lambda row: _plain(pair(row.gpu.power, row.gpu.power_limit, "W")), key="POWER"),
        Column("CLOCK MHz", PAIR, lambda row: _plain(pair(row.gpu.sm_clock, row.gpu.sm_clock_max)), least=NARROW),
        Column("HELD BY", 0, _held, right=False),
    ]


def _temperature(row: GpuRow) -> Piece:
    return (
        _plain(MISSING) if row.gpu.temp is None else (f"{row.gpu.temp:.0f}C", "red" if row.gpu.temp >= _HIGH else None)
    )


def _held(row: GpuRow) -> Piece:
    if row.held is None:
        return _plain(MISSING)
    style: Style | None = "red" if set(HEAT) & set(row.held) else "yellow" if row.held != ("idle",) else None
    return one_line(", ".join(row.held)), style if row.held else None


def _ranks(width: int, *, several: bool) -> list[Column]:
    narrow = NARROW if several else 0
    run = [Column("RUN", 20, lambda row: (one_line(row.reading.run), None), right=False)] if several else []
    return [
        Column("RANK", 4, lambda row: (str(row.reading.rank), "bold"), key="RANK"),
        *run,
        Column("HOST", 10 if width < WIDE else 16, lambda row: (one_line(row.host), None), right=False),
        Column("PID", 7, lambda row: (str(row.reading.pid), None), least=narrow),
        Column("CPU%", 5, lambda row: (f"{row.reading.cpu:.0f}", None), key="CPU"),
        Column("MEM", 5, lambda row: (amount(row.reading.rss), None), least=narrow, key="MEM"),
        Column("TIME", 7, lambda row: (core_time(row.reading.cpu_s), None), least=WIDE, key="TIME"),
        Column("THR", 4, lambda row: (str(row.reading.threads), None), least=WIDE),
        Column("CORES", 9, lambda row: _plain(one_line(row.reading.allowed or MISSING)), least=WIDE),
        Column("S", 1, lambda row: (one_line(row.reading.state), "yellow" if row.reading.state == "D" else None)),
        Column("WAITS IN", 18, lambda row: _plain(_waits(row.reading.wchan)), right=False, least=WIDE),
        Column("LAST LINE", 0, lambda row: (plain(row.last), None), right=False),
    ]


def _waits(wchan: str) -> str:
    """Return the kernel's function, or - for a rank that runs, for which the kernel writes 0."""
    return "-" if wchan in ("", "0") else one_line(wchan)


def plain(text: str) -> str:
    """Return a line that a rank printed without its colors, and without anything that a terminal acts on."""
    return one_line(_LOOKS.sub("", filtered(text))).strip()


def section(
    name: str, tables: Tables, choice: Choice, width: int, *, ascii_only: bool = False, shown: slice = _ALL
) -> list[Line]:
    """Return the heading and the `shown` rows of a table, each at most `width` wide."""
    rows: Sequence[Any] = getattr(tables, name)[shown]
    several = len({row.reading.run for row in tables.ranks}) > 1
    columns = {
        "hosts": lambda: _hosts(width, ascii_only=ascii_only),
        "gpus": lambda: _gpus(width, ascii_only=ascii_only),
        "ranks": lambda: _ranks(width, several=several),
    }[name]()
    columns = [column for column in columns if width >= column.least]
    # The column by which the table is sorted has another color.
    sort = choice.sort_of(name)
    heading: list[Piece] = [(column.title, "green" if column.key == sort else "bold") for column in columns]
    lines = [_joined(heading, columns, width)]
    for row in rows:
        trouble = getattr(row, "trouble", "")
        if trouble:
            label = columns[0].cell(row)[0]
            pieces: Line = ((fit(label, columns[0].width, right=False), "bold"), (f"  {one_line(trouble)}", "red"))
            lines.append(cropped(pieces, width))
        else:
            lines.append(_joined([column.cell(row) for column in columns], columns, width))
    return lines


def _joined(cells: Sequence[Piece], columns: Sequence[Column], width: int) -> Line:
    pieces: list[Piece] = []
    for index, (cell, column) in enumerate(zip(cells, columns, strict=True)):
        text, style = cell
        if index:
            pieces.append((" " if not column.title else "  ", None))
        pieces.append((fit(text, column.width, right=column.right) if column.width else text, style))
    return cropped(tuple(pieces), width)
