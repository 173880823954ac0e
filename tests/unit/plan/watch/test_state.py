"""What keys do, and the rows that are left, in their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.plan.watch.rows import Tables, tables
from kit.plan.watch.state import KEYS, SECTIONS, Choice, chosen, pressed, rooms
from tests.fakes.readings import LAST, cluster


def after(*keys: str, choice: Choice = Choice()) -> Choice:  # noqa: B008  (frozen)
    for key in keys:
        choice = pressed(choice, key)
    return choice


@pytest.fixture
def rows() -> Tables:
    seen, history = cluster()
    return tables(seen, history, last=LAST)


@pytest.mark.parametrize("keys", [("q",), ("f10",), ("h", "q"), ("\\", "x", "enter", "q")])
def test_quit(keys: tuple[str, ...]) -> None:
    assert after(*keys).over


def test_q_is_a_letter_of_a_filter() -> None:
    choice = after("f4", "q", "z", "backspace", "left")
    assert (choice.filter, choice.typing, choice.over) == ("q", True, False)
    assert after("esc", choice=choice) == Choice()
    assert after("\\", "a", "enter", "esc").filter == ""


def test_tables_in_turn_and_scrolling() -> None:
    assert [after(*["tab"] * count).section for count in range(4)] == ["hosts", "gpus", "ranks", "hosts"]
    assert after("down", "down", "up").first == 1
    assert after("up", "pageup").first == 0
    assert after("end", "tab").first == 0
    assert after("?").help
    assert not after("?", "x").help
    assert after("Z").paused
    assert not after("Z", "Z").paused


def test_sorted_by_a_column(rows: Tables) -> None:
    assert [row.name for row in chosen(rows, after("P")).hosts] == ["gpu2", "gpu1", "head", "gpu3", "gpu4"]
    assert [row.name for row in chosen(rows, after("P", "I")).hosts] == ["head", "gpu1", "gpu2", "gpu3", "gpu4"]
    assert [row.name for row in chosen(rows, after("P", "N")).hosts] == [row.name for row in rows.hosts]
    assert [row.name for row in chosen(rows, after("I")).hosts] == [row.name for row in reversed(rows.hosts)]
    assert next(row.place for row in chosen(rows, after("tab", "T")).gpus) == "gpu2:1"
    assert [row.reading.rank for row in chosen(rows, after("tab", "tab", "M")).ranks] == [3, 2, 1, 0]
    # Another table keeps its order.
    assert [row.reading.rank for row in chosen(rows, after("M", "I")).ranks] == [0, 1, 2, 3]


def test_the_next_column_and_the_one_before() -> None:
    assert after(">").sort_of("hosts") == after("f6").sort_of("hosts") == "CPU"
    assert after("<").sort_of("hosts") == "GPU"
    assert after(*[">"] * len(KEYS["hosts"])).sort_of("hosts") == "HOST"


def test_only_rows_with_some_text(rows: Tables) -> None:
    kept = chosen(rows, Choice(filter="GPU2"))
    assert [row.name for row in kept.hosts] == ["gpu2"]
    assert [row.place for row in kept.gpus] == ["gpu2:0", "gpu2:1"]
    assert [row.reading.rank for row in kept.ranks] == [2, 3]
    assert [row.place for row in chosen(rows, Choice(filter="heat")).gpus] == ["gpu2:1"]
    assert [row.reading.rank for row in chosen(rows, Choice(filter="warning")).ranks] == [2]


@given(
    st.lists(st.sampled_from(["up", "down", "end", "tab", "<", ">", "P", "T", "I", "Z", "\\", "a", "esc", "h", "?"]))
)
def test_no_key_breaks_anything(keys: list[str]) -> None:
    seen, history = cluster()
    choice = after(*keys)
    assert choice.section in SECTIONS
    assert choice.first >= 0
    chosen(tables(seen, history), choice)


@given(st.lists(st.integers(0, 40), min_size=3, max_size=3), st.integers(0, 60), st.integers(0, 2))
def test_tables_share_the_room(needs: list[int], room: int, active: int) -> None:
    given_rows = rooms(needs, room, active)
    assert sum(given_rows) == min(sum(needs), room)
    assert all(0 <= rows <= need for rows, need in zip(given_rows, needs, strict=True))


def test_the_chosen_table_gets_the_most() -> None:
    assert rooms([100, 100, 100], 30, 1) == [8, 14, 8]
    assert rooms([2, 100, 0], 30, 0) == [2, 28, 0]
