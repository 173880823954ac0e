"""kitwatch.ranks: the ranks of runs and other busy processes, in a /proc of the test and among real processes."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import launcher
from tests.unit.remote.ship.porter.test_language import newer

files: Any = launcher.load("kitwatch.files")
ranks: Any = launcher.load("kitwatch.ranks")
cgroups: Any = launcher.load("kitwatch.cgroups")
# It has used some ticks of a core before it reports that it is up.
BUSY = "import sys, time\nwhile time.process_time() < 0.05: pass\nprint('up', flush=True)\nsys.stdin.read()"
Process = Callable[..., None]
FOLDER = launcher.LIB / "kitwatch"


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files, "PROC", str(tmp_path))
    monkeypatch.setattr(files, "TICKS", 100)
    monkeypatch.setattr(files, "PAGE", 4096)
    monkeypatch.setattr(ranks, "allowed", lambda _pid: "0-3")
    (tmp_path / "uptime").write_text("1000.00 1900.00\n")
    return tmp_path


@pytest.fixture
def process(proc: Path) -> Process:
    """Write a process: its name, its parent, seconds of CPU time, and its environment."""

    def write(
        pid: int,
        comm: str,
        cpu: float = 0.0,
        *,
        reaped: float = 0.0,
        parent: int = 1,
        start: int = 100,
        state: str = "S",
        **env: object,
    ) -> None:
        folder = proc / str(pid)
        folder.mkdir(exist_ok=True)
        words = [
            state,
            str(parent),
            *["0"] * 9,
            str(int(cpu * 100)),
            "0",
            str(int(reaped * 100)),
            *["0"] * 3,
            "7",
            "0",
            str(start * 100),
            "0",
            "256",
        ]
        words += ["0"] * 14 + ["3", "0", "0", "150", *["0"] * 10]
        (folder / "stat").write_text(f"{pid} ({comm}) {' '.join(words)}\n")
        (folder / "environ").write_bytes(b"".join(f"{name}={value}\0".encode() for name, value in env.items()))
        (folder / "cmdline").write_bytes(f"{comm}\0".encode())
        (folder / "schedstat").write_text("126941 2500000000 2\n")
        (folder / "wchan").write_text("do_epoll_wait")

    return write


def rank(number: int, run: str = "r1") -> dict[str, object]:
    return {"KIT_RUN": run, "OMPI_COMM_WORLD_RANK": number}


def test_a_rank_with_its_children(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 50.0
    monkeypatch.setattr(ranks.time, "monotonic", lambda: now)
    process(10, "kit-rank", parent=9, **rank(3))
    process(11, "python3", 20.0, parent=10, **rank(3))
    process(12, "pt_data_worker", 5.0, parent=11, **rank(3))
    process(13, "orted", 1.0, KIT_RUN="r1")
    look = ranks.Ranks()
    look.look()
    now = 52.0
    process(11, "python3", 22.0, parent=10, state="R", **rank(3))
    process(12, "pt_data_worker", 5.5, parent=11, **rank(3))
    assert look.look() == {
        "ranks": [
            {
                "run": "r1", "rank": 3, "pid": 11, "comm": "python3", "procs": 2, "cpu": 125.0, "cpu_s": 27.5,
                "rss": 2 * 256 * 4096, "threads": 14, "state": "R", "wchan": "do_epoll_wait", "core": 3,
                "allowed": "0-3", "waited_s": 2.5, "disk_s": 1.5, "throttled": None, "throttled_s": None,
            }
        ],
        "others": [],
    }  # fmt: skip


def test_the_time_of_a_rank_never_falls_when_its_child_ends(process: Process) -> None:
    """PyTorch's DataLoader workers end after each epoch."""
    process(11, "python3", 20.0, parent=10, **rank(3))
    process(12, "pt_data_worker", 5.0, parent=11, **rank(3))
    look = ranks.Ranks()

    def seconds() -> float:
        return float(look.look()["ranks"][0]["cpu_s"])

    assert seconds() == 25.0
    process(12, "pt_data_worker", 5.0, parent=11, state="Z", **rank(3))
    assert seconds() == 25.0
    # The parent has waited for it.
    process(11, "python3", 21.0, reaped=5.0, parent=10, **rank(3))
    assert seconds() == 26.0
    # An elastic run has started the rank again: that is another process, which counts from 0.
    process(11, "python3", 1.0, start=200, parent=10, **rank(3))
    assert seconds() == 1.0


