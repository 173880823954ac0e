"""Pieces of output become lines; what is unfinished is known, too."""

from __future__ import annotations

from kit.remote.run.lines import LONG, Lines, text_so_far


def test_lines_come_when_they_end() -> None:
    lines: Lines[str] = Lines()
    assert lines.feed("o", b"a\nb") == (b"a",)
    assert lines.feed("e", b"x") == ()
    assert lines.feed("o", b"c\n") == (b"bc",)
    assert lines.unfinished() == [("e", b"x", False)]
    assert lines.unfinished() == []
    lines.again()
    assert lines.unfinished() == [("e", b"x", False)]
    assert (lines.end(), lines.end()) == ([("e", b"x")], [])


def test_a_piece_that_nothing_continues_is_whole() -> None:
    lines: Lines[str] = Lines()
    assert lines.feed("o", b"a", more=False) == (b"a",)
    assert lines.feed("o", b"", more=False) == ()
    assert lines.end() == []


def test_of_a_bar_the_last_state_is_the_line() -> None:
    lines: Lines[str] = Lines()
    shown = []
    for part in (b"\r10%", b"\r20%", b"\r30%\r"):
        assert lines.feed("e", part) == ()
        shown += lines.unfinished()
    assert shown == [("e", b"10%", True), ("e", b"20%", True), ("e", b"30%", True)]
    assert lines.feed("e", b"\n") == (b"30%",)


def test_a_bar_without_an_end_takes_little_memory() -> None:
    lines: Lines[str] = Lines()
    for number in range(LONG):
        lines.feed("e", b"\r%d%%" % number)
    assert len(lines._partial["e"]) < 2 * LONG
    assert lines.end() == [("e", b"%d%%" % (LONG - 1))]


def test_half_a_character_is_left_out() -> None:
    assert text_so_far("aü".encode()[:-1]) == "a"
