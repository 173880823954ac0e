"""Nothing that a host, an engine or a rank says acts on the terminal of the person who runs kit."""

from __future__ import annotations

import io
import json
import random
import re
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kit.cli.main import main
from kit.cli.screen import jsonout
from kit.cli.screen.bars import Bars
from kit.cli.screen.controls import ByteFilter, filtered
from kit.cli.screen.hosts import HostsOutput
from kit.cli.screen.plain import Plain
from kit.cli.screen.terminal import Terminal
from kit.cli.session import Session
from kit.cli.text import run as runtext
from kit.cli.text.shown import shown
from kit.cli.verbs.grammar import Verb
from kit.errors import HostsFailed, InputError, InputErrors, KitError, StepError
from kit.events import (
    HostDone,
    HostFailed,
    HostStep,
    Note,
    OutputLine,
    Phase,
    Reporter,
    Stream,
    UnfinishedLine,
    Warned,
)
from kit.model.result import RunsResult
from kit.model.run import Failure, Place, RunCode, RunRecord, ShownRun

# The clipboard, the title, a link, a cleared screen, a color that hides text, keys that the terminal answers with,
# graphics, another character set, C1, the direction of writing, DEL, and a forged line.
ATTACKS = (
    "\x1b]52;c;ZXZpbA==\x07", "\x1b]0;title\x1b\\", "\x1b]8;;http://x\x07link\x1b]8;;\x07", "\x1b[2J\x1b[H", "\x1b[8m",
    "\x1b[31mred", "\x1b[6n", "\x1bP1$r\x1b\\", "\x1b(0", "\x0e", "\x9b2J", "\x9d0;title\x9c", "\u202eabc", "\u2066x",
    "\x7f\x08\x08", "\rkit: run: done", "\x07", "\x1bc", "\x1b", "\x1b[", "\U000e0041", "\u2028x",
)  # fmt: skip
HOSTILE = "host" + "".join(ATTACKS) + "\nkit: all is well"
# What kit itself may write: its five styles, and, around a live line or bars, a cleared line and a moved cursor.
OWN = re.compile(r"\x1b\[(?:0|1|2|31|32|33)m")
DRAWN = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[lh]|2K|K|J|\d*A)|\r")
ACTS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]")


class Screen(io.StringIO):
    """A stream that is a terminal, or is not."""

    def __init__(self, *, tty: bool = True) -> None:
        super().__init__()
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


def screen(*, tty: bool = True, raw: bool = False) -> tuple[Terminal, Screen]:
    stream = Screen(tty=tty)
    terminal = Terminal(out=stream, err=stream, environ={"TERM": "xterm"})
    terminal.raw = raw
    return terminal, stream


def safe(text: str, own: re.Pattern[str] = OWN) -> None:
    """Fail if a terminal acts on the text, or takes words of a host for a line of kit."""
    rest = own.sub("", text)
    assert not ACTS.search(rest), ascii(rest)
    assert not re.search(r"^kit: all is well", rest, re.MULTILINE)


RECORD = RunRecord(
    id="20261121-101500-3fa2",
    cluster=HOSTILE,
    image=HOSTILE,
    command=("python3", HOSTILE),
    places=(Place(node=HOSTILE, address=HOSTILE, ranks=1),),
    roles=(HOSTILE,),
    env=(HOSTILE,),
    by=HOSTILE,
    state="ended",
    started=1790000000.0,
    ended=1790000009.0,
    exit_code=1,
    failure=Failure(kind="rank", host=HOSTILE, rank=0, exit_code=1, signal=HOSTILE, lines=(HOSTILE,), role=HOSTILE),
    code=RunCode(digest=HOSTILE, folder=HOSTILE, commit=HOSTILE, branch=HOSTILE, origin=HOSTILE, dirty=True),
)