def test_the_program_below_a_shell_is_the_rank(process: Process) -> None:
    process(20, "bash", parent=9, **rank(0))
    process(21, "timeout", parent=20, **rank(0))
    process(22, "python3", parent=21, **rank(0))
    assert ranks.Ranks().look()["ranks"][0]["pid"] == 22
    # A shell that does its work itself.
    assert ranks.main_of([20], {20: ranks.stat(20)}) == 20


def test_a_run_with_torchrun_counts_its_own_ranks(process: Process) -> None:
    process(20, "python3", KIT_AGENT=1, RANK=5, OMPI_COMM_WORLD_RANK=1, KIT_RUN="r2")
    process(21, "kit-torchrun", KIT_AGENT=1, OMPI_COMM_WORLD_RANK=1, KIT_RUN="r2")
    assert [(one["run"], one["rank"]) for one in ranks.Ranks().look()["ranks"]] == [("r2", 5)]


def test_without_the_kernel_s_counter_of_delays_there_is_no_time(process: Process, proc: Path) -> None:
    (proc / "sys/kernel").mkdir(parents=True)
    (proc / "sys/kernel/task_delayacct").write_text("0\n")
    process(20, "python3", **rank(0))
    assert ranks.Ranks().look()["ranks"][0]["disk_s"] is None


