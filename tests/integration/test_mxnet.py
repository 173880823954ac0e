"""MXNet's key-value stores on real hosts: `kit run --launcher ps`, mxnet_train, and what becomes of roles that die."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.rig import PATIENCE_S, VM, Cluster, Done, everywhere, until
from tests.pipes import rest

SIDE, CLASSES, IMAGES, BATCH, EPOCHS = 28, 4, 256, 8, 6
DATA = "/dev/shm/kit-bars.rec"
# Workers whose store all have joined; the sums of what they push tell whether it is right.
SUMS = """
import os, time
import mxnet as mx
store = mx.kv.create("dist_sync")
number = int(os.environ["OMPI_COMM_WORLD_RANK"])
store.init(0, mx.nd.zeros((3,)))
store.push(0, mx.nd.ones((3,)) * (number + 1))
found = mx.nd.zeros((3,))
store.pull(0, out=found)
print(number, store.num_workers, os.environ["DMLC_NODE_HOST"], *found.asnumpy(), flush=True)
time.sleep(600)
"""


def png(rows: list[list[int]]) -> bytes:
    """Return a gray picture as PNG with three colors."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    raw = b"".join(b"\0" + bytes(value for grey in row for value in (grey,) * 3) for row in rows)
    head = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def bars() -> bytes:
    """A RecordIO file of noisy pictures with one bright bar each: its place is the class."""
    pictures = []
    for number in range(IMAGES):
        label = number % CLASSES
        # Gray noise that is the same each time.
        noise = [[(x * 7919 + y * 104729 + number * 1299709) % 997 % 120 for x in range(SIDE)] for y in range(SIDE)]
        rows = [[grey + 120 * (y * CLASSES // SIDE == label) for grey in row] for y, row in enumerate(noise)]
        body = struct.pack("<IfQQ", 0, label, number, 0) + png(rows)
        pictures.append(struct.pack("<II", 0xCED7230A, len(body)) + body + b"\0" * (-len(body) % 4))
    return b"".join(pictures)


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[str]:
    """The same file in every node."""
    text = base64.b64encode(bars()).decode()

    def put(host: VM) -> None:
        done = cluster.inside(host, "sh", "-c", f"base64 -d >{DATA}", stdin=text)
        assert done.returncode == 0, done.stderr

    everywhere(cluster.hosts, put)
    yield DATA
    everywhere(cluster.hosts, lambda host: cluster.inside(host, "rm", "-f", DATA))


def sent(host: VM) -> int:
    """Bytes that the host has sent."""
    return int(host.text("cat", "/sys/class/net/eth0/statistics/tx_bytes"))


def result(done: Done) -> dict[str, Any]:
    """The one object on stdout."""
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    values: dict[str, Any] = json.loads(line)
    return values


def kill(host: VM, rank: int) -> None:
    """What the rank is, and not what mpirun's daemon started to watch over it."""
    processes = [process for process in host.marked() if process.rank == rank and "kit-rank" not in process.command]
    assert processes, f"no rank {rank} on {host.name}"
    host.text("kill", "-KILL", *(str(process.pid) for process in processes))


def test_sums_are_right_and_a_server_that_is_killed_ends_the_run(cluster: Cluster) -> None:
    words = ["--np", "4", "--npernode", "1", "--launcher", "ps", "--servers", "2"]
    run = cluster.kit("run", "-d", *words, "--", "python3", "-c", SUMS).stdout.strip()
    # Seven processes with an `import mxnet` each.

    def sums() -> str:
        out = cluster.kit("logs", run).stdout
        return out if out.count("\n") == 4 else ""

    sums_printed = until("all sums", sums, patience_s=300)
    addresses = [host.address for host in cluster.hosts]
    lines = sorted(line.split() for line in sums_printed.splitlines())
    assert lines == [[str(n), "4", addresses[n], "10.0", "10.0", "10.0"] for n in range(4)]
    # Ranks 4 and 5 are the servers, on the first hosts, and 6, on the head, is the scheduler.
    assert cluster.ranks() == {"gpu1": [0, 4, 6], "gpu2": [1, 5], "gpu3": [2], "gpu4": [3]}
    # Nobody goes by way of docker0, which has the same address everywhere.
    far = everywhere(cluster.hosts, lambda host: host.peers([process.pid for process in host.marked() if process.rank]))
    assert set().union(*far.values()) <= set(addresses)

    # They hold no slot: another run finds all that the workers left.
    assert cluster.kit("run", "--np", "4", "--", "true").returncode == 0

    kill(cluster.hosts[1], 5)
    done = cluster.kit("wait", run)
    assert done.returncode == 137
    assert "server 1 (rank 5) on gpu2 was killed by SIGKILL" in done.stderr
    cluster.wait_for_none()


def test_workers_of_an_asynchronous_store_go_on_by_themselves_until_one_dies(cluster: Cluster) -> None:
    train = ["mxnet_train", "--network", "mlp", "--num-classes", "4", "--batch-size", "4", "--kv-store", "dist_async"]
    words = ["--np", "2", "--npernode", "1", "--launcher", "ps", "--servers", "1", "--tag-output", "--"]
    short = cluster.kit("run", *words, *train, "--num-iters", "2", "--num-warmup", "2", "--disp-batches", "5")
    assert short.returncode == 0, short.stderr
    speeds = Counter(
        line.partition(" | ")[0] for line in short.stdout.splitlines() if " samples/sec\taccuracy=" in line
    )
    assert set(speeds) == {"worker 0", "worker 1"}
    assert "total samples/sec on 2 workers: " in short.stdout
    cluster.wait_for_none()

    with cluster.running("run", *words, *train, "--num-iters", "1000000") as run:
        assert run.stdout
        assert any("Epoch[0] Batch [0-20]\tSpeed: " in line for line in run.stdout)
        kill(cluster.hosts[1], 1)
        _, err = rest(run, timeout=PATIENCE_S)
        assert run.returncode == 137
    assert "worker 1 (rank 1) on gpu2 was killed by SIGKILL" in err
    cluster.wait_for_none()


def test_training_from_records_converges_and_two_bits_send_less(cluster: Cluster, data: str) -> None:
    """The second host has a worker and no server: what it sends is gradients."""
    train = ["mxnet_train", "--network", "lenet", "--num-classes", str(CLASSES), "--image-shape", f"3,{SIDE},{SIDE}"]
    train += ["--data-train", data, "--batch-size", str(BATCH), "--num-epochs", str(EPOCHS), "--lr", "0.02"]
    train += ["--num-warmup", "2", "--num-batches-per-iter", "20", "--kv-store", "dist_sync", "--json"]
    words = ["--np", "2", "--npernode", "1", "--launcher", "ps", "--servers", "1", "--"]
    results, bytes_sent = [], []
    for more in ([], ["--gc-type", "2bit", "--gc-threshold", "0.5"]):
        before = sent(cluster.hosts[1])
        results.append(result(cluster.kit("run", *words, *train, *more)))
        bytes_sent.append(sent(cluster.hosts[1]) - before)
    assert [trained["accuracy"] > 0.9 for trained in results] == [True, True], results
    plain, compressed = results
    assert (plain["workload"], plain["simulated"], plain["ranks"], plain["servers"]) == ("training", False, 2, 1)
    steps = EPOCHS * IMAGES // (BATCH * 2)
    assert len(plain["iters"]) == len(compressed["iters"]) == (steps - 2) // 20
    # All images divided by all of the time: at most the mean of the rates.
    rates = plain["iters"]
    assert plain["img_sec_total"] == pytest.approx(len(rates) / sum(1 / rate for rate in rates), rel=0.1)
    assert plain["img_sec_total"] <= sum(rates) / len(rates) * (1 + 1e-9)
    assert compressed["options"]["gc_type"] == "2bit"
    # 4 bytes a weight and step, and 2 bits: 1/16, and what both have besides.
    assert bytes_sent[0] > 4 * plain["weights"] * steps
    assert bytes_sent[1] < bytes_sent[0] / 6, bytes_sent
    cluster.wait_for_none()


def test_horovod_instead_of_servers(cluster: Cluster) -> None:
    train = ["mxnet_train", "--network", "googlenet", "--image-shape", "3,64,64", "--kv-store", "horovod", "--json"]
    train += ["--batch-size", "2", "--num-warmup", "1", "--num-iters", "2", "--num-batches-per-iter", "1"]
    trained = result(cluster.kit("run", "--np", "2", "--npernode", "1", "--", *train))
    # As many weights as the paper's network has without its auxiliary heads.
    assert (trained["ranks"], trained["servers"], trained["weights"]) == (2, 0, 6998552)
    assert len(trained["iters"]) == 2


def test_a_program_of_mpi_fails_with_a_message_where_there_is_no_mpi(cluster: Cluster) -> None:
    code = "import ctypes; ctypes.CDLL('libmpi.so.40', ctypes.RTLD_GLOBAL).MPI_Init(None, None)"
    words = ["--np", "2", "--launcher", "ps", "--servers", "1", "--"]
    done = cluster.kit("run", *words, "python3", "-c", code)
    assert done.returncode not in (0, 124)
    assert "run it without --launcher ps" in done.stderr
    cluster.wait_for_none()


def test_a_role_that_does_not_come_is_named(cluster: Cluster) -> None:
    """A worker that is something else never joins; the run ends by itself.

    The limit is one for ranks to be up as well, and they are to have no trouble with that.
    """
    words = ["--np", "1", "--launcher", "ps", "--servers", "1", "--start-timeout", "15s"]
    done = cluster.kit("run", *words, "--", "sleep", "303")
    assert done.returncode == 124
    assert "have not joined after 15 s" in done.stderr
    assert "worker 0, server 0, the scheduler" in done.stderr
    cluster.wait_for_none()
