"""A node's guard for real: what it answers, what it ends by itself, and what the supervisor makes of it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest

from tests.fakes import launcher
from tests.fakes.head import IMPATIENT, MPIRUN, Head, MakeHead, marked, place, until

procs = launcher.load("kitrun.procs")
KIT_NODE = launcher.IMAGES / "bin" / "kit-node"
SLEEP = ("python3", "-IS", "-c", "import time; print('up', flush=True); time.sleep(600)")
DEAF = (
    "python3", "-IS", "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)",
)  # fmt: skip

Spawn = Callable[..., "subprocess.Popen[bytes]"]


class Guard:
    def __init__(self, head: Head, run: str, **values: Any) -> None:
        folder = str(head.folder / "guards")
        argv = head.argv("guard", run, guard_FOLDERS=[folder], **values)
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin
        assert self.process.stdout
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        # Its first line says that it is here.
        assert json.loads(self.stdout.readline()) == {"here": True}

    def ask(self, word: str) -> dict[str, Any]:
        self.stdin.write(word.encode() + b"\n")
        self.stdin.flush()
        while (message := json.loads(self.stdout.readline())) == {"here": True}:
            pass
        answer: dict[str, Any] = message
        return answer

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.stdin.close()
        self.stdout.close()


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Processes that are some run's, and up when this returns."""
    started = []

    def start(run: str, *argv: str, rank: int | None = None) -> subprocess.Popen[bytes]:
        own = {} if rank is None else {"OMPI_COMM_WORLD_RANK": str(rank)}
        process = subprocess.Popen(argv or SLEEP, stdout=subprocess.PIPE, env={**os.environ, "KIT_RUN": run, **own})
        started.append(process)
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_what_it_answers(head: Head, spawn: Spawn) -> None:
    run, other = head.new_id(), head.new_id()
    first, second, daemon = spawn(run, rank=3), spawn(run, *DEAF, rank=4), spawn(run)
    stranger = spawn(other, rank=5)
    guard = Guard(head, run)
    until(lambda: procs.state(first.pid) == "S")
    assert guard.ask("count") == {"count": 2}
    reports = guard.ask("stacks")["stacks"]
    assert [(entry["rank"], entry["pid"], entry["stack"]) for entry in reports] == [
        (3, first.pid, ""),
        (4, second.pid, ""),
    ]
    assert "time.sleep" in reports[0]["command"]
    assert reports[0]["state"] == "S"
    guard.ask("term")
    assert first.wait(30) == -signal.SIGTERM
    # mpirun's daemon is no rank, and a rank that does not listen has its time.
    assert guard.ask("count") == {"count": 1}
    assert daemon.poll() is None
    assert guard.ask("end") == {"left": 0}
    assert guard.process.wait(30) == 0
    assert (second.wait(), daemon.wait()) == (-signal.SIGKILL, -signal.SIGTERM)
    assert stranger.poll() is None
    assert list((head.folder / "guards").iterdir()) == []
    guard.close()


def test_it_names_the_runs_that_have_files_here(head: Head) -> None:
    run = head.new_id()
    folder = head.folder / "runs-here"
    guard = Guard(head, run, store_ROOT=str(folder))
    assert guard.ask("runs") == {"runs": []}
    (folder / run).mkdir(parents=True)
    (folder / ".starting").touch()
    assert guard.ask("runs") == {"runs": [run]}
    guard.close()


@pytest.mark.parametrize("how", ["silence", "end of the stream"])
def test_ranks_that_nobody_watches_are_ended(head: Head, spawn: Spawn, how: str) -> None:
    run, other = head.new_id(), head.new_id()
    rank, daemon, stranger = spawn(run, rank=0), spawn(run), spawn(other, rank=0)
    short = {"guard_LOST_S": 0.6, "guard_ENDED_S": 600.0} if how == "silence" else {"guard_ENDED_S": 0.6}
    guard = Guard(head, run, **short)
    if how != "silence":
        guard.stdin.close()
    assert guard.process.wait(30) == 1
    assert (rank.wait(30), daemon.wait(30)) == (-signal.SIGTERM, -signal.SIGTERM)
    assert stranger.poll() is None
    guard.close()


def test_beats_keep_it(head: Head, spawn: Spawn) -> None:
    run = head.new_id()
    rank = spawn(run, rank=0)
    guard = Guard(head, run, guard_LOST_S=600.0)
    for number in range(1, 6):
        head.ahead(400.0 * number, "guard")
        # It says that it is here every few seconds of its clock, and so what time it has.
        assert json.loads(guard.stdout.readline()) == {"here": True}
        guard.stdin.write(b"beat\n")
        guard.stdin.flush()
        until(lambda: not waiting(guard.stdin))
    assert guard.process.poll() is None
    assert rank.poll() is None
    guard.close()