def test_who_else_uses_the_cores(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 50.0
    monkeypatch.setattr(ranks.time, "monotonic", lambda: now)
    for pid in range(30, 36):
        process(pid, f"cron {pid})", 0.0)
    process(2, "kthreadd", 0.0, parent=0)
    process(3, "kswapd0", 0.0, parent=2)
    look = ranks.Ranks()
    assert look.look()["others"] == []
    now = 51.0
    for pid, seconds in ((30, 0.05), (31, 0.2), (32, 0.9), (33, 0.3), (3, 0.8)):
        process(pid, "kswapd0" if pid == 3 else f"cron {pid})", seconds, parent=2 if pid == 3 else 1)
    assert look.look()["others"] == [
        {"pid": 32, "comm": "cron 32)", "cpu": 90.0, "core": 3},
        {"pid": 3, "comm": "kswapd0", "cpu": 80.0, "core": 3},
        {"pid": 33, "comm": "cron 33)", "cpu": 30.0, "core": 3},
    ]


def test_a_process_that_is_new_counts_from_its_start(process: Process) -> None:
    process(40, "stress", 9.0, start=990)
    assert ranks.Ranks().look()["others"] == [{"pid": 40, "comm": "stress", "cpu": 90.0, "core": 3}]


def test_many_processes_are_read_in_turn(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "VISITS", 10)
    for pid in range(100, 125):
        process(pid, "idle", **({} if pid < 124 else rank(0)))
    reads: list[int] = []
    whole = ranks.stat
    monkeypatch.setattr(ranks, "stat", lambda pid: reads.append(pid) or whole(pid))
    look = ranks.Ranks()
    look.look()
    assert len(reads) == 25
    seen: set[int] = set()
    for _ in range(3):
        reads.clear()
        look.look()
        assert len(reads) <= 11
        assert 124 in reads
        seen |= set(reads)
    assert seen == set(range(100, 125))


def test_a_process_becomes_a_rank(process: Process, proc: Path) -> None:
    """It was a fork of mpirun's daemon when it was seen first. Its number may also go to another process."""
    process(50, "orted", KIT_RUN="r1")
    look = ranks.Ranks()
    assert look.look()["ranks"] == []
    process(50, "python3", **rank(1))
    assert [one["rank"] for one in look.look()["ranks"]] == [1]
    process(50, "python3", start=200)
    assert look.look()["ranks"] == []
    process(50, "python3", start=200, state="Z", **rank(1))
    assert look.look()["ranks"] == []


def test_a_rank_that_overwrote_its_environment_is_still_a_rank(process: Process) -> None:
    process(10, "orted", parent=1, KIT_RUN="r1")
    process(11, "kit-rank", parent=10, **rank(3))
    process(12, "python3: train", 20.0, parent=11)
    process(13, "pt_data_worker", 20.0, parent=12)
    # Neither is below a rank.
    process(14, "ssh", 950.0, parent=10)
    process(15, "python3", 950.0, parent=9, KIT_RUN="")
    look = ranks.Ranks().look()
    assert [(one["rank"], one["pid"], one["procs"]) for one in look["ranks"]] == [(3, 12, 2)]
    assert {one["pid"] for one in look["others"]} == {14, 15}


def test_environments_are_read_once(process: Process) -> None:
    reads: list[int] = []

    def environ(pid: int) -> bytes:
        reads.append(pid)
        return bytes(ranks.environment(pid))

    process(60, "python3", **rank(1))
    process(61, "bash")
    look = ranks.Ranks(environ)
    for _ in range(3):
        assert len(look.look()["ranks"]) == 1
    assert sorted(reads) == [60, 61]


def test_a_limit_of_cpu_time_of_both_versions(proc: Path, tmp_path: Path) -> None:
    for version, line in ((1, "4:cpu,cpuacct:/docker/abc"), (2, "0::/system.slice/docker-abc.scope")):
        (proc / str(version)).mkdir()
        (proc / str(version) / "cgroup").write_text(f"9:name=systemd:/x\n{line}\n")
    # The first mount shows a part only, as in a container.
    mounts = [
        f"33 31 0:30 /docker {proc}/v1 rw - cgroup cgroup rw,cpu,cpuacct",
        f"41 31 0:38 / {proc}/v2 rw - cgroup2 cgroup2 rw",
        f"42 31 0:39 / {proc}/other rw - cgroup cgroup rw,memory",
    ]
    (proc / "self").mkdir()
    (proc / "self/mountinfo").write_text("\n".join(mounts) + "\n")
    (proc / "v1/abc").mkdir(parents=True)
    (proc / "v1/abc/cpu.stat").write_text("nr_periods 9\nnr_throttled 3\nthrottled_time 2500000000\n")
    (proc / "v2/system.slice/docker-abc.scope").mkdir(parents=True)
    (proc / "v2/system.slice/docker-abc.scope/cpu.stat").write_text(
        "usage_usec 9\nnr_throttled 7\nthrottled_usec 1500000\n"
    )
    groups = cgroups.Cgroups()
    assert groups.throttled(1) == {"throttled": 3, "throttled_s": 2.5}
    assert groups.throttled(2) == {"throttled": 7, "throttled_s": 1.5}
    assert groups.throttled(3) == {"throttled": None, "throttled_s": None}


def test_real_processes() -> None:
    run = f"t-{uuid.uuid4().hex[:12]}"
    env = {**os.environ, "KIT_RUN": run, "OMPI_COMM_WORLD_RANK": "4"}
    with subprocess.Popen(
        [sys.executable, "-c", BUSY],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as one:
        assert one.stdin
        assert one.stdout
        assert one.stdout.readline() == b"up\n"
        mine = [seen for seen in ranks.Ranks().look(threads=True)["ranks"] if seen["run"] == run]
        one.stdin.close()
    assert [(seen["rank"], seen["pid"], seen["procs"]) for seen in mine] == [(4, one.pid, 1)]
    assert mine[0]["cpu_s"] > 0
    assert mine[0]["rss"] > 1 << 20
    assert mine[0]["waited_all_s"] >= mine[0]["waited_s"] >= 0
    assert mine[0]["allowed"] == files.cpu_list(os.sched_getaffinity(0))
    # This process has waited for it.
    times = os.times()
    assert ranks.stat(os.getpid()).reaped >= 0.04
    assert ranks.stat(os.getpid()).reaped == pytest.approx(times.children_user + times.children_system, abs=0.03)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_it_runs_on_an_old_python(path: Path) -> None:
    ast.parse(path.read_text(), str(path), feature_version=(3, 6))
    assert newer(path) == []
    roots = {name.partition(".")[0] for name in imported(path)}
    assert roots <= {"kitwatch", *sys.stdlib_module_names}


def imported(path: Path) -> list[str]:
    """Return the modules that a file imports. kit sends these files alone."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return names
