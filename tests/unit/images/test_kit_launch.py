"""The launcher for real, with a shell script as mpirun: what it passes on, how it ends, and what it leaves (nothing)."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.plan.mpi import RUNS_FOLDER
from kit.remote.launch import EXIT_MARK
from tests.fakes import launcher

WAIT_S = 60


class Launcher:
    """A running kit-launch, whose processes carry a mark of this test's own."""

    def __init__(self, tmp_path: Path, *, grace_s: float = 8.0) -> None:
        self.mark = f"test-{uuid.uuid4().hex[:12]}"
        self.runs = tmp_path / "runs"
        self.record = tmp_path / "cluster.json"
        self.process = subprocess.Popen(
            launcher.argv(self.record, self.runs, grace_s=grace_s),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.hello = json.loads(self.stdout.readline())

    def ask(self, *argv: str, **more: Any) -> None:
        request = {"run_id": "r1", "hostfile": "10.0.0.1 slots=2\n", "argv": argv, "env": {"KIT_RUN": self.mark}, **more}
        self.stdin.write(json.dumps(request).encode() + b"\n")
        self.stdin.flush()

    def hang_up(self) -> None:
        self.stdin.close()

    def end(self) -> tuple[int, bytes, bytes]:
        """(exit code, standard output, standard error) with standard input still open."""
        code = self.process.wait(WAIT_S)
        assert self.process.stderr is not None
        return code, self.stdout.read(), self.process.stderr.read()

    def left(self) -> list[int]:
        """Processes that carry the mark."""
        wanted = f"KIT_RUN={self.mark}".encode()
        found = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if wanted in environ.read_bytes().split(b"\0"):
                    found.append(int(environ.parent.name))
            except OSError:
                continue
        return found


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launcher]:
    (tmp_path / "cluster.json").write_text('{"kit": 1}\n')
    one = Launcher(tmp_path)
    yield one
    one.process.kill()
    one.process.wait()
    for pid in one.left():
        os.kill(pid, signal.SIGKILL)


def mark_of(stderr: bytes) -> tuple[int, bool]:
    """The exit code in the last line, and whether it says stopped."""
    found = EXIT_MARK.search(stderr.removesuffix(b"\n"))
    assert found, stderr
    return int(found[1]), found[2] is not None


def nothing_left(launch: Launcher) -> None:
    assert launch.left() == []
    assert not launch.runs.exists() or list(launch.runs.iterdir()) == []


def test_it_says_hello_with_the_record(launch: Launcher) -> None:
    assert launch.hello == {"kit-launch": 1, "record": '{"kit": 1}\n'}


def test_it_says_hello_without_a_record(tmp_path: Path) -> None:
    one = Launcher(tmp_path)
    one.hang_up()
    assert one.hello["record"] == ""
    assert one.end() == (0, b"", b"")


def test_what_it_passes_on(launch: Launcher) -> None:
    script = 'cat "$1"; echo "$MINE|$2|$3"; echo oops >&2; cat'
    hostfile = str(launch.runs / "r1" / "hostfile")
    launch.ask("sh", "-c", script, "mpirun", hostfile, "a 'b\n", "ü", env={"KIT_RUN": launch.mark, "MINE": "x y"})
    code, out, err = launch.end()
    # mpirun reads nothing from kit: `cat` ended at once.
    assert out.decode() == "10.0.0.1 slots=2\nx y|a 'b\n|ü\n"
    assert err == b"oops\n\x1ekit-exit 0\n"
    assert code == 0
    nothing_left(launch)


@pytest.mark.parametrize(
    ("script", "expected"),
    [("exit 3", 3), ("exit 255", 255), ("kill -9 $$", 137), ("kill -SEGV $$", 139), ("true", 0)],
)
def test_the_exit_code(launch: Launcher, script: str, expected: int) -> None:
    launch.ask("sh", "-c", script)
    code, _, err = launch.end()
    assert code == expected
    assert mark_of(err) == (expected, False)
    nothing_left(launch)


def test_the_mark_is_last_even_behind_half_a_line(launch: Launcher) -> None:
    launch.ask("sh", "-c", "printf half >&2; exit 4")
    _, _, err = launch.end()
    assert err == b"half\x1ekit-exit 4\n"


