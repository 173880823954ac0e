"""What the person at kit top's screen has chosen, and what each key does. The keys are those of htop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from kit.model.values import replace
from kit.plan.watch.rows import GpuRow, HostRow, RankRow, Tables

Key = Callable[[Any], Any]
SECTIONS = ("hosts", "gpus", "ranks")
# What each section can be sorted by: its own order first. A row with the largest value comes first.
KEYS: dict[str, dict[str, Key]] = {
    "hosts": {
        "HOST": lambda _: None,
        "CPU": lambda row: row.cpu,
        "MEM": lambda row: row.mem,
        "NET": lambda row: None if row.rx is None else row.rx + (row.tx or 0.0),
        "DISK": lambda row: row.disk,
        "GPU": lambda row: row.gpu,
    },
    "gpus": {
        "GPU": lambda _: None,
        "USE": lambda row: row.gpu.use,
        "MEM": lambda row: row.mem,
        "TEMP": lambda row: row.gpu.temp,
        "POWER": lambda row: row.gpu.power,
    },
    "ranks": {
        "RANK": lambda _: None,
        "CPU": lambda row: row.reading.cpu,
        "MEM": lambda row: row.reading.rss,
        "TIME": lambda row: row.reading.cpu_s,
    },
}
# htop's letters for an order, by section.
_LETTERS = {
    "N": {"hosts": "HOST", "gpus": "GPU", "ranks": "RANK"},
    "P": {"hosts": "CPU", "gpus": "USE", "ranks": "CPU"},
    "M": {"hosts": "MEM", "gpus": "MEM", "ranks": "MEM"},
    "T": {"hosts": "CPU", "gpus": "TEMP", "ranks": "TIME"},
}
_MOVES = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -10, "pagedown": 10, "home": -(10**6), "end": 10**6}
HELP = (
    ("q F10", "quit"),
    ("Tab", "go to the next table: hosts, GPUs, ranks"),
    ("Up Down PgUp PgDn Home End", "scroll the table"),
    ("< > F6", "sort by the column before, or the next one"),
    ("P M T N", "sort by CPU or use, memory, time or temperature, or not"),
    ("I", "turn the order round"),
    ("\\ F4", "show only rows with some text; Esc shows all"),
    ("Z", "pause, and go on"),
    ("h ? F1", "show this, and leave it"),
)


def own_order(section: str) -> str:
    """Return the column that stands for the section's own order."""
    return next(iter(KEYS[section]))


class Choice(Struct, frozen=True, kw_only=True):
    """`sorts` has the column of each section that is not in its own order. `typing`: keys go into the filter."""

    section: str = "hosts"
    sorts: tuple[tuple[str, str], ...] = ()
    inverted: bool = False
    filter: str = ""
    typing: bool = False
    paused: bool = False
    help: bool = False
    over: bool = False
    first: int = 0

    def sort_of(self, section: str) -> str:
        """Return the column by which a section is sorted."""
        return dict(self.sorts).get(section) or own_order(section)


def pressed(choice: Choice, key: str) -> Choice:
    """Return the choice after a key: a letter, or a name such as `f10`, `tab`, `esc`, `enter`, `backspace`."""
    if choice.typing:
        return _typed(choice, key)
    if choice.help:
        return replace(choice, help=False, over=key in ("q", "f10"))
    if key in _MOVES:
        return replace(choice, first=max(choice.first + _MOVES[key], 0))
    if key in _LETTERS:
        return _sorted_by(choice, _LETTERS[key][choice.section])
    action = _ACTIONS.get(key)
    return action(choice) if action is not None else choice


def _next_section(choice: Choice) -> Choice:
    index = SECTIONS.index(choice.section)
    return replace(choice, section=SECTIONS[(index + 1) % len(SECTIONS)], first=0)


def _next_sort(choice: Choice, step: int) -> Choice:
    columns = list(KEYS[choice.section])
    return _sorted_by(choice, columns[(columns.index(choice.sort_of(choice.section)) + step) % len(columns)])


_ACTIONS: dict[str, Callable[[Choice], Choice]] = {
    **dict.fromkeys(("q", "f10"), lambda choice: replace(choice, over=True)),
    **dict.fromkeys((">", ".", "f6"), lambda choice: _next_sort(choice, 1)),
    **dict.fromkeys(("<", ","), lambda choice: _next_sort(choice, -1)),
    **dict.fromkeys(("\\", "f4", "/", "f3"), lambda choice: replace(choice, typing=True, first=0)),
    **dict.fromkeys(("h", "?", "f1"), lambda choice: replace(choice, help=True)),
    "tab": _next_section,
    "I": lambda choice: replace(choice, inverted=not choice.inverted),
    "Z": lambda choice: replace(choice, paused=not choice.paused),
    "esc": lambda choice: replace(choice, filter="", first=0),
}


def _typed(choice: Choice, key: str) -> Choice:
    if key in ("enter", "f10"):
        return replace(choice, typing=False)
    if key == "esc":
        return replace(choice, typing=False, filter="")
    if key == "backspace":
        return replace(choice, filter=choice.filter[:-1])
    return replace(choice, filter=choice.filter + key) if len(key) == 1 and key.isprintable() else choice


def _sorted_by(choice: Choice, column: str) -> Choice:
    sorts = {**dict(choice.sorts), choice.section: column}
    return replace(choice, sorts=tuple(sorts.items()), first=0)


def chosen(tables: Tables, choice: Choice) -> Tables:
    """Return the rows that the filter keeps, in the chosen order."""
    return Tables(
        hosts=tuple(_ordered(_kept(tables.hosts, choice), "hosts", choice)),
        gpus=tuple(_ordered(_kept(tables.gpus, choice), "gpus", choice)),
        ranks=tuple(_ordered(_kept(tables.ranks, choice), "ranks", choice)),
    )


def _kept(rows: Sequence[Any], choice: Choice) -> Sequence[Any]:
    word = choice.filter.lower()
    return [row for row in rows if word in _text(row).lower()] if word else rows


def _text(row: HostRow | GpuRow | RankRow) -> str:
    """Return what the filter looks at."""
    match row:
        case HostRow():
            return f"{row.name} {row.trouble}"
        case GpuRow():
            return f"{row.place} {row.gpu.name} {' '.join(row.held or ())} {row.trouble}"
        case RankRow():
            return f"{row.host} {row.reading.run} {row.reading.comm} {row.last}"


def _ordered(rows: Sequence[Any], section: str, choice: Choice) -> Sequence[Any]:
    """Return the largest first; rows without a value, such as hosts that do not answer, come last."""
    column = choice.sort_of(section)
    own = column == own_order(section)
    inverted = choice.inverted and section == choice.section
    if own:
        return rows[::-1] if inverted else rows
    value = KEYS[section][column]
    known = sorted((row for row in rows if value(row) is not None), key=value, reverse=not inverted)
    return [*known, *(row for row in rows if value(row) is None)]


def rooms(needs: Sequence[int], room: int, active: int) -> list[int]:
    """Return how many rows each table gets of `room`. The active one gets what the others leave.

    Every table gets up to 3 rows first, the others then a quarter each of what is left.
    """
    given = [min(need, 3) for need in needs]
    while sum(given) > room:
        given[given.index(max(given))] -= 1
    part = (room - sum(given)) // 4
    others = [index for index in range(len(needs)) if index != active]
    for index in others:
        given[index] += min(needs[index] - given[index], part)
    left = room - sum(given)
    for index in (active, *others):
        more = min(needs[index] - given[index], left)
        given[index] += more
        left -= more
    return given
