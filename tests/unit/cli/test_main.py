"""Errors and interruptions: what a person reads, the exit code, and that nobody ever sees a traceback."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit import errors
from kit.cli.main import main
from kit.cli.screen.terminal import Terminal
from kit.cli.session import Session
from kit.cli.verbs.grammar import Verb
from kit.errors import HostsFailed, InputError, InputErrors, Interrupted, KitError, StepError, UnreachableError
from tests.fakes.head import until

ROOT = Path(__file__).resolve().parents[3]
HEAVY = ("fabric", "paramiko", "docker", "rich", "jinja2", "yaml", "requests")

CASES: list[tuple[BaseException, int, str]] = [
    (KitError("it broke"), 1, "kit: error: it broke\n"),
    (StepError("no disk", hint="free some", host="gpu1"), 4, "kit: error: gpu1: no disk\n  → free some\n"),
    (
        InputErrors(
            [
                InputError("bad slots", hint="slots=2", file="hosts", line=3),
                InputError("twice", file="hosts", line=9),
            ]
        ),
        2,
        "kit: error: hosts:3: bad slots\n  → slots=2\nkit: error: hosts:9: twice\n",
    ),
    (
        HostsFailed(
            "2 hosts failed, 2 are done",
            [UnreachableError("no route", host="gpu2", hint="is it on?"), StepError("no disk", host="gpu3")],
        ),
        4,
        "kit: error: 2 hosts failed, 2 are done\n  gpu2: no route\n    → is it on?\n  gpu3: no disk\n",
    ),
    (
        HostsFailed("3 hosts failed", [UnreachableError("no route", host=f"gpu{n}", hint="on?") for n in (1, 2, 3)]),
        3,
        "kit: error: 3 hosts failed\n  gpu[1-3]: no route\n    → on?\n",
    ),
    (Interrupted("the run was stopped"), 130, "kit: the run was stopped\n"),
    (KeyboardInterrupt(), 130, "kit: interrupted\n"),
]


def _raises(error: BaseException) -> Callable[[Verb, Session], int]:
    def handle(verb: Verb, session: Session) -> int:
        raise error

    return handle


@pytest.mark.parametrize(("error", "code", "text"), CASES, ids=[type(e).__name__ for e, _, _ in CASES])
def test_an_error_as_text(error: BaseException, code: int, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["ps"], environ={}, handle=_raises(error)) == code
    assert capfd.readouterr() == ("", text)


@pytest.mark.parametrize(("error", "code", "text"), CASES, ids=[type(e).__name__ for e, _, _ in CASES])
def test_an_error_as_json(error: BaseException, code: int, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["ps", "--output", "json"], environ={}, handle=_raises(error)) == code
    out, err = capfd.readouterr()
    assert err == ""
    fields = json.loads(out)
    assert fields["kit"] == 1
    assert fields["kind"] == "error"
    assert fields["exit_code"] == code
    assert {"message", "hint", "host", "failures"} <= set(fields)
    if isinstance(error, HostsFailed):
        assert [failure["host"] for failure in fields["failures"]] == [failure.host for failure in error.failures]
    if isinstance(error, InputErrors):
        assert [(p["file"], p["line"]) for p in fields["problems"]] == [("hosts", 3), ("hosts", 9)]


@pytest.mark.parametrize("form", [("--output", "json"), ("--output=json",), ("--json",)])
def test_wrong_flags_are_json_with_the_json_flag(form: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*form, "run", "--np", "x"], environ={}) == 2
    assert json.loads(capfd.readouterr().out)["exit_code"] == 2


def test_a_commands_own_json_flag_is_not_ours(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "ls", "--output", "json"], environ={}, handle=_raises(KitError("it broke"))) == 1
    assert capfd.readouterr() == ("", "kit: error: it broke\n")


@pytest.mark.parametrize("words", [("ls", "--json"), ("--", "ls", "--json"), ("ls", "--", "--json")])
def test_a_commands_json_flag_is_not_ours_if_our_flags_are_wrong(
    words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--np", "x", *words], environ={}) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("--np")) == ("", 1)
    assert main(["run", "--json", "--np", "x", *words], environ={}) == 2
    assert json.loads(capfd.readouterr().out)["exit_code"] == 2


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("words", "colored"),
    [
        (("nonsense",), True),
        (("--no-color", "nonsense"), False),
        (("nonsense", "--no-color"), False),
        (("run", "--np", "x", "ls", "--no-color"), True),
    ],
)
def test_no_color_holds_for_words_that_kit_cannot_read(
    words: tuple[str, ...], colored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    assert main(words, environ={"TERM": "xterm"}) == 2
    assert ("\x1b[" in screen.getvalue()) is colored


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_bug_is_one_line_and_a_file(form: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--output", form, "run", "-x", "TOKEN=hunter2", "-xKEY=hunter2", "ls"]
    assert main(words, environ={"XDG_CACHE_HOME": str(tmp_path)}, handle=_raises(ZeroDivisionError("a\nb"))) == 70
    out, err = capfd.readouterr()
    assert "Traceback" not in out + err
    (file,) = (tmp_path / "kit").iterdir()
    assert str(file) in out + err
    assert "this is a bug in kit: ZeroDivisionError: a b" in out + err
    assert "Traceback" in file.read_text()
    assert "hunter2" not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    if form == "json":
        assert json.loads(out)["exit_code"] == 70


@pytest.mark.parametrize("environ", [{}, {"HOME": "/proc/nowhere"}])
def test_a_bug_with_no_home_still_has_a_file(environ: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["ps"], environ=environ, handle=_raises(RuntimeError("x"))) == 70
    path = Path(capfd.readouterr().err.split("details are in ")[1].split(";")[0])
    assert "RuntimeError: x" in path.read_text()
    path.unlink()


def test_every_error_has_its_code_in_the_docstring() -> None:
    kinds: list[Any] = [
        KitError,
        InputError,
        UnreachableError,
        StepError,
        errors.NotReadyError,
        errors.ImageError,
        Interrupted,
    ]
    for kind in kinds:
        line = next(line for line in (errors.__doc__ or "").splitlines() if kind.__name__ in line.split())
        assert str(kind.exit_code) in line.split()


def _python(code: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, **more
    )


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["run", "--help"],
        ["version"],
        ["depoly"],
        ["version", "--output", "json"],
        ["__complete", "bash", "run", "--"],
    ],
)
def test_what_needs_no_cluster_imports_nothing_heavy(words: list[str]) -> None:
    code = f"import sys; from kit.cli.main import main; main({words!r}); print(*sys.modules, file=sys.stderr)"
    done = _python(code)
    loaded = set(done.stderr.split())
    assert "kit.cli.main" in loaded
    assert not loaded & set(HEAVY)


def test_help_imports_only_what_it_needs() -> None:
    """Dataclasses alone take longer than all the rest of kit --help."""
    done = _python("import sys; from kit.cli.main import main; main(['--help']); print(*sys.modules, file=sys.stderr)")
    assert not {"dataclasses", "msgspec", "pathlib", "shlex", "kit.events"} & set(done.stderr.split())


def test_a_dry_run_refuses_what_cannot_wait_in_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hosts").write_text("10.0.0.1 slots=2\n")
    words = ["-C", str(tmp_path), "run", "--queue", "--dry-run"]
    assert main([*words, "--", "true"]) == 0
    assert main([*words, "--now", "--", "true"]) == 2
    assert "--now does not go with --queue" in capsys.readouterr().err


def test_a_dry_run_imports_nothing_that_connects(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("10.0.0.1 name=gpu1 slots=8\n")
    (tmp_path / "kit.yaml").write_text("name: lab\nnetwork: 10.0.0.0/16\n")
    words = ["-C", str(tmp_path), "run", "--dry-run", "--", "true"]
    done = _python(f"import sys; from kit.cli.main import main; main({words!r}); print(*sys.modules, file=sys.stderr)")
    loaded = set(done.stderr.split())
    assert "kit.flows.run.planning" in loaded
    assert not {"hashlib", "subprocess", "tempfile", "kit.remote.run.door"} & loaded


@pytest.mark.parametrize("handler", ["default_int_handler", "SIG_IGN"])
def test_a_reader_that_leaves_ends_it_quietly(handler: str) -> None:
    """In a shell's background job, too, where SIGINT is ignored."""
    code = f"""
import signal, sys
from kit.cli.main import main
signal.signal(signal.SIGINT, signal.{handler})
def handle(verb, session):
    while True:
        session.terminal.say("x" * 99)
sys.exit(main(["schema"], handle=handle))
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_a_pipe_that_another_program_made_fail_when_full_gets_all() -> None:
    """ssh and Node leave the pipe of a script like this. Then a full pipe is an error, unless kit waits."""
    code = """
