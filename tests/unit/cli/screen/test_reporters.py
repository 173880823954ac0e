"""What a flow reports, as a person sees it: bars, lines, quiet; from many threads; nothing coloured off a terminal."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from unittest.mock import Mock

import pytest
from rich.live import Live

from kit.cli.screen import choose
from kit.cli.screen.bars import ROWS, Bars, _Row
from kit.cli.screen.bars import choose as choose_rows
from kit.cli.screen.jsonout import JsonLines
from kit.cli.screen.terminal import Terminal
from kit.events import Event, HostDone, HostFailed, HostStep, Note, OutputLine, Phase, Warned

STORY: list[Event] = [
    Phase(name="ship", hosts=("gpu1", "gpu2", "gpu3")),
    HostStep(host="gpu1", text="loading", fraction=0.0),
    *[HostStep(host="gpu1", text="loading", fraction=n / 100) for n in range(1, 100)],
    HostDone(host="gpu1"),
    HostFailed(host="gpu2", text="no disk", hint="free some"),
    Note(text="a note"),
    Warned(text="the clock is off", hint="start chrony"),
    OutputLine(text="from the job"),
    OutputLine(text="its error", stream="stderr", source="3"),
]


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(*, tty: bool = False, no_color: bool = False, environ: Mapping[str, str] | None = None) -> Terminal:
    make = Tty if tty else io.StringIO
    return Terminal(out=make(), err=make(), environ=environ or {}, no_color=no_color)


def texts(where: Terminal) -> tuple[str, str]:
    assert isinstance(where.out, io.StringIO)
    assert isinstance(where.err, io.StringIO)
    return where.out.getvalue(), where.err.getvalue()


def test_plain() -> None:
    where = terminal()
    reporter = choose.reporter(where, "auto", verbose=False)
    for event in STORY:
        reporter.report(event)
    reporter.close()
    assert texts(where) == (
        "from the job\n",
        "ship: gpu[1-3]\n"
        "gpu1: loading 0%\ngpu1: loading 25%\ngpu1: loading 50%\ngpu1: loading 75%\ngpu1: done\n"
        "gpu2: no disk\n  → free some\n"
        "a note\n"
        "kit: warning: the clock is off\n  → start chrony\n"
        "3 | its error\n",
    )


def test_plain_with_times() -> None:
    where = terminal()
    choose.reporter(where, "plain", verbose=True).report(Note(text="hello"))
    assert re.fullmatch(r"\[ +\d+\.\ds\] hello\n", texts(where)[1])


def test_quiet() -> None:
    where = terminal(tty=True, no_color=True)
    reporter = choose.reporter(where, "quiet", verbose=False)
    for event in STORY:
        reporter.report(event)
    out, err = texts(where)
    assert out == "from the job\n"
    assert err == "gpu2: no disk\n  → free some\nkit: warning: the clock is off\n  → start chrony\n3 | its error\n"


@pytest.mark.parametrize(
    ("tty", "no_color", "environ", "coloured"),
    [
        (True, False, {}, True),
        (True, True, {}, False),
        (True, False, {"NO_COLOR": "1"}, False),
        (True, False, {"NO_COLOR": ""}, True),
        (True, False, {"TERM": "dumb"}, False),
        (False, False, {}, False),
    ],
)
@pytest.mark.parametrize("how", ["plain", "quiet"])
def test_color_only_where_it_is_seen(
    how: str, tty: bool, no_color: bool, environ: dict[str, str], coloured: bool
) -> None:
    where = terminal(tty=tty, no_color=no_color, environ=environ)
    reporter = choose.reporter(where, how, verbose=False)
    for event in STORY:
        reporter.report(event)
    out, err = texts(where)
    assert ("\x1b" in out + err) is coloured


@pytest.mark.parametrize(("environ", "bars"), [({}, True), ({"TERM": "dumb"}, False)])
def test_auto_means_bars_on_a_terminal(environ: dict[str, str], bars: bool) -> None:
    assert isinstance(choose.reporter(terminal(tty=True, environ=environ), "auto", verbose=False), Bars) is bars
    assert not isinstance(choose.reporter(terminal(), "auto", verbose=False), Bars)


def _screen(text: str) -> list[str]:
    """What is left on the screen: the lines after all cursor movements were obeyed."""
    rows: list[str] = [""]
    at = 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
        if part == "\n":
            at += 1
            rows += [""] * (at + 1 - len(rows))
        elif part.endswith("A") and part.startswith("\x1b"):
            at -= int(part[2:-1] or 1)
        elif part == "\x1b[2K":
            rows[at] = ""
        elif not part.startswith(("\x1b", "\r")):
            rows[at] += part
    return [row.rstrip() for row in rows]


def test_bars_leave_only_what_is_worth_keeping() -> None:
    where = terminal(tty=True)
    reporter = choose.reporter(where, "tty", verbose=False)
    for event in STORY:
        reporter.report(event)
    reporter.close()
    reporter.close()
    out, err = texts(where)
    assert out == "from the job\n"
    kept = [re.sub(r"\d+\.\d s", "T", row) for row in _screen(err) if row]
    assert kept == [
        "gpu2: no disk", "  → free some", "a note", "kit: warning: the clock is off", "  → start chrony",
        "✗ ship: gpu[1-3]  T, 1 failed", "3 | its error",
    ]  # fmt: skip


def test_bars_do_not_come_back_over_a_jobs_output() -> None:
    where = terminal(tty=True)
    reporter = choose.reporter(where, "tty", verbose=False)
    reporter.report(OutputLine(text="x"))
    reporter.report(HostStep(host="gpu1", text="cleaning"))
    reporter.report(HostDone(host="gpu1"))
    assert texts(where) == ("x\n", "")
    reporter.close()


def test_a_local_task_without_a_phase_is_drawn() -> None:
    where = terminal(tty=True)
    reporter = choose.reporter(where, "tty", verbose=False)
    reporter.report(HostStep(host="image", text="step 3/9", fraction=0.3))
    reporter.close()
    assert "step 3/9" in texts(where)[1]
    assert next(row for row in _screen(texts(where)[1]) if row).startswith("✓ image")


def test_hundreds_of_hosts_are_folded_into_a_line() -> None:
    rows = tuple(
        _Row(host=f"gpu{i}", state="failed" if i == 7 else "done" if i < 150 else "busy" if i < 160 else "waiting")
        for i in range(200)
    )
    shown, rest = choose_rows(rows)
    assert len(shown) == ROWS
    assert [row.host for row in shown if row.state in ("busy", "failed")] == [
        "gpu7",
        *(f"gpu{i}" for i in range(150, 160)),
    ]
    assert [rows.index(row) for row in shown] == sorted(rows.index(row) for row in shown)
    assert rest == "… and 180 more: 31 waiting, 149 done"
    assert choose_rows(rows[:ROWS]) == (rows[:ROWS], "")


@pytest.mark.parametrize("how", ["plain", "tty", "quiet", "json"])
def test_lines_from_many_threads_stay_whole(how: str) -> None:
    where = terminal(tty=how == "tty")
    reporter = choose.reporter(where, "quiet" if how == "json" else how, verbose=False)
    if how == "json":
        reporter = JsonLines(where, reporter)
    reporter.report(Phase(name="work", hosts=tuple(f"gpu{i}" for i in range(8))))

    def work(name: str) -> None:
        for i in range(200):
            reporter.report(HostStep(host=name, text=f"step {i}", fraction=i / 200))
            reporter.report(OutputLine(text=f"<{name}:{i}>" * 20))

    threads = [threading.Thread(target=work, args=(f"gpu{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reporter.close()
    lines = texts(where)[0].splitlines()
    if how == "json":
        lines = [json.loads(line)["text"] for line in lines]
    assert sorted(lines) == sorted(f"<gpu{n}:{i}>" * 20 for n in range(8) for i in range(200))
    for n in range(8):
        assert [x for x in lines if x.startswith(f"<gpu{n}:")] == [f"<gpu{n}:{i}>" * 20 for i in range(200)]


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


class Closed(Tty):
    def write(self, text: str) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize(
    ("kind", "where", "event"),
    [
        ("plain", Terminal(out=Broken(), err=io.StringIO(), environ={}), OutputLine(text="x")),
        # With an error of the bars, the clean-up of a verb ended whose terminal was closed.
        ("tty", Terminal(out=Closed(), err=Closed(), environ={}), HostStep(host="gpu1", text="loading")),
    ],
)
def test_reporting_never_raises_when_the_reader_is_gone(
    kind: Literal["plain", "tty"], where: Terminal, event: Event
) -> None:
    reporter = choose.reporter(where, kind, verbose=False)
    interrupted = False
    try:  # the main thread is interrupted once, soon after the report returned
        reporter.report(event)
        threading.Event().wait(60)
    except KeyboardInterrupt:
        interrupted = True
    assert interrupted
    assert where.broken
    reporter.report(Warned(text="y"))
    reporter.report(OutputLine(text="y"))
    reporter.close()


class Interrupted(Terminal):
    """A terminal whose window was closed: the signal comes as soon as `broken` is set."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "broken" and value:
            raise KeyboardInterrupt