@pytest.mark.parametrize("json_", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        StepError(HOSTILE, hint=HOSTILE, host=HOSTILE),
        KitError(HOSTILE, hint=HOSTILE),
        HostsFailed(HOSTILE, [StepError(HOSTILE, hint=HOSTILE, host=HOSTILE)], hint=HOSTILE),
        InputErrors([InputError(HOSTILE, hint=HOSTILE, file=HOSTILE, line=3)]),
        ValueError(HOSTILE),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors(error: Exception, json_: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    stream = Screen()
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setattr("sys.stderr", stream)

    def fail(_verb: Verb, _session: Session) -> int:
        raise error

    words = ["ps", *(["--json"] if json_ else [])]
    assert main(words, environ={"TERM": "xterm", "HOME": str(tmp_path)}, handle=fail)
    assert "host" in stream.getvalue()
    safe(stream.getvalue())
    if json_:
        assert "\x1b]52" in json.loads(stream.getvalue().splitlines()[-1])["message"]


@pytest.mark.parametrize("reporter", [Plain, lambda terminal: Plain(terminal, verbose=True), Bars])
def test_progress_and_warnings(reporter: Callable[[Terminal], Any]) -> None:
    terminal, stream = screen()
    shows = reporter(terminal)
    for event in (
        Phase(name=HOSTILE, hosts=("gpu1",)),
        HostStep(host="gpu1", text=HOSTILE, fraction=0.3),
        HostStep(host="gpu1", text=HOSTILE),
        Note(text=HOSTILE),
        Warned(text=HOSTILE, hint=HOSTILE),
        HostFailed(host=HOSTILE, text=HOSTILE, hint=HOSTILE),
        HostDone(host="gpu1", text=HOSTILE),
        OutputLine(text="text", source=HOSTILE),
        UnfinishedLine(text="text", source=HOSTILE),
    ):
        shows.report(event)
    if isinstance(shows, Bars):
        time.sleep(0.3)
    shows.close()
    safe(stream.getvalue(), OWN if reporter is not Bars else DRAWN)


@pytest.mark.parametrize(
    "text",
    [
        lambda: runtext.runs(RunsResult(cluster="lab", runs=(RECORD,))),
        lambda: runtext.runs(RunsResult(cluster="lab", runs=(RECORD,)), width=80),
        lambda: shown(ShownRun(record=RECORD, head="gpu1", log="/log", work="/work", diff=HOSTILE)),
        lambda: runtext.story(RECORD),
        lambda: runtext.stop(RECORD),
    ],
)
def test_tables_and_stories(text: Callable[[], str]) -> None:
    terminal, stream = screen()
    terminal.say(text())
    safe(stream.getvalue().replace("\n    kit: all is well", ""))


def test_a_sentence_that_nobody_escaped_before() -> None:
    terminal, stream = screen()
    terminal.say(HOSTILE)
    terminal.tell(HOSTILE)
    assert stream.getvalue()
    safe(stream.getvalue().replace("\nkit: all is well", ""))


def test_questions_and_redrawn_screens() -> None:
    terminal, stream = screen()
    terminal.inp = Screen()
    assert not terminal.agrees(HOSTILE)
    terminal.redraw(HOSTILE, 0)
    safe(stream.getvalue().replace("\nkit: all is well", ""), DRAWN)


def test_nobody_can_use_the_colors_of_kit() -> None:
    terminal, stream = screen()
    terminal.say(f"{terminal.paint('red', 'red', terminal.out)} {HOSTILE}")
    assert stream.getvalue().startswith("\x1b[31mred\x1b[0m host")
    assert stream.getvalue().count("\x1b") == 2
    other, _ = screen()
    terminal.say(other.paint("red", "red", other.out))
    assert stream.getvalue().count("\x1b") == 2


def test_json_stays_json() -> None:
    line = jsonout.line("x", {"a": HOSTILE})
    safe(line)
    assert json.loads(line)["a"] == HOSTILE
    assert "µ→" in jsonout.line("x", {"a": "µ→"})


def test_a_patch_is_unchanged_in_a_pipe() -> None:
    terminal, stream = screen(tty=False)
    terminal.output(HOSTILE, "stdout")
    assert stream.getvalue() == HOSTILE + "\n"


OUTPUT = (
    ("plain text ✓ é\t10%\r20%", "plain text ✓ é\t10%\r20%"),
    ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
    ("\x1b[1;38;5;200mx\x1b[m", "\x1b[1;38;5;200mx\x1b[m"),
    ("a\x1b[32mgreen", "a\x1b[32mgreen\x1b[0m"),
    ("a\x1b]52;c;ZXZpbA==\x07b", "ab"),
    ("a\x1b]0;title\x1b\\b", "ab"),
    ("a\x1b]0;never ends", "a"),
    ("a\x1b[2Jb\x1b[1;1Hc\x1b[Kd\x1b[6ne", "abcde"),
    ("a\x1b[?1049hb\x1b[>4;1mc\x1b[!pd", "abcd"),
    ("a\x1bP1$r\x1b\\b\x1b_x\x1b\\c\x1b^y\x07d", "abcd"),
    ("a\x1b(0b\x1b)Bc\x1b#8d\x1bce\x1b7f", "abcdef"),
    ("a\x9b2Jb", "a2Jb"),
    ("a\x00\x07\x08\x0b\x0c\x0e\x0f\x7fb", "ab"),
    ("a\x1b", "a"),
    ("a\x1b[31", "a"),
    ("a\x1b[31;\x1b[2Jb", "ab"),
    ("a\x1b[" + "1;" * 100 + "mb", "ab"),
)


@pytest.mark.parametrize(("wrote", "shows"), OUTPUT, ids=[ascii(wrote)[:40] for wrote, _ in OUTPUT])
def test_a_terminal_gets_text_color_and_carriage_returns_of_output(wrote: str, shows: str) -> None:
    assert filtered(wrote) == shows
    terminal, stream = screen()
    Plain(terminal).report(OutputLine(text=wrote))
    assert stream.getvalue() == shows + "\n"


@pytest.mark.parametrize(("tty", "raw"), [(False, False), (True, True)])
def test_files_and_raw_terminals_get_output_unchanged(tty: bool, raw: bool) -> None:
    terminal, stream = screen(tty=tty, raw=raw)
    Plain(terminal).report(OutputLine(text=HOSTILE, source=""))
    terminal.pass_on(HOSTILE.encode(), "stdout")
    assert stream.getvalue() == f"{HOSTILE}\n{HOSTILE}"


def test_a_stream_is_filtered_wherever_it_is_cut() -> None:
    wrote = "\n".join(wrote for wrote, _ in OUTPUT) + "\n"
    # A line does not end the color of a stream.
    shows = "\n".join(shows for _, shows in OUTPUT).replace("green\x1b[0m", "green") + "\n"
    data = wrote.encode()
    for size in (1, 2, 3, 5, 7, 64, len(data)):
        stream = ByteFilter()
        pieces = [stream.feed(data[at : at + size]) for at in range(0, len(data), size)]
        assert b"".join(pieces).decode() == shows, size


def test_a_stream_takes_little_memory_whatever_comes() -> None:
    stream = ByteFilter()
    for start in (b"\x1b]0;", b"\x1b[", b"\x1bP", b"\x1b "):
        stream.feed(start)
        for _ in range(2000):
            stream.feed(b"1" * 1000)
            assert len(vars(stream)["_rest"]) < 1000
        stream.feed(b"\n")
        assert stream.feed(b"text\n") == b"text\n"


def test_random_bytes_never_leave_a_sequence() -> None:
    chance = random.Random(7)  # noqa: S311
    alphabet = [
        b"\x1b",
        b"[",
        b"]",
        b"P",
        b"m",
        b"3",
        b";",
        b"\x07",
        b"\\",
        b"\n",
        b"\xc2",
        b"\x9b",
        b"a",
        b"\x7f",
        b"\xe2",
    ]
    for _ in range(3000):
        data = b"".join(chance.choices(alphabet, k=30))
        stream, passed, at = ByteFilter(), b"", 0
        while at < len(data):
            size = chance.randrange(1, 9)
            passed += stream.feed(data[at : at + size])
            at += size
        rest = re.sub(rb"\x1b\[[0-9;:]*m", b"", passed)
        assert not re.search(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]", rest), (data, passed)
        text = data.decode("utf-8", "replace").split("\n")
        assert not ACTS.search(re.sub(r"\x1b\[[0-9;:]*m", "", "".join(map(filtered, text))))


def test_a_color_that_a_command_left_on_ends_before_the_words_of_kit() -> None:
    terminal, stream = screen()
    terminal.pass_on(b"\x1b[8mhidden", "stdout")
    terminal.tell("kit: error")
    assert stream.getvalue() == "\x1b[8mhidden\x1b[0mkit: error\n"
    terminal.tell("again")
    assert stream.getvalue().endswith("\x1b[0mkit: error\nagain\n")


@pytest.mark.parametrize("hosts", [["gpu1"], ["gpu1", "gpu2"]])
def test_exec(hosts: list[str]) -> None:
    terminal, stream = screen()
    output = HostsOutput(terminal)
    output.begin(hosts)
    streams: tuple[Stream, ...] = ("stdout", "stderr")
    for host in hosts:
        for to in streams:
            output.write(host, to, HOSTILE.encode())
        output.end(host)
    output.release()
    output.close()
    assert not ACTS.search(re.sub(r"\x1b\[[0-9;:]*m|\r|[\u202e\u2066\U000e0041\u2028]", "", stream.getvalue()))


def test_an_unfinished_line_is_filtered_too() -> None:
    terminal, stream = screen()
    shows: Reporter = Plain(terminal)
    shows.report(UnfinishedLine(text="10%\x1b]0;title\x07\x1b[2J"))
    assert stream.getvalue() == "10%"


@pytest.mark.parametrize("verb", ["run", "logs", "attach", "exec", "local"])
def test_raw_is_a_flag_of_each_verb_that_prints_output(verb: str) -> None:
    from kit.cli import parser  # noqa: PLC0415

    more = {"run": ["--", "true"], "exec": ["--", "true"], "local": ["--", "true"]}.get(verb, [])
    arguments: SimpleNamespace = parser.parse([verb, "--raw", *more]).args
    assert arguments.raw
    assert not parser.parse([verb, *more]).args.raw
