"""What a run used of its hosts: points of real processes, bounded files, and summaries."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import launcher
from tests.fakes.head import Head, until

metrics, idle = launcher.load("kitrun.metrics"), launcher.load("kitrun.idle")


def point(**values: Any) -> dict[str, Any]:
    base = {
        "memory": 100, "cpu": 1.5, "cores": 4, "host_memory": 500, "host_memory_size": 1000,
        "received": 10, "sent": 20, "read": 30, "written": 40, "gpus": [],
    }  # fmt: skip
    return {**base, **values}


def gpu(index: int, use: float | None, memory: int | None) -> dict[str, Any]:
    return {"index": index, "use": use, "memory": memory, "size": 80}


class FakeNode:
    def __init__(self, name: str) -> None:
        self.name = name
        self.reading: Any = None
        self.words: list[str] = []

    def send(self, word: str) -> None:
        self.words.append(word)


def process_time(pid: int) -> float:
    """Return the seconds of a core that a process has used."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def recorder(tmp_path: Path) -> Any:
    return metrics.Recorder(str(tmp_path / "metrics.jsonl"), "gpu1=1 gpu4=2,3", now=lambda: 5.0)


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_peaks_means_and_bytes(recorder: Any) -> None:
    recorder.add("gpu1", point(memory=100, cpu=None, received=10))
    recorder.add("gpu1", point(memory=300, cpu=2.0, received=110, host_memory=900))
    # The host rebooted: its counters began again.
    recorder.add("gpu1", point(memory=200, cpu=4.0, received=5, sent=0))
    recorder.add("gpu1", point(memory=200, cpu=None, received=7, sent=9))
    (host,) = recorder.summary()["hosts"].values()
    assert (host["memory_peak"], host["host_memory_peak"], host["host_memory_size"]) == (300, 900, 1000)
    assert (host["cpu_mean"], host["cores"]) == (3.0, 4)
    assert (host["received"], host["sent"], host["read"], host["written"]) == (102, 9, 0, 0)
    assert (host["gpu_mean"], host["gpu_memory_peak"], host["gpu_memory_size"]) == (None, None, None)


def test_the_runs_own_gpus_count(recorder: Any) -> None:
    recorder.add("gpu1", point(gpus=[gpu(0, 100.0, 70), gpu(1, 20.0, 10)]))
    recorder.add("gpu1", point(gpus=[gpu(0, 100.0, 70), gpu(1, None, 30)]))
    # A node whose slots are no numbers of its GPUs.
    recorder.add("gpu2", point(gpus=[gpu(0, 50.0, None)]))
    hosts = recorder.summary()["hosts"]
    assert (hosts["gpu1"]["gpu_mean"], hosts["gpu1"]["gpu_memory_peak"]) == (20.0, 30)
    assert (hosts["gpu2"]["gpu_mean"], hosts["gpu2"]["gpu_memory_peak"]) == (50.0, None)
    recorder.add("gpu3", point(gpus=[gpu(0, 50.0, None), gpu(1, 30.0, None), gpu(2, None, None)]))
    hosts = recorder.summary()["hosts"]
    assert [hosts[name]["gpus"] for name in sorted(hosts)] == [1, 1, 2]
    # Two GPUs for one slot.
    recorder.add("gpu4", point(gpus=[gpu(n, 25.0 * n, n) for n in range(4)]))
    assert (recorder.summary()["hosts"]["gpu4"]["gpu_mean"], recorder.summary()["hosts"]["gpu4"]["gpus"]) == (62.5, 2)
    recorder.hold("gpu1=1 gpu4=0")
    recorder.add("gpu4", point(gpus=[gpu(0, 2.5, 9)]))
    assert recorder.summary()["hosts"]["gpu4"]["gpu_memory_peak"] == 9


def test_nodes_are_asked_every_10_s_and_a_row_has_what_came(recorder: Any, tmp_path: Path) -> None:
    one, two = FakeNode("gpu1"), FakeNode("gpu2")
    recorder.tick(100.0, [one, two])
    one.reading = point(memory=1)
    recorder.tick(100.1, [one, two])
    two.reading = point(memory=2)
    recorder.tick(109.9, [one, two])
    assert one.words == two.words == ["reading"]
    assert one.reading is None
    assert not (tmp_path / "metrics.jsonl").exists()
    recorder.tick(110.0, [one, two])
    assert one.words == ["reading", "reading"]
    assert rows(tmp_path) == [{"at": 5.0, "hosts": {"gpu1": point(memory=1), "gpu2": point(memory=2)}}]
    assert (tmp_path / "metrics.jsonl").stat().st_mode & 0o077 == 0


