"""The processes of a run as /proc shows them, which is never at one moment."""

from __future__ import annotations

import builtins
import io
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import launcher

procs, stacks = launcher.load("kitrun.procs"), launcher.load("kitrun.stacks")

# As Python's own dump of stacks: in pieces, with the signal blocked from the first to the last.
SLOW = """
import os, signal, sys, time
number = signal.SIGRTMAX - 3
file = open(sys.argv[1] + "/" + str(os.getpid()), "w")
def tell(*_):
    signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    print("the beginning", file=file, flush=True)
    time.sleep(0.5)
    print("the end", file=file, flush=True)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
signal.signal(number, tell)
print("up", flush=True)
while True:
    time.sleep(600)
"""
# Python's own dump: of 60 threads, it takes 80 kB.
MANY = """
import faulthandler, os, signal, sys, threading
file = open(sys.argv[1] + "/" + str(os.getpid()), "w")
faulthandler.register(signal.SIGRTMAX - 3, file=file, all_threads=True)
never, deep_down = threading.Event(), threading.Semaphore(0)
def load(depth):
    if depth:
        load(depth - 1)
    else:
        deep_down.release()
        never.wait()
for _ in range(60):
    threading.Thread(target=load, args=(40,), daemon=True).start()
    deep_down.acquire()
def step():
    print("up", flush=True)
    os.read(0, 1)
step()
"""
# As setproctitle does.
HIDDEN = """
import ctypes, os, sys
words = open("/proc/self/stat").read().rpartition(")")[2].split()
first, last = int(words[47]), int(words[48])
ctypes.memset(first, 0, last - first)
print("hidden", os.getpid(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def run() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


def rank(run: str, *argv: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "KIT_RUN": run, "OMPI_COMM_WORLD_RANK": "0"}
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)


@pytest.fixture
def one(run: str) -> Iterator[subprocess.Popen[bytes]]:
    process = rank(run, "sh", "-c", "echo up; read -r word", "a rank")
    assert process.stdout
    assert process.stdout.readline() == b"up\n"
    yield process
    process.kill()
    process.communicate()


def test_one_that_is_just_becoming_another_program(
    run: str, one: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a moment the kernel shows neither its environment nor its command."""
    hidden = [f"/proc/{one.pid}/{name}" for name in ("environ", "cmdline") for _ in range(3)]

    def opened(path: str, *more: Any, **named: Any) -> Any:
        if path in hidden:
            hidden.remove(path)
            return io.BytesIO(b"")
        return builtins.open(path, *more, **named)  # noqa: PTH123  (it replaces `open`)

    monkeypatch.setattr(procs, "open", opened, raising=False)
    monkeypatch.setattr(procs, "BECOMING_S", 60.0)
    assert list(procs.marked(run)) == [one.pid]


def test_one_without_any_variable_is_nobodys(run: str) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={}) as process:
        assert process.pid not in procs.marked(run)
        assert procs.settled(process.pid) == b""


def test_a_rank_that_overwrote_its_environment_ends_with_its_run(run: str) -> None:
    """kit-rank, above it, has the mark. A process of another run is left alone, wherever it is."""
    script = """exec 3<&0; "$1" -ISc "$2" <&3 & KIT_RUN=another sh -c 'echo other $$; exec cat' <&3 & wait"""
    with rank(run, "sh", "-c", script, "kit-rank", sys.executable, HIDDEN) as relay:
        assert relay.stdin
        assert relay.stdout
        pids = dict(relay.stdout.readline().split() for _ in range(2))
        hidden, other = int(pids[b"hidden"]), int(pids[b"other"])
        assert b"KIT_RUN" not in procs.read_environ(hidden)
        assert set(procs.marked(run)) == {relay.pid, hidden}
        assert procs.ranks(run) == {hidden: 0}
        assert procs.sweep(run, patience=60.0) == 0
        assert procs.state(hidden) in ("", "Z")
        assert procs.state(other) == "S"
        relay.stdin.close()


def test_a_child_that_ended_while_its_rank_was_asked_is_no_rank(
    run: str, one: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = rank(run, "true")
    child.communicate()
    monkeypatch.setattr(procs, "ranks", lambda _: {one.pid: 0, child.pid: 0})
    assert [entry["pid"] for entry in stacks.of_ranks(run)] == [one.pid]


def test_a_stack_is_reported_when_it_is_whole(run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "STACKS", str(tmp_path))
    process = rank(run, sys.executable, "-IS", "-c", SLOW, str(tmp_path))
    assert process.stdout
    assert process.stdout.readline() == b"up\n"
    (report,) = stacks.of_ranks(run, patience=60.0)
    process.kill()
    process.communicate()
    assert report["stack"] == "the beginning\nthe end\n"


def test_of_many_threads_the_main_one_is_reported(run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python writes the main thread last, and a data loader or NCCL can have 60 threads before it."""
    monkeypatch.setattr(stacks, "STACKS", str(tmp_path))
    process = rank(run, sys.executable, "-IS", "-c", MANY, str(tmp_path))
    assert process.stdout
    assert process.stdout.readline() == b"up\n"
    (report,) = stacks.of_ranks(run, patience=60.0)
    process.kill()
    process.communicate()
    assert report["stack"].startswith(stacks.OTHERS)
    assert " in step\n" in report["stack"].splitlines(keepends=True)[2]
    assert len(report["stack"]) <= stacks.MOST_STACK
