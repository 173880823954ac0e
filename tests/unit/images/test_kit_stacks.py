"""A Python rank shows its stack: kit_stacks in the rank, kitrun.stacks on its node. With real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes import launcher
from tests.fakes.head import until

procs, stacks = launcher.load("kitrun.procs"), launcher.load("kitrun.stacks")

# What kit.pth does in the image.
START = f"import sys; sys.dont_write_bytecode = True; sys.path.append({str(launcher.LIB)!r}); import kit_stacks\n"
WAITING = (
    START
    + """
import threading
inside = threading.Event()
def deep_inside(event):
    inside.set()
    event.wait()
threading.Thread(target=deep_inside, args=(threading.Event(),), daemon=True).start()
def at_the_top():
    inside.wait()
    print('up', flush=True)
    import time
    time.sleep(600)
at_the_top()
"""
)
BECOME = START + "import os; os.execvp('sh', ['sh', '-c', 'echo up; while :; do sleep 0.05; done'])"

Rank = Callable[..., "subprocess.Popen[bytes]"]


def no_folder() -> str:
    try:
        Path(stacks.STACKS).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        return f"{stacks.STACKS} cannot be made here: {error.strerror}"
    return "" if os.access(stacks.STACKS, os.W_OK) else f"{stacks.STACKS} cannot be written here"


pytestmark = pytest.mark.skipif(bool(no_folder()), reason=no_folder() or "-")


@pytest.fixture
def run() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def rank(run: str) -> Iterator[Rank]:
    started = []

    def start(
        number: int, script: str, *, argv: tuple[str, ...] = (sys.executable, "-IS", "-c")
    ) -> subprocess.Popen[bytes]:
        env = {**os.environ, "KIT_RUN": run, "OMPI_COMM_WORLD_RANK": str(number)}
        process = subprocess.Popen([*argv, script], stdout=subprocess.PIPE, env=env, start_new_session=True)
        started.append(process)
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        return process

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        Path(stacks.stack_file(process.pid)).unlink(missing_ok=True)


def test_every_thread_of_every_rank(run: str, rank: Rank) -> None:
    second, first = rank(1, WAITING), rank(0, WAITING)
    report = stacks.of_ranks(run)
    assert [(entry["rank"], entry["pid"]) for entry in report] == [(0, first.pid), (1, second.pid)]
    for entry in report:
        assert "in at_the_top" in entry["stack"]
        assert "in deep_inside" in entry["stack"]
    # A second report does not repeat the first.
    again = stacks.of_ranks(run)
    assert [entry["stack"].count("in at_the_top") for entry in again] == [1, 1]
    # Back in their sleep, however late they are given a processor for that.
    until(lambda: [entry["state"] for entry in stacks.of_ranks(run)] == ["S", "S"])


def test_a_rank_that_is_no_python_is_not_touched(run: str, rank: Rank) -> None:
    shell = rank(0, "echo up; while :; do sleep 0.05; done", argv=("sh", "-c"))
    (report,) = stacks.of_ranks(run, patience=0.1)
    assert (report["rank"], report["pid"], report["stack"]) == (0, shell.pid, "")
    assert shell.poll() is None


def test_a_program_that_took_the_place_of_a_python_is_not_ended(run: str, rank: Rank) -> None:
    """Its file is there, and the signal would end it."""
    process = rank(0, BECOME)
    assert stacks.size(stacks.stack_file(process.pid)) == 0
    (report,) = stacks.of_ranks(run)
    assert report["stack"] == ""
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.2)


def test_one_that_is_stopped_does_not_hold_the_others_up(run: str, rank: Rank) -> None:
    stopped, _ = rank(0, WAITING), rank(1, WAITING)
    os.kill(stopped.pid, signal.SIGSTOP)
    until(lambda: procs.state(stopped.pid) == "T")
    first, second = stacks.of_ranks(run, patience=3.0)
    assert (first["state"], first["stack"]) == ("T", "")
    assert "in at_the_top" in second["stack"]


# A shell that leaves a process behind, which is then nobody's child, and runs Python in its place or below it.
MONITOR = f"{START}import time; time.sleep(600)"
BEHIND = '(exec "$0" -IS -c "$1" >/dev/null &); '


@pytest.mark.parametrize("script", [BEHIND + 'exec "$0" -IS -c "$2"', BEHIND + '"$0" -IS -c "$2"; true'])
def test_what_a_rank_left_in_the_background_is_not_the_rank(run: str, rank: Rank, script: str) -> None:
    shell = rank(0, WAITING, argv=("sh", "-c", script, sys.executable, MONITOR))
    until(lambda: len([pid for pid in procs.ranks(run) if stacks.listens(pid)]) == 2)
    (report,) = stacks.of_ranks(run)
    assert "in at_the_top" in report["stack"]
    assert shell.pid in (report["pid"], procs.parent(report["pid"]))


@pytest.mark.parametrize("missing", ["KIT_RUN", "OMPI_COMM_WORLD_RANK"])
def test_a_python_that_is_no_rank_does_nothing(missing: str) -> None:
    env = {**os.environ, "KIT_RUN": "r", "OMPI_COMM_WORLD_RANK": "0"}
    del env[missing]
    exists = f"os.path.exists(f'{stacks.STACKS}/{{os.getpid()}}')"
    script = f"{START}import os; print({exists}, 'faulthandler' in sys.modules)"
    done = subprocess.run([sys.executable, "-IS", "-c", script], env=env, capture_output=True, check=True)
    assert done.stdout == b"False False\n"


def test_a_rank_that_cannot_tell_is_still_a_rank(tmp_path: Path) -> None:
    """A folder that cannot be written, and a Python without the module."""
    script = START.replace("import kit_stacks", "sys.modules['faulthandler'] = None; import kit_stacks")
    env = {**os.environ, "KIT_RUN": "r", "OMPI_COMM_WORLD_RANK": "0"}
    done = subprocess.run(
        [sys.executable, "-IS", "-c", script + "print('on')"], env=env, capture_output=True, check=True
    )
    assert (done.stdout, done.stderr) == (b"on\n", b"")
