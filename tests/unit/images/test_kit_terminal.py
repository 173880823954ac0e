"""kit-terminal: the rank that holds the slot, and the command in the terminal that runs as this rank."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes import launcher
from tests.fakes.head import until

RUN = "20261122-101500-3fa2"


class Run:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "work").mkdir()
        self.program = folder / "kit-terminal"
        self.program.write_text(
            f"import sys\nsys.dont_write_bytecode = True\nsys.path.insert(0, {str(launcher.LIB)!r})\n"
            f"from kitrun import terminal\nterminal.FOLDER, terminal.WAIT_S = {str(folder / 'sockets')!r}, 0.1\n"
            "sys.exit(terminal.main(sys.argv[1:]))\n"
        )
        self.rank = subprocess.Popen(
            [sys.executable, "-IS", self.program, "hold"],
            cwd=folder / "work",
            env={"PATH": os.environ["PATH"], "KIT_RUN": RUN, "OMPI_COMM_WORLD_RANK": "0", "MINE": "a\nb"},
        )
        until((folder / "sockets" / RUN).exists)

    def join(self, *command: str, run: str = RUN) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-IS", self.program, "join", run, *command],
            env={"PATH": "/nowhere", "KIT_EXEC": "e1", "TERM": "xterm", "OTHER": "x"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def close(self) -> None:
        self.rank.kill()
        self.rank.wait()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    yield run
    run.close()


def test_the_command_is_where_and_what_the_rank_is(run: Run) -> None:
    joined = run.join(
        "sh", "-c", 'echo "$KIT_RUN $OMPI_COMM_WORLD_RANK $TERM $KIT_EXEC $OTHER.$MINE"; pwd; cat; exit 7'
    )
    out, err = joined.communicate(b"typed\n", timeout=30)
    assert out.decode().splitlines() == [f"{RUN} 0 xterm e1 .a", "b", str(run.folder / "work"), "typed"], err
    assert (joined.returncode, run.rank.wait(30)) == (7, 7)
    assert not (run.folder / "sockets" / RUN).exists()


def test_the_command_has_the_cores_of_the_rank(run: Run) -> None:
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(run.rank.pid, {core})
    out, err = run.join("grep", "Cpus_allowed_list", "/proc/self/status").communicate(timeout=30)
    assert out.split() == [b"Cpus_allowed_list:", str(core).encode()], err


@pytest.mark.parametrize(("command", "code"), [("kill -9 $$", 137), ("exit 0", 0), ("no-such-program", 127)])
def test_the_rank_ends_as_the_command_does(run: Run, command: str, code: int) -> None:
    joined = run.join("sh", "-c", command)
    joined.communicate(timeout=30)
    assert (joined.returncode, run.rank.wait(30)) == (code, code)


def test_a_command_that_is_not_there_is_named(run: Run) -> None:
    joined = run.join("no-such-program")
    _, err = joined.communicate(timeout=30)
    assert err == b"kit-terminal: no-such-program: No such file or directory\n"
    assert (joined.returncode, run.rank.wait(30)) == (127, 127)


def test_the_rank_ends_with_the_terminal(run: Run) -> None:
    joined = run.join("sh", "-c", "echo up; exec cat")
    assert joined.stdout
    joined.stdout.readline()
    joined.kill()
    joined.communicate()
    assert run.rank.wait(30) == 128 + signal.SIGHUP


def test_without_the_run_it_says_so(run: Run) -> None:
    joined = run.join("true", run="other")
    _, err = joined.communicate(timeout=30)
    assert joined.returncode == 1
    assert err == b"kit-terminal: run other has no rank here that waits for a terminal\n"
    run.rank.send_signal(signal.SIGTERM)
    assert run.rank.wait(30) == 128 + signal.SIGTERM
    assert not (run.folder / "sockets" / RUN).exists()