ODD = [
    {}, [1], "x", {"memory": 1}, point(memory="x"), point(gpus=7), point(received=None), point(memory=-1),
    point(sent=float("nan")), point(read=float("inf")), point(cpu=1e300),
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_point_is_left_out(recorder: Any, odd: Any) -> None:
    node = FakeNode("gpu1")
    node.reading = odd
    recorder.tick(0.0, [node])
    assert recorder.readings == 0
    recorder.add("gpu1", point())
    assert recorder.summary()["hosts"]["gpu1"]["memory_peak"] == 100


def test_a_long_run_keeps_a_bounded_file(recorder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST", 10)
    for number in range(1000):
        recorder.add("gpu1", point(memory=number))
        recorder.write()
        assert len(rows(tmp_path)) <= 10
    kept = [row["hosts"]["gpu1"]["memory"] for row in rows(tmp_path)]
    # The same distance between all rows, over all of the run.
    assert len({later - earlier for earlier, later in itertools.pairwise(kept)}) == 1
    assert kept[0] < 300
    assert kept[-1] > 700
    # The summary has seen every point.
    assert recorder.summary()["hosts"]["gpu1"]["memory_peak"] == 999
    assert recorder.summary()["readings"] == 1000
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_many_hosts_have_fewer_rows(recorder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST_BYTES", 20_000)
    monkeypatch.setattr(metrics, "LEAST", 3)
    for number in range(500):
        # An elastic run gets more hosts.
        for host in range(1 + number // 50):
            recorder.add(f"gpu{host}", point(memory=number))
        recorder.write()
        assert (tmp_path / "metrics.jsonl").stat().st_size < 22_000
    kept = [row["hosts"]["gpu0"]["memory"] for row in rows(tmp_path)]
    assert len({later - earlier for earlier, later in itertools.pairwise(kept)}) == 1
    assert len(kept) >= 3
    monkeypatch.setattr(metrics, "MOST_BYTES", 1)
    for number in range(500, 600):
        recorder.add("gpu0", point(memory=number))
        recorder.write()
        assert len(rows(tmp_path)) >= 3


def test_a_disk_that_is_full_loses_rows_only(tmp_path: Path) -> None:
    recorder = metrics.Recorder(str(tmp_path / "no" / "metrics.jsonl"), "")
    recorder.add("gpu1", point())
    recorder.write()
    assert recorder.summary()["hosts"]["gpu1"]["memory_peak"] == 100


def test_a_large_cluster_has_a_small_ending(recorder: Any) -> None:
    for number in range(1000):
        recorder.add(f"gpu{number:04}", point(gpus=[gpu(index, 1.0, 2**40) for index in range(8)]))
    summary = recorder.summary()
    assert len(summary["hosts"]) == metrics.MOST_HOSTS
    assert summary["left_out"] == 1000 - metrics.MOST_HOSTS
    assert len(json.dumps(summary)) < 32768


def test_a_run_without_readings_has_no_summary(recorder: Any) -> None:
    assert recorder.summary() is None


def test_a_probe_reads_the_ranks_of_its_run_only(head: Head) -> None:
    mine, other = head.new_id(), head.new_id()
    busy = "x = bytearray(64 << 20)\nprint('up', flush=True)\nwhile True: pass"
    started = []
    look = idle.Look()
    probe, stranger = metrics.Probe(mine, look), metrics.Probe(head.new_id(), look)
    try:
        for run in (mine, other):
            env = {**os.environ, "KIT_RUN": run, "OMPI_COMM_WORLD_RANK": "0"}
            process = subprocess.Popen(["python3", "-IS", "-c", busy], stdout=subprocess.PIPE, env=env)
            started.append(process)
            assert process.stdout
            assert process.stdout.readline() == b"up\n"
        first, first_s = probe.read(), process_time(started[0].pid)
        assert 64 << 20 <= first["memory"] < 128 << 20
        assert first["cpu"] is None
        # It uses a core, or what the machine has left of one.
        until(lambda: process_time(started[0].pid) > first_s + 0.2)
        later = probe.read()
        assert 0 < later["cpu"] < 1.5
        assert later["cores"] == os.cpu_count()
        assert later["received"] >= first["received"]
        assert stranger.read()["memory"] == 0
    finally:
        for process in started:
            process.kill()
            process.communicate()
        look.close()


def test_a_probe_that_fails_is_an_empty_point(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_words: object) -> None:
        raise RuntimeError("odd")

    monkeypatch.setattr(metrics.procs, "ranks", broken)
    assert metrics.Probe("20261121-101500-3fa2", idle.Look()).read() == {}
