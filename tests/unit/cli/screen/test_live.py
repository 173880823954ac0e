"""Unfinished lines: on a terminal, in a pipe, and between the whole lines of other ranks."""

from __future__ import annotations

import fcntl
import io
import json
import pty
import re
import struct
import termios

import pytest

from kit.cli.screen.jsonout import JsonLines
from kit.cli.screen.live import LiveLine
from kit.cli.screen.plain import Quiet
from kit.cli.screen.terminal import Terminal
from kit.events import Event, OutputLine, Stream, UnfinishedLine, Warned
from kit.remote.run.lines import output_line, text_so_far


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def bar(text: str, source: str = "0", stream: Stream = "stderr") -> UnfinishedLine:
    return UnfinishedLine(text=text, source=source, stream=stream)


def line(text: str, source: str = "0", stream: Stream = "stderr") -> OutputLine:
    return OutputLine(text=text, source=source, stream=stream)


def reported(*events: Event, out: io.StringIO | None = None, err: io.StringIO | None = None) -> tuple[str, str]:
    out, err = out or io.StringIO(), err or io.StringIO()
    reporter = Quiet(Terminal(out=out, err=err, environ={}, no_color=True))
    for event in events:
        reporter.report(event)
    reporter.close()
    return out.getvalue(), err.getvalue()


def screen(text: str) -> list[str]:
    """Return what a terminal shows after this text."""
    rows, column = [""], 0
    for part in re.findall(r"\x1b\[K|\r|\n|[^\x1b\r\n]+", text):
        if part == "\n":
            rows, column = [*rows, ""], 0
        elif part == "\r":
            column = 0
        elif part == "\x1b[K":
            rows[-1] = rows[-1][:column]
        else:
            rows[-1] = rows[-1][:column].ljust(column) + part + rows[-1][column + len(part) :]
            column += len(part)
    return rows


def test_in_a_pipe_a_bar_is_what_a_program_writes() -> None:
    assert reported(bar("10%"), bar("20%"), line("100%"), line("next")) == (
        "",
        "0 | 10%\r0 | 20%\r0 | 100%\n0 | next\n",
    )


def test_in_a_pipe_a_line_grows() -> None:
    assert reported(bar("a", ""), bar("a b", ""), line("a b c", "")) == ("", "a b c\n")


def test_in_a_pipe_lines_of_others_stay_whole_and_the_bar_begins_again() -> None:
    _, err = reported(bar("10%"), line("x", "1"), bar("20%"), Warned(text="w"), bar("30%"), line("done"))
    assert err.splitlines() == ["0 | 10%", "1 | x", "0 | 20%", "kit: warning: w", "0 | 30%", "0 | done"]


def test_in_a_pipe_a_part_of_a_line_waits_for_its_end() -> None:
    """A slow rank may write a line in two parts. Nothing may be printed twice."""
    part = UnfinishedLine(text="163", source="0", stream="stdout", live=False)
    events = (part, line("7", "1", "stdout"), line("16354", "0", "stdout"))
    assert reported(*events)[0] == "1 | 7\n0 | 16354\n"
    assert screen(reported(*events[:2], out=Tty())[0]) == ["1 | 7", "0 | 163", ""]


def test_in_a_pipe_a_second_bar_waits_for_its_end() -> None:
    _, err = reported(bar("10%"), bar("70%", "1"), bar("20%"), line("99%", "1"), line("30%"))
    assert err.splitlines(keepends=True) == ["0 | 10%\r", "0 | 20%\n", "1 | 99%\n", "0 | 30%\n"]


def test_on_a_terminal_whole_lines_go_above_the_bar() -> None:
    err = Tty()
    events = (bar("10%"), line("a longer line", "1"), bar("20%"), Warned(text="w"), line("out", "1", "stdout"))
    out, _ = reported(*events, out=err, err=err)
    assert screen(out) == ["1 | a longer line", "kit: warning: w", "1 | out", "0 | 20%", ""]
    assert screen(reported(bar("a long state"), bar("short"), err=Tty())[1]) == ["0 | short", ""]
    assert screen(reported(bar("99%"), line("100%"), err=Tty())[1]) == ["0 | 100%", ""]


def test_on_a_terminal_a_bar_that_rests_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("kit.cli.screen.live.time.monotonic", lambda: now[0])
    shown = LiveLine()
    assert shown.update(("e", "0"), "10%", 80) == "10%"
    now[0] += 0.5
    assert shown.update(("e", "1"), "70%", 80) == ""
    now[0] += 1.0
    assert shown.update(("e", "1"), "80%", 80) == "\r\x1b[K80%"
    assert shown.whole(("e", "0"), "11%", 80) == "\r\x1b[K11%\n80%"


def test_a_state_wider_than_the_terminal_is_cut_and_its_line_is_whole() -> None:
    shown = LiveLine()
    assert shown.update(("e", "0"), "\x1b[32m" + "x" * 100, 20) == "x" * 19
    assert shown.whole(("e", "0"), "x" * 100, 20) == "x" * 81 + "\n"