import sys
from kit.cli.main import main
def handle(verb, session):
    for _ in range(2000):
        session.terminal.say("x" * 99)
    session.terminal.pass_on(b"y" * 200_000, "stdout")
sys.exit(main(["schema"], handle=handle))
"""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with (
        os.fdopen(reader, "rb") as out,
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=writer) as process,
    ):
        os.close(writer)
        size = bytearray(4)
        until(lambda: not fcntl.ioctl(reader, termios.FIONREAD, size) and int.from_bytes(size, sys.byteorder) > 60_000)
        assert len(out.read()) == 400_000
    assert process.returncode == 0


def test_an_input_that_another_program_made_fail_when_empty_is_read_to_its_end() -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    with os.fdopen(reader) as inp:
        terminal = Terminal(out=io.StringIO(), err=io.StringIO(), inp=inp, environ={})
        assert terminal.piped == reader
        assert os.get_blocking(reader)
        os.set_blocking(reader, False)
        # This is how kit image push --password-stdin reads.
        passwords: list[str] = []
        reading = threading.Thread(target=lambda: passwords.append(terminal.read()))
        reading.start()
        until(lambda: os.get_blocking(reader) or not reading.is_alive())
        os.write(writer, b"secret")
        os.close(writer)
        reading.join()
    assert passwords == ["secret"]


def test_a_second_ctrl_c_does_not_cut_the_report_short() -> None:
    code = """
