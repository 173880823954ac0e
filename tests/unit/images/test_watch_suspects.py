"""How the ranks of a run pass their time: real threads and connections of this machine."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes import launcher
from tests.fakes.horovod import counters
from tests.fuse import mountable

__all__ = ["mountable"]

suspects = launcher.load("kitwatch.suspects")
look = launcher.load("kitwatch.look")
connections = launcher.load("kitwatch.connections")

# A thread that computes without an end, and says so.
BUSY = "print('begun', flush=True)\nwhile True: pass"
NAMED = f"import ctypes; ctypes.CDLL(None).prctl(15, b'horovod', 0, 0, 0)\n{BUSY}"
ASLEEP = "import time; print('begun', flush=True); time.sleep(1000)"
# These wait for a line, run a little, and then wait in the kernel. Who starts a child waits as for a disk until the
# child runs its program, and this child first waits for somebody who writes into a pipe.
LINE = "import os, sys; print('begun', flush=True); sys.stdin.readline(); sum(range(10000)); "
OPENS = "[(os.POSIX_SPAWN_OPEN, 0, {0!r}, os.O_RDONLY, 0)]"
STARTS = LINE + "os.posix_spawn('/bin/true', ['true'], {{}}, file_actions=" + OPENS + ")"
LOOKS = LINE + "os.stat({0!r})"
SLOW_MOUNT = Path(__file__).parents[3] / "scripts" / "slow_mount.py"


@contextmanager
def child(code: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as made:
        try:
            assert made.stdout
            assert made.stdout.readline() == b"begun\n"
            yield made
        finally:
            made.kill()


@contextmanager
def process(code: str) -> Iterator[int]:
    with child(code) as made:
        yield made.pid


@contextmanager
def mounted(folder: Path) -> Iterator[Callable[[], None]]:
    """Mount a file system that answers nothing in the time of a test. Yield what ends its server."""
    argv = ["sh", "-c", 'exec 3<>/dev/fuse; exec "$@"', "sh", sys.executable, str(SLOW_MOUNT), str(folder), "1", "900"]
    with subprocess.Popen(argv) as server:
        try:
            while f" {folder} fuse.slow " not in Path("/proc/self/mounts").read_text():
                assert server.poll() is None
                signal.sigtimedwait([], 0.01)
            yield server.kill
        finally:
            server.kill()
            subprocess.run(["umount", str(folder)], check=True)


def looked(pids: list[int], *, rounds: int = 5) -> dict[str, float]:
    """Return what the looks at one rank show, while each look waits until this process has slept a little."""
    watched = suspects.Suspects("20261121-101500-3fa2")
    watched.follow({0: pids})
    watched.sample()
    for _ in range(rounds):
        signal.sigtimedwait([], 0.05)
        watched.sample()
    (rank,) = watched.take()["ranks"]
    return dict(rank)


def test_a_rank_that_computes_is_awake_and_one_that_sleeps_is_not() -> None:
    with process(BUSY) as busy, process(ASLEEP) as idle:
        first, second = looked([busy]), looked([idle])
    # However busy this machine is: a thread that computes runs, or waits for a core.
    assert first["asleep"] < 0.2
    assert first["cpu"] + first["delay"] > 0.8
    assert second["asleep"] > 0.95
    assert second["cpu"] < 0.05
    assert (first["disk"], second["disk"]) == (0.0, 0.0)
    assert first["readiness"] is None


def test_horovods_own_thread_does_not_count() -> None:
    with process(NAMED) as named:
        rank = looked([named])
    assert (rank["cpu"], rank["asleep"]) == (0.0, 1.0)


def disk_after_running(code: str, waits: Callable[[Path], bool], release: Callable[[], object]) -> float:
    """Return the share on disk when a process ran after a look, and waits at the next one.

    `waits` says so by its folder in /proc. `release` ends the wait, which a signal could not.
    """
    with child(code) as made:
        try:
            watched = suspects.Suspects("20261121-101500-3fa2")
            watched.follow({0: [made.pid]})
            watched.sample()
            assert made.stdin
            made.stdin.write(b"\n")
            made.stdin.flush()
            while not waits(Path(f"/proc/{made.pid}")):
                signal.sigtimedwait([], 0.01)
            watched.sample()
            (rank,) = watched.take()["ranks"]
        finally:
            release()
            # Until it has ended, and a child that it has started: a kill would leave the child in its wait.
            assert made.stdout
            made.stdout.read()
    assert rank["cpu"] > 0
    return float(rank["disk"])


def test_a_thread_that_ran_a_moment_ago_may_wait_for_a_disk_now(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def waits(folder: Path) -> bool:
        return (folder / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"D"

    # The child may open the pipe later than this, so it stays open until the child has ended.
    ends: list[int] = []

    def write() -> None:
        ends.append(os.open(pipe, os.O_RDWR))

    try:
        assert disk_after_running(STARTS.format(str(pipe)), waits, write) == 1.0
    finally:
        for end in ends:
            os.close(end)


@pytest.mark.usefixtures("mountable")
def test_who_waits_for_a_file_system_of_fuse_waits_for_a_disk(tmp_path: Path) -> None:
    def waits(folder: Path) -> bool:
        return (folder / "wchan").read_bytes().startswith(b"request_wait_answer")

    with mounted(tmp_path) as end:
        assert disk_after_running(LOOKS.format(str(tmp_path / "data")), waits, end) == 1.0


def test_looks_are_not_regular() -> None:
    pauses = [suspects.pause_s(number) for number in range(1000)]
    assert sum(pauses) / 1000 == pytest.approx(suspects.EVERY_S, rel=0.01)
    moments = list(itertools.accumulate(pauses))
    # Of a step of any length, they see each tenth about as often as any other.
    for step in (0.1, 0.2, 0.25, 0.4, 0.5, 1.0):
        tenths = Counter(int(10 * (at % step) / step) for at in moments)
        assert all(70 <= tenths[tenth] <= 130 for tenth in range(10)), (step, tenths)


def test_children_compute_for_a_rank_that_is_asleep() -> None:
    with process(ASLEEP) as main, process(BUSY) as worker:
        watched = suspects.Suspects("20261121-101500-3fa2")
        watched.follow({3: [main, worker]})
        watched.sample()
        watched.take()
        # Until the worker has computed for some ticks.
        while True:
            signal.sigtimedwait([], 0.05)
            watched.sample()
            (rank,) = watched.take()["ranks"]
            if rank["workers"] > 0:
                break
    assert rank["rank"] == 3
    assert rank["asleep"] > 0.9


def test_a_process_that_has_ended_is_asleep() -> None:
    with process(ASLEEP) as gone:
        pass
    assert looked([gone], rounds=1)["cpu"] == 0.0


RUN = "20261121-101500-3fa2"


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which Horovod counts."""
    monkeypatch.setattr(suspects.readiness, "folder_of", lambda _run: str(tmp_path))
    return tmp_path