def waiting(pipe: IO[bytes]) -> int:
    """Bytes in it that nobody has read yet."""
    count = bytearray(4)
    fcntl.ioctl(pipe.fileno(), termios.FIONREAD, count)
    return int.from_bytes(count, sys.byteorder)


def test_the_signals_of_a_session_that_broke_do_not_end_it(head: Head, spawn: Spawn) -> None:
    run = head.new_id()
    rank = spawn(run, rank=0)
    guard = Guard(head, run, guard_ENDED_S=0.5)
    guard.stdout.close()
    for sign in (signal.SIGHUP, signal.SIGTERM):
        guard.process.send_signal(sign)
    guard.stdin.close()
    assert guard.process.wait(30) == 1
    assert rank.wait(30) == -signal.SIGTERM
    guard.close()


def test_a_newer_guard_takes_over(head: Head, spawn: Spawn) -> None:
    run = head.new_id()
    rank = spawn(run, rank=0)
    older = Guard(head, run, guard_ENDED_S=600.0)
    older.stdin.close()
    newer = Guard(head, run)
    assert older.process.wait(30) == 0
    assert rank.poll() is None
    assert newer.ask("count") == {"count": 1}
    for guard in (older, newer):
        guard.close()


def test_the_program_itself(head: Head, spawn: Spawn) -> None:
    run = head.new_id()
    rank = spawn(run, rank=0)
    # What a killed rank of Horovod leaves.
    counters = Path(f"/dev/shm/kit-readiness-{run}")
    counters.mkdir()
    (counters / "0.1").touch()
    done = subprocess.run([sys.executable, "-ISB", KIT_NODE, "sweep", run], capture_output=True, check=True)
    assert json.loads(done.stdout) == {"left": 0}
    assert rank.wait(30) == -signal.SIGTERM
    assert not counters.exists()
    done = subprocess.run([sys.executable, "-ISB", KIT_NODE, "rubbish"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (2, b"usage: kit-node guard RUN [BYTES] | sweep RUN\n")


# With the supervisor

TWO = [place("gpu1", 1), place("gpu2", 1)]


def log(head: Head) -> bytes:
    return (head.runs / head.ids[0] / "log").read_bytes()


def test_a_short_run_needs_no_guards(head: Head) -> None:
    head.ssh(f'echo "$address" >>{head.folder}/called; exec "$@"')
    assert head.done("true", places=TWO).code == 0
    assert not (head.folder / "called").exists()


def test_a_longer_one_has_one_on_each_other_node(make_head: MakeHead) -> None:
    head = make_head(attempt_GUARD_AFTER_S=0.05)
    head.ssh(f'echo "$address" >>{head.folder}/called; exec "$@"')
    door, _ = head.ranks(2, "echo up; exec sleep 600", places=[*TWO, place("gpu3", 0)])
    guards = head.folder / "guards"
    until(lambda: sorted(path.parent.name for path in guards.glob("*/*")) == ["10.0.0.2", "10.0.0.3"])
    door.stop(grace=20.0)
    ending = door.story().ending
    assert ending["left"] == {"gpu1": 0, "gpu2": 0, "gpu3": 0}
    assert sorted((head.folder / "called").read_text().split()) == ["10.0.0.2", "10.0.0.3"]
    head.nothing_left()


def test_a_stream_that_breaks_is_opened_again(make_head: MakeHead) -> None:
    head = make_head(attempt_GUARD_AFTER_S=0.0, nodes_AGAIN_S=0.05)
    head.ssh(f'echo x >>{head.folder}/called; exec "$@"')
    door, _ = head.ranks(2, "echo up; exec sleep 600", places=TWO)
    called = head.folder / "called"

    def calls() -> int:
        return called.read_text().count("x") if called.exists() else 0

    for count in (1, 2, 3):
        until(partial(lambda wanted: calls() == wanted, count))
        until(lambda: [pid for pid in head.processes() if is_guard(pid)])
        for pid in head.processes():
            if is_guard(pid):
                os.kill(pid, signal.SIGKILL)
    until(lambda: (head.folder / "called").read_text().count("x") == 4)
    assert b'"lost"' not in log(head)
    door.stop(grace=20.0)
    ending = door.story().ending
    assert (ending["exit_code"], ending["left"]) == (143, {"gpu1": 0, "gpu2": 0})
    head.nothing_left()


def test_a_node_whose_stream_is_down_ends_its_ranks_gently_when_it_is_back(make_head: MakeHead) -> None:
    head = make_head(attempt_GUARD_AFTER_S=0.0, nodes_AGAIN_S=0.05)
    words = head.folder / "words"
    head.ssh(f'[ -e {head.folder}/fixed ] || exit 255; tee {words} | "$@"')
    deaf = "trap '' TERM; echo up; while :; do sleep 0.02; done"
    door, _ = head.ranks(1, deaf, places=TWO, env=IMPATIENT)
    door.read_until("up")
    door.stop(grace=600.0)
    until(lambda: b'"stopping"' in log(head))
    (head.folder / "fixed").touch()
    until(lambda: words.exists() and "count" in words.read_text())
    # A rank may take a second TERM for a person in a hurry.
    assert [word for word in words.read_text().split() if word != "beat"][:2] == ["term", "count"]
    door.stop(grace=0.0)
    assert door.story().code == 143
    head.nothing_left()


def command(pid: int) -> str:
    return b" ".join(procs.command(pid)).decode().strip()


def is_guard(pid: int) -> bool:
    try:
        return b"\0guard\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_the_silence_of_a_node_counts_from_the_first_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head may copy the code of a run for a minute before."""
    nodes: Any = launcher.load("kitrun.nodes")
    monkeypatch.setattr(nodes, "SSH", ("sh", "-c", "read -r word"))
    node = nodes.Node("gpu2", "10.0.0.2", "r1")
    node.begun -= 1000
    assert (node.lost, node.is_quiet) == (False, False)
    node.open()
    assert node.lost is False
    node.begun -= 1000
    assert (node.lost, node.is_quiet) == (True, False)
    node.heard = time.monotonic()
    assert (node.lost, node.is_quiet) == (False, False)
    node.heard -= 20
    assert (node.lost, node.is_quiet) == (False, True)
    node.close()


@pytest.mark.parametrize("how", ["exec sleep 600", "exit 255"])
def test_a_node_that_is_not_heard_is_lost(make_head: MakeHead, how: str) -> None:
    head = make_head(attempt_GUARD_AFTER_S=0.0, nodes_LOST_S=0.6, nodes_AGAIN_S=0.1)
    head.ssh(how)
    door, _ = head.ranks(2, "echo up; exec sleep 600", places=TWO)
    story = door.story()
    assert [event["host"] for event in story.events("lost")] == ["gpu2"]
    assert [event["why"] for event in story.events("stopping")] == ["gpu2 went away"]
    # That is a failure, and no stop.
    assert (story.code, story.ending["stopped"]) == (3, "")
    assert (story.ending["failure"]["kind"], story.ending["failure"]["host"]) == ("host", "gpu2")
    # Nobody can say what is left there.
    assert story.ending["left"] == {"gpu1": 0}
    head.nothing_left()


def test_a_lost_node_may_be_left_out_of_the_next_attempt(make_head: MakeHead) -> None:
    head = make_head(attempt_GUARD_AFTER_S=0.0, nodes_LOST_S=0.6)
    head.ssh("exec sleep 600")
    gate = head.folder / "gate"
    os.mkfifo(gate)
    script = f"[ $KIT_ATTEMPT = 2 ] || exec sleep 600; echo $OMPI_COMM_WORLD_RANK of $KIT_ATTEMPT; read -r word <{gate}"
    door, _ = head.ranks(
        2, script, places=TWO, hostfile="10.0.0.1 slots=1\n10.0.0.2 slots=1\n",
        policy={"retries": 1, "min_np": 1, "retry_on": "lost-host", "backoff": 0.01},
    )  # fmt: skip
    door.read_until("0 of 2")
    # Its slots are free, and the record still names the host, for files of the run.
    record = json.loads((head.runs / head.ids[0] / "record.json").read_text())
    assert record["places"] == [TWO[0], {**TWO[1], "ranks": 0, "slots": []}]
    other, answer = head.run("true", places=[TWO[1]])
    assert "started" in answer
    other.story()
    gate.write_text("on\n")
    story = door.story()
    assert (story.code, story.ending["stopped"], story.ending["attempt"]) == (0, "", 2)
    assert story.out == ["0 of 2"]
    assert [event["dropped"] for event in story.events("again")] == [["gpu2"]]
    head.nothing_left()


def test_the_end_of_the_supervisor_ends_the_ranks_of_other_nodes(make_head: MakeHead) -> None:
    """As with the death of the head: the streams end, and nobody comes back."""
    head = make_head(attempt_GUARD_AFTER_S=0.0)
    head.ssh(guard_ENDED_S=0.5)
    door, _ = head.run("sh", "-c", "echo up; exec sleep 600", places=TWO)
    door.read_until("up")
    until(lambda: list((head.folder / "guards").glob("*/*")))
    os.kill(head.supervisor(), signal.SIGKILL)
    assert door.story().ending["lost"]
    head.nothing_left()


def test_what_each_rank_does_is_asked_of_every_node(make_head: MakeHead) -> None:
    head = make_head(attempt_GUARD_AFTER_S=0.0)
    head.ssh()
    door, _ = head.ranks(2, "echo up; exec sleep 600", places=TWO, policy={"stall_timeout": 600.0})
    until(lambda: log(head).count(b"up\n") == 2)
    until(lambda: [command(pid) for pid in head.left()].count("sleep 600") == 2)
    head.ahead(601.0)
    (hang,) = door.story().events("hang")
    assert [(entry["rank"], entry["last"]) for entry in hang["ranks"]] == [(0, "up"), (1, "up")]
    assert all(entry["pid"] and entry["command"].startswith("sleep") for entry in hang["ranks"])
    head.nothing_left()


def test_a_head_without_ranks_is_swept_all_the_same(make_head: MakeHead) -> None:
    """mpirun runs there, and what it starts in the background carries the mark."""
    head = make_head()
    head.ssh("""while read -r word; do if [ "$word" = end ]; then echo '{"left": 0}'; exit; fi; done""")
    story = head.done(
        "sh", "-c", "setsid sleep 600 >/dev/null 2>&1 & exit 3", places=[place("gpu2", 1, address="127.0.0.2")]
    )
    assert (story.code, story.ending["left"]) == (3, {"gpu1": 0, "gpu2": 0})
    assert all(not marked(run) for run in head.ids)


def test_the_memory_of_each_node_is_looked_at(make_head: MakeHead) -> None:
    """The ranks of all nodes are this machine's, so the first node that looks reports them."""
    head = make_head()
    head.ssh()
    script = "exec python3 -IS -c \"import time; kept = b'x' * (64 << 20); time.sleep(600)\""
    policy = {"operator": "stop", "memory": 50 << 20}
    door, answer = head.run(*MPIRUN, "-np", "2", "sh", "-c", script, places=TWO, policy=policy)
    assert "started" in answer
    story = door.story()
    assert story.code == 137
    assert "of memory, and --memory allows 50 MiB on each host" in story.ending["stopped"]


def test_a_guard_reports_ranks_that_use_too_much(head: Head, spawn: Spawn) -> None:
    run = head.new_id()
    grown = "import time; kept = b'x' * (64 << 20); print('up', flush=True); time.sleep(600)"
    spawn(run, "python3", "-IS", "-c", grown, rank=0)
    folder = str(head.folder / "guards")
    argv = head.argv("guard", run, str(32 << 20), guard_FOLDERS=[folder])
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert json.loads(process.stdout.readline())["over"] > 64 << 20
        process.kill()


def test_memory_that_processes_share_counts_once(head: Head, spawn: Spawn) -> None:
    run = head.new_id()
    script = "import os, time; kept = b'x' * (64 << 20); os.fork(); print('up', flush=True); time.sleep(600)"
    process = spawn(run, "python3", "-IS", "-c", script, rank=0)
    # A sum that is enough need not be exact.
    assert procs.memory_of(run, 1 << 40) > 128 << 20
    assert 64 << 20 < procs.memory_of(run, 1) < 100 << 20
    for pid in list(procs.ranks(run)):
        os.kill(pid, signal.SIGKILL)
    process.wait()


def test_a_look_that_takes_long_is_followed_by_a_longer_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = launcher.load("kitrun.guard")
    clock, looks = [100.0], []

    def memory_of(_run: str, _enough: int) -> int:
        looks.append(clock[0])
        clock[0] += 2.0
        return 10

    monkeypatch.setattr(guard.procs, "memory_of", memory_of)
    monkeypatch.setattr(guard.time, "monotonic", lambda: clock[0])
    watch = guard.Watch("run", 100)
    for _ in range(100):
        watch.look(clock[0])
        clock[0] += 0.5
    assert looks == [100.0, 120.0, 140.0]
