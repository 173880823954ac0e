"""Horovod as kit compiles it, on real hosts: what its ranks count, and the timeline of all of them while they run."""

from __future__ import annotations

import json
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.rig import PATIENCE_S, Cluster, objects, until
from tests.integration.viewers import viewers

# Rank 2, on gpu2, is late in each step, so the others wait for it.
LATE = 2
STEPS = f"""
import time
import horovod.mxnet as hvd
import mxnet as mx
hvd.init()
parts = [mx.nd.ones((1000,)) * n for n in range(4)]
while True:
    if hvd.rank() == {LATE}:
        time.sleep(0.2)
    for part in [hvd.allreduce(part, name="part%d" % n) for n, part in enumerate(parts)]:
        part.wait_to_read()
"""
READ = """
import json, sys
sys.path.insert(0, "/opt/kit/lib")
from kitwatch import readiness
print(json.dumps(readiness.read(readiness.folder_of(sys.argv[1]))))
"""
WRITTEN = "ls /tmp/kit-timeline-*/*.json 2>/dev/null || true"
LEFT = "ls -d /dev/shm/kit-readiness-* /tmp/kit-timeline-* /dev/shm/kit-readiness-*/control 2>/dev/null || true"
HOSTS = ("gpu1", "gpu2")


def counted(cluster: Cluster, run: str) -> dict[int, dict[str, int]]:
    """Return what the ranks of a run count, on all hosts."""
    ranks: dict[int, dict[str, int]] = {}
    for host in cluster.hosts[:2]:
        done = cluster.inside(host, "python3", "-c", READ, run)
        assert done.returncode == 0, done.stderr
        ranks |= {int(rank): values for rank, values in json.loads(done.stdout).items()}
    return ranks


def listed(cluster: Cluster, script: str) -> list[str]:
    """Return the words that a script prints in the nodes of both hosts."""
    return [line for host in cluster.hosts[:2] for line in cluster.inside(host, "sh", "-c", script).stdout.split()]


@pytest.fixture(scope="module")
def run(cluster: Cluster) -> Iterator[str]:
    """Four ranks on two hosts that train until they are stopped. The end removes what they counted."""
    done = cluster.kit("run", "-d", "--np", "4", "--npernode", "2", "--", "python3", "-c", STEPS)
    assert done.returncode == 0, done.stderr
    identity = done.stdout.strip()
    try:
        yield identity
    finally:
        done = cluster.kit("stop", identity)
    assert done.returncode == 0, done.stderr
    until("nothing of the ranks", lambda: not listed(cluster, LEFT))


def test_each_rank_counts_what_it_waits_for(cluster: Cluster, run: str) -> None:
    def first() -> dict[int, dict[str, int]] | None:
        ranks = counted(cluster, run)
        return ranks if len(ranks) == 4 and all(values["count"] for values in ranks.values()) else None

    before = until("four ranks that count", first)
    assert {values["size"] for values in before.values()} == {4}
    # Ten more steps of each rank.
    after = until(
        "ten more steps",
        lambda: (
            ranks
            if all((ranks := counted(cluster, run))[rank]["tensors"] >= before[rank]["tensors"] + 40 for rank in before)
            else None
        ),
    )
    waits = {
        rank: (after[rank]["wait_ns"] - before[rank]["wait_ns"]) / (after[rank]["tensors"] - before[rank]["tensors"])
        for rank in before
    }
    assert min(waits, key=waits.__getitem__) == LATE, waits
    for rank, values in after.items():
        assert values["opened_ns"] == before[rank]["opened_ns"]
        assert values["bytes"] == values["tensors"] * 4000
        assert values["op_ns"] > before[rank]["op_ns"]
        assert values["last_ns"] > before[rank]["last_ns"]