def test_the_end_of_input_stops_the_run(launch: Launcher) -> None:
    launch.ask("sh", "-c", "trap 'echo cleaned up; exit 9' TERM; echo up; while :; do sleep 0.1; done")
    assert launch.stdout.readline() == b"up\n"
    launch.hang_up()
    code, out, err = launch.end()
    assert out == b"cleaned up\n"
    assert code == 9
    assert mark_of(err) == (9, True)
    nothing_left(launch)


def test_one_that_does_not_listen_is_killed_after_the_grace(tmp_path: Path) -> None:
    launch = Launcher(tmp_path, grace_s=0.3)
    launch.ask("python3", "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); "
               "time.sleep(60)")  # fmt: skip
    assert launch.stdout.readline() == b"up\n"
    launch.hang_up()
    code, _, err = launch.end()
    assert code == 137
    assert mark_of(err) == (137, True)
    nothing_left(launch)


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_stops_the_run(launch: Launcher, sign: signal.Signals) -> None:
    launch.ask("sh", "-c", "echo up; exec sleep 60")
    assert launch.stdout.readline() == b"up\n"
    launch.process.send_signal(sign)
    code, _, err = launch.end()
    assert code == 143
    assert mark_of(err) == (143, True)
    assert b"Traceback" not in err
    nothing_left(launch)


def test_a_signal_at_once_leaves_nothing(launch: Launcher) -> None:
    """mpirun's first act is the signal: there is no moment in which the launcher could go without it."""
    launch.ask("sh", "-c", "kill -TERM $PPID; exec sleep 60")
    code, _, err = launch.end()
    assert code == 143
    assert mark_of(err) == (143, True)
    nothing_left(launch)


def test_what_follows_the_request_is_not_taken_for_its_end(launch: Launcher) -> None:
    launch.ask("sh", "-c", "echo up; read -r line <\"$0\"; exit 5", str(fifo(launch)))
    assert launch.stdout.readline() == b"up\n"
    launch.stdin.write(b"more\n")
    launch.stdin.flush()
    fifo(launch).write_text("go\n")
    assert launch.end()[0] == 5


def fifo(launch: Launcher) -> Path:
    path = launch.record.with_name("fifo")
    if not path.exists():
        os.mkfifo(path)
    return path


def test_input_that_ends_before_the_request(launch: Launcher) -> None:
    launch.hang_up()
    assert launch.end() == (0, b"", b"")
    assert not launch.runs.exists()


def test_input_that_ends_within_the_request(launch: Launcher) -> None:
    launch.stdin.write(b'{"run_id": "r1", ')
    launch.hang_up()
    assert launch.end() == (0, b"", b"")


@pytest.mark.parametrize(
    "line",
    [b"rubbish", b"[]", b"{}", b"null", b"\xff\xfe", b'{"run_id": "r", "hostfile": "", "argv": [], "env": {}}',
     b'{"run_id": 3, "hostfile": "", "argv": ["true"], "env": {}}',
     b'{"run_id": "r", "hostfile": "", "argv": ["true"], "env": 3}'],
)  # fmt: skip
def test_rubbish_is_refused_in_a_line(launch: Launcher, line: bytes) -> None:
    launch.stdin.write(line + b"\n")
    launch.stdin.flush()
    code, out, err = launch.end()
    assert (code, out) == (2, b"")
    assert err.startswith(b"kit-launch: this is not a launch: ")
    assert b"Traceback" not in err
    assert mark_of(err) == (2, False)
    nothing_left(launch)


def test_no_mpirun(launch: Launcher) -> None:
    launch.ask("no-such-mpirun")
    code, _, err = launch.end()
    assert code == 127
    assert b"no-such-mpirun" in err
    assert mark_of(err) == (127, False)
    nothing_left(launch)


def test_a_folder_that_cannot_be_made(launch: Launcher) -> None:
    launch.runs.write_text("a file stands in the way\n")
    launch.ask("true")
    code, _, err = launch.end()
    assert mark_of(err) == (127, False)
    assert code == 127
    assert b"Traceback" not in err


def test_the_folder_is_the_one_that_the_plan_names() -> None:
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(launcher.FILE.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    assert values["RUNS"] == RUNS_FOLDER
    assert values["RECORD"] == "/etc/kit/cluster.json"


def test_it_keeps_to_python_3_6() -> None:
    """Vendor images bring old interpreters; a newer word of the language is a syntax error there."""
    ast.parse(launcher.FILE.read_text(encoding="utf-8"), feature_version=(3, 6))