def count(folder: Path, rank: int, pid: int, tensors: int) -> Path:
    path = folder / f"{rank}.{pid}"
    path.write_bytes(counters(rank, pid=pid, size=4, opened=1, tensors=tensors))
    return path


def test_a_rank_has_the_number_that_the_last_reset_of_an_elastic_run_gave_it(counting: Path) -> None:
    """The environment has the numbers of the start: 2 and 3. They are 0 and 1 since other ranks ended."""
    with process(ASLEEP) as first, process(ASLEEP) as second, process(ASLEEP) as shell:
        members = {2: [shell, first], 3: [second]}
        closely = look.Closely(RUN, SimpleNamespace(members=lambda _run: dict(members)))

        def read() -> tuple[dict[int, int | None], dict[int, int]]:
            """Return the tensors and the main process of each rank, by its number."""
            there = [{"run": RUN, "rank": rank, "pid": pids[0]} for rank, pids in members.items()]
            reading = closely.add({"ranks": [*there, {"run": "another", "rank": 2, "pid": 1}]})
            tensors = {one["rank"]: (one["readiness"] or {}).get("tensors") for one in reading["suspects"]["ranks"]}
            return tensors, {one["rank"]: one["pid"] for one in reading["ranks"] if one["run"] == RUN}

        read()
        assert read() == ({2: None, 3: None}, {2: shell, 3: second})
        before = [count(counting, 2, first, 5), count(counting, 3, second, 6)]
        assert read() == ({2: 5, 3: 6}, {2: shell, 3: second})
        for path in before:
            path.unlink()
        # Between two worlds.
        assert read() == ({2: None, 3: None}, {2: shell, 3: second})
        after = [count(counting, 0, first, 7), count(counting, 1, second, 8)]
        assert read() == ({0: 7, 1: 8}, {0: shell, 1: second})
        for path in after:
            path.unlink()
        assert read() == ({0: None, 1: None}, {0: shell, 1: second})
        # Another process has begun in the place of one.
        members[2] = [shell]
        read()
        assert read()[0] == {1: None, 2: None}


def test_a_kernel_that_does_not_know_the_numbers_of_a_container_has_those_of_the_start(
    counting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspects.Suspects, "_inner_of", lambda *_: 0)
    count(counting, 1, 7, 9)
    with process(ASLEEP) as pid:
        watched = suspects.Suspects(RUN)
        watched.follow({1: [pid], 2: []})
        assert [(one["rank"], one["readiness"] and one["readiness"]["tensors"]) for one in watched.take()["ranks"]] == [
            (1, 9),
            (2, None),
        ]


def test_connections_to_another_address_are_summed_up() -> None:
    peers = connections.Peers()
    with socket.create_server(("127.0.0.2", 0)) as server:
        near = socket.create_connection(server.getsockname(), source_address=("127.0.0.1", 0))
        far, _ = server.accept()
        with near, far:
            if not connections.connections():
                pytest.fail("this kernel does not list connections, which it does since Linux 3.3")
            assert peers.look() == []
            near.sendall(bytes(100_000))
            left = 100_000
            while left:
                left -= len(far.recv(left))
            rows: dict[str, dict[str, Any]] = {}
            while rows.get("127.0.0.2", {}).get("sent", 0) < 100_000:
                # The acknowledgment may be on its way.
                rows = {row["address"]: row for row in [*rows.values(), *peers.look()]}
    assert rows["127.0.0.2"]["sent"] == 100_000


def test_the_time_in_which_the_other_end_takes_nothing_does_not_count() -> None:
    info = bytearray(240)
    struct.pack_into("=Q", info, 120, 5_000)
    struct.pack_into("=QQ", info, 168, 900_000, 400_000)
    assert connections.counters(bytes(info)) == (5_000, 0.5)


def test_a_kernel_that_does_not_answer_shows_no_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError("no such family")

    monkeypatch.setattr(connections.socket, "socket", refused)
    assert connections.connections() == {}


def test_counters_fit_into_numbers_of_json() -> None:
    read = {
        **dict.fromkeys(("count", "tensors", "bytes", "steps", "pending"), 7),
        **dict.fromkeys(("wait_ns", "op_ns", "tail_ns"), 2_000_500),
        "opened_ns": 1_795_475_324_007_000_999,
    }
    assert suspects.shortened(read) == {
        **dict.fromkeys(("tensors", "bytes", "steps", "pending"), 7),
        **dict.fromkeys(("wait_us", "op_us", "tail_us"), 2_000),
        "opened_us": 1_795_475_324_007_000,
    }