@pytest.mark.parametrize(
    ("text", "kept"),
    [("训练" * 10 + " 45%", "训练" * 4 + "训"), ("step\t120\tloss 0.3", "step    120     los"), ("é" * 30, "é" * 19)],
)
def test_a_state_is_cut_by_the_cells_that_it_takes(text: str, kept: str) -> None:
    """A state that wraps would leave a line on the screen at each change."""
    assert LiveLine().update(("e", "0"), text, 20) == kept


def test_two_pipes_have_a_last_line_each() -> None:
    assert reported(bar("10%"), line("x", stream="stdout"), bar("20%"), line("30%")) == (
        "0 | x\n", "0 | 10%\r0 | 20%\r0 | 30%\n",
    )  # fmt: skip


def test_what_never_ends_is_ended_with_the_progress() -> None:
    assert reported(bar("10%")) == ("", "0 | 10%\n")


def test_an_object_is_a_whole_line() -> None:
    out = io.StringIO()
    terminal = Terminal(out=out, err=out, environ={})
    reporter = JsonLines(terminal, Quiet(terminal))
    for event in (bar("10%"), line("20%")):
        reporter.report(event)
    assert out.getvalue().count("\n") == 1
    assert '"text": "20%"' in out.getvalue()


@pytest.mark.parametrize(("columns", "cells"), [(50, 49), (200, 199), (0, 79)])
def test_a_bar_has_the_width_of_the_stream_that_shows_it(
    columns: int, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in `kit run … | tee log`: stdout is a pipe, and has no width."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    controller, screen_end = pty.openpty()
    with open(controller, "rb", buffering=0) as shown, open(screen_end, "w") as err:  # noqa: PTH123  (descriptors)
        fcntl.ioctl(screen_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        terminal = Terminal(out=io.StringIO(), err=err, environ={}, no_color=True)
        terminal.show_unfinished(err, "=" * 300, "0")
        assert terminal.told_width == (columns or 80)
        assert shown.read(1000).count(b"=") in (cells, cells - 1)


# What is not UTF-8

CAFE = b"caf\xe9"


def raw(data: bytes = CAFE, source: str = "") -> OutputLine:
    return output_line(data, stream="stdout", source=source)


def state(data: bytes, source: str = "") -> UnfinishedLine:
    return UnfinishedLine(text=text_so_far(data), source=source)


@pytest.mark.parametrize(
    ("events", "written"),
    [
        ([raw(), line("next", "", "stdout")], b"caf\xe9\nnext\n"),
        ([raw(source="3")], b"3 | caf\xe9\n"),
        ([raw(b"\x1f\x8b\x00\xff\r\x1b[2J")], b"\x1f\x8b\x00\xff\r\x1b[2J\n"),
        # Its beginning is there already.
        ([state(b"\xc3\xb6ca"), raw(b"\xc3\xb6caf\xe9")], b"\xc3\xb6caf\xe9\n"),
        ([state(b"ca", "3"), raw(source="3")], b"3 | caf\xe9\n"),
        # A state that is not UTF-8 is not shown, because nothing can take it back.
        ([state(b"c"), state(CAFE), raw(b"caf\xe9!")], b"caf\xe9!\n"),
        ([state(CAFE), raw(b"caf\xe9!")], b"caf\xe9!\n"),
        # Another line came in between, or the program went back.
        ([state(b"ca"), line("more", "3", "stdout"), raw()], b"ca\n3 | more\ncaf\xe9\n"),
        ([state(b"10%"), raw()], b"10%\rcaf\xe9\n"),
        ([state(b"ca", "0"), raw(source="1"), line("call", "0", "stdout")], b"0 | ca\n1 | caf\xe9\n0 | call\n"),
    ],
)
def test_a_pipe_gets_the_bytes_of_a_line_that_is_not_utf_8(events: list[Event], written: bytes) -> None:
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    reporter = Quiet(Terminal(out=out, err=io.StringIO(), environ={}))
    for event in events:
        reporter.report(event)
    reporter.close()
    assert isinstance(out.buffer, io.BytesIO)
    assert out.buffer.getvalue() == written


def test_a_terminal_gets_marks_in_place_of_such_bytes_unless_it_wants_all() -> None:
    class Screen(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    for wants_all, written in ((False, "caf\ufffd\n".encode()), (True, b"caf\xe9\n")):
        out = Screen(io.BytesIO(), "utf-8")
        terminal = Terminal(out=out, err=io.StringIO(), environ={})
        terminal.raw = wants_all
        Quiet(terminal).report(raw())
        assert isinstance(out.buffer, io.BytesIO)
        assert out.buffer.getvalue() == written


def test_json_has_marks_in_place_of_such_bytes() -> None:
    terminal = Terminal(out=io.StringIO(), err=io.StringIO(), environ={})
    JsonLines(terminal, Quiet(terminal)).report(raw(source="3"))
    assert isinstance(terminal.out, io.StringIO)
    line = {"kit": 1, "kind": "line", "text": "caf\ufffd", "stream": "stdout", "source": "3"}
    assert json.loads(terminal.out.getvalue()) == line
