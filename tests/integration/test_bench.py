"""kit bench on the cluster: the ladder, a table that is interrupted and resumed, parameter servers, TCP through every
network.

Whether it works, and never how fast.
"""

from __future__ import annotations

import json
import signal
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kit.plan.bench.network import PORTS
from kit.remote.bench.probe import tcp
from tests.integration.rig import Cluster, Done, everywhere, objects, until

# So little that only its working is shown.
TINY = ("--image-size", "32", "--batch-size", "2", "--num-warmup", "1", "--num-iters", "2",
        "--num-batches-per-iter", "1")  # fmt: skip


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    """The folder of a session, outside of the cluster's own."""
    return tmp_path / "session"


def bench(cluster: Cluster, folder: Path, *words: str) -> Done:
    return cluster.kit("bench", "--dir", str(folder), "--output", "json", *words)


def samples(folder: Path) -> list[dict[str, Any]]:
    file = folder / "samples.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_the_ladder_up_to_training(cluster: Cluster, sessions: Path) -> None:
    done = bench(cluster, sessions, "--repeats", "1", "--ranks", "2", *TINY)
    assert done.returncode == 0, done.stdout + done.stderr
    result = objects(done)[-1]
    assert (result["kind"], result["failed"]) == ("bench", [])
    by_case = {sample["case"]: sample for sample in samples(sessions)}
    assert list(by_case) == ["reach", "hello", "ring", "collectives", "training/mxnet-resnet18_v1/2"]
    hello = by_case["hello"]["result"]
    assert Counter(sample["host"] for sample in hello["placement"]) == {host.name: 2 for host in cluster.hosts}
    tests = {test["test"]: test["rows"] for test in by_case["collectives"]["result"]["tests"]}
    assert set(tests) >= {"latency", "bandwidth", "allreduce", "bcast", "allgather"}
    assert all(row["seconds"] > 0 for rows in tests.values() for row in rows)
    assert by_case["training/mxnet-resnet18_v1/2"]["result"]["ranks"] == 2
    # Each figure is on the page, which is whole by itself.
    assert {Path(path).name for path in result["files"]} >= {"results.csv", "report.html"}
    assert not any(cluster.ranks().values())


def test_a_table_that_was_interrupted_is_resumed(cluster: Cluster, sessions: Path) -> None:
    words = ("bench", "--preset", "egs", "--ranks", "1,2", "--repeats", "2", "--dir", str(sessions), *TINY)
    with cluster.running(*words) as process:
        # In the middle of the third launch.
        until("two samples", lambda: len(samples(sessions)) >= 2, patience_s=600)
        until("ranks of the third", lambda: any(cluster.ranks().values()))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=180)
    assert process.returncode == 130, err
    assert "--resume" in err
    assert not any(cluster.ranks().values())
    before = samples(sessions)
    assert all(sample["failure"] is None for sample in before)

    done = cluster.kit("bench", "--session", str(sessions), "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    after = samples(sessions)
    assert after[: len(before)] == before
    keys = [(sample["case"].rpartition("/")[2], sample["repeat"], sample["warmup"]) for sample in after]
    assert keys == [("2", 1, True), ("1", 1, False), ("2", 1, False), ("1", 2, False), ("2", 2, False)]
    rates = [row for row in objects(done)[-1]["summary"]["cases"] if row["state"] == "measured"]
    assert len(rates) == 2


def test_a_case_with_a_parameter_server_takes_the_first_workers_result(
    cluster: Cluster, sessions: Path, tmp_path: Path
) -> None:
    # Two hosts with a worker and a server each: every process here pays for an `import mxnet`.
    two = tmp_path / "hosts"
    two.write_text("".join(f"{host.address} name={host.name} slots=1\n" for host in cluster.hosts[:2]))
    words = ("--preset", "kvstore", "--stores", "dist_async", "--model", "mlp", "--repeats", "1", "--hosts", str(two))
    done = bench(cluster, sessions, *words, *TINY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert objects(done)[-1]["failed"] == []
    (sample,) = samples(sessions)
    assert (sample["case"], sample["failure"]) == ("kvstore/mlp/dist_async", None)
    result = sample["result"]
    assert (result["model"], result["ranks"], result["servers"], len(result["iters"])) == ("mlp", 2, 2, 2)
    assert result["img_sec_total"] > 0
    # Of both, not only of the worker that reports it.
    assert result["img_sec_total"] == pytest.approx(2 * result["img_sec_per_rank"])
    cluster.wait_for_none()


def test_tcp_through_each_network_and_nothing_is_left(cluster: Cluster, sessions: Path) -> None:
    heard: list[tuple[str, bool]] = []

    with cluster.running("bench", "--preset", "networks", "--repeats", "1", "--dir", str(sessions)) as process:
        while process.poll() is None:
            heard += listeners(cluster)
            # What it looks at needs the cores.
            time.sleep(0.2)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    taken = samples(sessions)
    sums = ["networks/allreduce/mpi-plain", "networks/allreduce/mpi"]
    probes = [sample for sample in taken if sample["case"] not in sums]
    assert [sample["case"] for sample in taken[len(probes) :]] == sums
    assert all(sample["result"]["tests"][0]["rows"][0]["busbw"] > 0 for sample in taken[len(probes) :])
    assert [sample["result"]["network"] for sample in probes] == ["bare", "host", "bridge"]
    for sample in probes:
        rows = {test["test"]: test["rows"] for test in sample["result"]["tests"]}
        assert [row["bytes"] for row in rows["latency"]] == [8, 1024, 65536]
        assert rows["bandwidth"][0]["algbw"] > 0
    assert "overlay" in json.loads((sessions / "session.json").read_text())["skipped"]
    # It listened only on the cluster's address, and sent nothing to a stranger.
    assert heard
    assert {address for address, _ in heard} == {cluster.head.address}
    assert not any(answered for _, answered in heard)
    for left in everywhere(cluster.hosts, traces).values():
        assert left == ""


def listeners(cluster: Cluster) -> list[tuple[str, bool]]:
    """Who listens on a port of probes: the address, and whether it answers one who does not know the secret."""
    rows = cluster.head.text("ss", "-Hltn").splitlines()
    ends = [row.split()[3].rpartition(":") for row in rows]
    addresses = []
    for address, _, port in ends:
        if int(port) in PORTS:
            try:
                with socket.create_connection((cluster.head.address, int(port)), timeout=2) as link:
                    # All that a stranger gets is a challenge.
                    tcp.exactly(link, tcp.CHALLENGE)
                    link.sendall(b"x" * tcp.ANSWER + tcp.STREAM)
                    addresses.append((address, bool(link.recv(1))))
            except OSError:
                addresses.append((address, False))
    return addresses


def traces(host: Any) -> str:
    return str(
        host.script(
            "docker ps -aq --filter label=kit.bench; docker network ls -q --filter label=kit.bench;"
            " grep -lzs '^KIT_RUN=bench-' /proc/[0-9]*/environ; exit 0"
        )
    )