import atexit, os, signal, sys
from kit.cli.main import main
from kit.errors import Interrupted
def again():
    os.kill(os.getpid(), signal.SIGINT)
atexit.register(again)
def handle(verb, session):
    type(session).close = lambda _: again()
    raise Interrupted("the run was stopped")
sys.argv = ["kit", "ps"]
sys.exit(main(handle=handle))
"""
    done = _python(code)
    assert (done.returncode, done.stderr) == (130, "kit: the run was stopped\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_lets_the_verb_clean_up(number: signal.Signals) -> None:
    code = """
import sys, time
from kit.cli.main import main
def handle(verb, session):
    try:
        print("started", flush=True)
        time.sleep(60)
    finally:
        print("cleaned", flush=True)
sys.exit(main(["ps"], handle=handle))
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"cleaned\n", b"kit: interrupted\n")


def test_a_closed_window_interrupts_once() -> None:
    """The kernel sends a signal, and the shell another one as it ends."""
    code = """
import os, signal
from kit.cli.main import main
from kit.remote.machine.interrupts import Interrupts
def close():
    os.kill(os.getpid(), signal.SIGHUP)
def handle(verb, session):
    with Interrupts() as interrupts:
        close()
        close()
        print(interrupts.count)
    try:
        close()
    finally:
        close()
        print("cleaned")
raise SystemExit(main(["ps"], handle=handle))
"""
    done = _python(code)
    assert (done.returncode, done.stdout, done.stderr) == (130, "1\ncleaned\n", "kit: interrupted\n")


COUNTED = """
    with Interrupts() as interrupts:
        os.kill(os.getpid(), number)
        session.terminal.say("stopping the run")
        print(interrupts.count, file=sys.stderr)
"""
RAISED = """
    try:
        os.kill(os.getpid(), number)
    finally:
        session.terminal.say("cleaning up")
        print("cleaned", file=sys.stderr)
"""


@pytest.mark.parametrize(("body", "printed"), [(COUNTED, b"1\n"), (RAISED, b"cleaned\n")])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_reader_that_the_same_signal_ended_interrupts_no_more(
    number: signal.Signals, body: str, printed: bytes
) -> None:
    """With kit run … | tee log, Ctrl-C ends both. Ranks still have their grace, and verbs clean up."""
    code = f"""
import os, signal, sys
from kit.cli.main import main
from kit.remote.machine.interrupts import Interrupts
number = signal.{number.name}
def handle(verb, session):
    sys.stdin.read()
{body}
sys.exit(main(["ps"], handle=handle))
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.close()
        assert process.stderr.read() == printed
    assert process.returncode == 141


def test_a_window_that_was_closed_causes_no_traceback(tmp_path: Path) -> None:
    code = f"""
import pathlib
from kit.cli.main import main
pathlib.Path({str(tmp_path / "code")!r}).write_text(str(main(["version"])))
"""
    controller, window = pty.openpty()
    os.close(controller)
    subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, stdin=window, stdout=window, stderr=window, timeout=60, check=False
    )
    os.close(window)
    assert (tmp_path / "code").read_text() == str(KitError.exit_code)


def test_closed_streams_cause_no_bug() -> None:
    code = "from kit.cli.main import main; raise SystemExit(main(['version']))"
    done = subprocess.run(
        ["sh", "-c", '"$0" -c "$1" >&-', sys.executable, code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("fails", [False, True])
def test_json_is_json_in_each_encoding(encoding: str, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An emoji of a rank, or a name with an umlaut, is no JSON as Python escapes it."""
    text = "caf\xe9 \U0001f680"

    def handle(_verb: Verb, session: Session) -> int:
        if fails:
            raise KitError(text)
        session.emit("x", {"message": text})
        return 0

    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    main(["ps", "--json"], environ={}, handle=handle)
    assert json.loads(raw.getvalue().decode(encoding))["message"] == text


def test_a_home_folder_of_nobody_is_no_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["tune", "--config", "~no-such-user/kit.yaml"], environ={}) == InputError.exit_code