def test_a_signal_after_a_failed_write_does_not_hide_its_reason() -> None:
    where = Interrupted(out=Closed(), err=Closed(), environ={})
    with pytest.raises(KeyboardInterrupt):
        where.tell("x")
    assert where.broken
    assert where.is_gone(where.err)
    # A closed window is no reader of a pipe that has read enough.
    assert not where.quietly


class Window(Tty):
    """A terminal that somebody closes."""

    closed_by_user = False

    def write(self, text: str) -> int:
        if self.closed_by_user:
            raise OSError(errno.EIO, "Input/output error")
        return super().write(text)


def test_bars_raise_nothing_when_the_window_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kit.cli.screen.terminal._interrupt", lambda **_: None)
    window = Window()
    where = Terminal(out=window, err=window, environ={})
    reporter = choose.reporter(where, "tty", verbose=False)
    reporter.report(STORY[0])
    window.closed_by_user = True
    for event in STORY[1:]:
        reporter.report(event)
    reporter.close()
    assert where.broken


def test_bars_leave_the_screen_when_the_reader_of_stdout_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With kit deploy --json | head, the terminal of stderr must have its cursor again."""
    monkeypatch.setattr("kit.cli.screen.terminal._interrupt", lambda: None)
    screen = Tty()
    where = Terminal(out=Broken(), err=screen, environ={})
    reporter = choose.reporter(where, "tty", verbose=False)
    reporter.report(STORY[0])
    where.say("{}")
    reporter.report(STORY[1])
    reporter.close()
    assert screen.getvalue().rindex("\x1b[?25h") > screen.getvalue().rindex("\x1b[?25l")


def test_a_closed_window_interrupts_as_its_signal_does() -> None:
    """The handlers of that signal know that it may come twice."""
    numbers: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, _frame: numbers.append(number))
    try:
        window = Window()
        window.closed_by_user = True
        Terminal(out=window, err=window, environ={}).say("x")
        # Python runs a handler soon, in the main thread.
        threading.Event().wait(0)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert numbers == [signal.SIGHUP]


@pytest.mark.parametrize(
    ("answer", "tty", "agreed"),
    [("y\n", True, True), ("YES\n", True, True), ("\n", True, False), ("", True, False), ("n\n", False, True)],
)
def test_asking(answer: str, tty: bool, agreed: bool) -> None:
    make = Tty if tty else io.StringIO
    where = Terminal(out=io.StringIO(), err=make(), inp=make(answer), environ={})
    assert where.agrees("Remove it?") is agreed
    # After Ctrl-D, what kit prints next begins on a new line.
    assert texts(where)[1] == ("Remove it? [y/N] " + "\n" * (not answer) if tty else "")


def test_after_ctrl_c_the_next_message_begins_on_a_new_line(monkeypatch: pytest.MonkeyPatch) -> None:
    inp = Tty()
    monkeypatch.setattr(inp, "readline", Mock(side_effect=KeyboardInterrupt))
    where = Terminal(out=io.StringIO(), err=Tty(), inp=inp, environ={})
    with pytest.raises(KeyboardInterrupt):
        where.agrees("Remove it?")
    assert texts(where)[1] == "Remove it? [y/N] \n"


class Keyboard(io.TextIOWrapper):
    """Standard input as Python opens it in a UTF-8 locale."""

    def __init__(self, raw: io.RawIOBase | io.BytesIO) -> None:
        super().__init__(io.BufferedReader(raw), "utf-8", errors="strict")

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("answer", [b"\xff\n", b"y\xff\n", b"\xff"])
def test_an_answer_that_is_not_text_is_no(answer: bytes) -> None:
    where = Terminal(out=io.StringIO(), err=Tty(), inp=Keyboard(io.BytesIO(answer)), environ={})
    assert not where.agrees("Remove it?")


def test_an_input_that_cannot_be_read_is_no_and_empty(tmp_path: Path) -> None:
    """As after `exec 0>FILE` in a shell."""
    descriptor = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    with Keyboard(io.FileIO(descriptor)) as inp:
        where = Terminal(out=io.StringIO(), err=Tty(), inp=inp, environ={})
        assert not where.agrees("Remove it?")
        assert where.read() == ""


def test_an_input_that_was_read_before_is_read_on() -> None:
    inp = Keyboard(io.BytesIO(b"y\ny\nrest"))
    assert inp.readline() == "y\n"
    where = Terminal(out=io.StringIO(), err=Tty(), inp=inp, environ={})
    assert where.agrees("Remove it?")
    assert where.read() == "rest"


def test_bars_are_drawn_again_only_below_printed_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 1,000 failed hosts, drawing them again for each took 6 s."""
    starts: list[Live] = []
    start = Live.start
    monkeypatch.setattr(Live, "start", lambda live: (starts.append(live), start(live)))
    where = terminal(tty=True)
    reporter = choose.reporter(where, "auto", verbose=False)
    names = tuple(f"gpu{n}" for n in range(1, 65))
    reporter.report(Phase(name="look", hosts=names))
    for name in names:
        reporter.report(HostFailed(host=name, text="no route"))
    reporter.close()
    _, err = texts(where)
    assert (err.count("more hosts fail"), err.count("64 failed")) == (1, 1)
    # The first time, and below each of these lines.
    assert len(starts) == 10