@pytest.fixture(scope="module")
def recorded(cluster: Cluster, run: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """Return what kit says of a timeline that it recorded, and the file."""
    path = tmp_path_factory.mktemp("recorded") / "timeline.json"
    done = cluster.kit("timeline", run, "--for", "3s", "--file", str(path), "--output", "json")
    assert done.returncode == 0, done.stderr
    return objects(done)[-1], path.read_text()


def test_the_timeline_has_every_rank_on_one_clock(run: str, recorded: tuple[dict[str, Any], str]) -> None:
    result, text = recorded
    assert (result["kind"], result["run"], result["missed"]) == ("timeline", run, {})
    assert [(rank["rank"], rank["host"]) for rank in result["ranks"]] == [
        (0, "gpu1"),
        (1, "gpu1"),
        (2, "gpu2"),
        (3, "gpu2"),
    ]
    assert min(result["ranks"], key=lambda rank: rank["waited"])["rank"] == LATE
    ends: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    names = set()
    content = json.loads(text)
    tracks = {(event["pid"], event["tid"]): event["args"]["name"] for event in _named(content, "thread_name")}
    for event in content["traceEvents"]:
        if event["ph"] == "X":
            names.add(event["name"])
            if event["name"] == "ALLREDUCE":
                track = tracks[event["pid"], event["tid"]].removeprefix("horovod_allreduce.")
                ends[event["pid"], track].append((event["ts"], event["ts"] + event["dur"]))
    assert names >= {"WAIT", "ALLREDUCE", "MPI_ALLREDUCE"}
    # No rank ends an all-reduce before all have begun it, so on one clock they overlap. The first and the last of a
    # rank may be in no other rank's timeline.
    for rank in (1, 2, 3):
        mine, others = ends[rank, "part0"], ends[0, "part0"]
        assert len(mine) > 2
        alone = [one for one in mine if not any(begin <= one[1] and one[0] <= end for begin, end in others)]
        assert len([one for one in alone if others[0][0] < one[0] < others[-1][0]]) == 0, (rank, alone)


def test_both_viewers_show_each_rank_and_drop_nothing(recorded: tuple[dict[str, Any], str], tmp_path: Path) -> None:
    _, text = recorded
    content = json.loads(text)
    names = {event["pid"]: event["args"]["name"] for event in _named(content, "process_name")}
    assert sorted(names.values()) == [f"rank {rank} (gpu{rank // 2 + 1})" for rank in range(4)]
    tracks = {(event["pid"], event["tid"]): event["args"]["name"] for event in _named(content, "thread_name")}
    slices = Counter((event["pid"], event["tid"]) for event in content["traceEvents"] if event["ph"] == "X")
    drawn = {
        name: {track: slices[key] for key, track in tracks.items() if key[0] == pid} for pid, name in names.items()
    }
    for track in ("all tensors", *(f"horovod_allreduce.part{n}" for n in range(4))):
        assert all(by_track[track] > 10 for by_track in drawn.values()), drawn
    with viewers(tmp_path) as shown:
        assert shown.complaints(text, list(names.values())) == set()
        assert shown.tracing(text) == {"warnings": [], "ranks": drawn}


def _named(content: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [event for event in content["traceEvents"] if event["ph"] == "M" and event["name"] == name]


def of_timelines(cluster: Cluster) -> list[str]:
    return [line for line in listed(cluster, LEFT) if "control" in line or line.startswith("/tmp")]


def test_an_interrupted_timeline_ends_on_the_hosts(cluster: Cluster, run: str, tmp_path: Path) -> None:
    path = tmp_path / "never.json"
    with cluster.running("timeline", run, "--for", "10m", "--file", str(path)) as process:
        until("four ranks that write", lambda: len(listed(cluster, WRITTEN)) == 4)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    assert not path.exists()
    until("nothing of a timeline", lambda: not of_timelines(cluster))


# After the one that was interrupted: its ranks end it early, and can begin another one.
def test_a_second_timeline_follows_and_nothing_stays(cluster: Cluster, run: str, tmp_path: Path) -> None:
    done = cluster.kit("timeline", "--for", "1s", "--file", str(tmp_path / "again.json"))
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path}/again.json" in done.stdout
    assert "of 4 ranks, the clocks of 2 hosts within" in done.stdout
    assert not of_timelines(cluster)
    assert cluster.kit("runs", "show", run).returncode == 0


def test_a_run_without_horovod_is_refused(cluster: Cluster) -> None:
    done = cluster.kit("run", "-d", "--np", "1", "-H", "gpu4", "--", "sleep", "303")
    assert done.returncode == 0, done.stderr
    try:
        refused = cluster.kit("timeline", done.stdout.strip())
        assert refused.returncode == 5, refused.stderr
        assert "has called hvd.init()" in refused.stderr
    finally:
        cluster.kit("stop", done.stdout.strip())
