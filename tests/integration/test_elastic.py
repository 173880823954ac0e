"""Elastic runs on lab hosts: ranks, nodes and hosts go and come. No committed step comes again."""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import elastic_faults as faults
from tests.integration.rig import CONNECTIONS, VM, Cluster, until
from tests.integration.test_fault_matrix import cut, power

# Each step adds 1, whatever the number of ranks. Rank 0 ends the training when its node has the file.
TRAIN = """
import os, time
import mxnet as mx
import horovod.mxnet as hvd
from horovod.common.elastic import ObjectState, run_fn
from horovod.common.exceptions import HorovodInternalError

hvd.init()
state = ObjectState(bcast_object=hvd.broadcast_object, get_rank=hvd.rank, step=0, total=0.0, over=False)

def reset():
    hvd.shutdown()
    hvd.init()

def sum_of(value, name):
    return float(hvd.allreduce(mx.nd.array([value]), average=False, name=name).asscalar())

def train(state):
    committed = 0
    try:
        while not state.over:
            state.total += sum_of(1.0, "one") / hvd.size()
            # Now all ranks have committed the step before: no failure can bring it back.
            if hvd.rank() == 0 and committed:
                print("committed", committed, hvd.size(), flush=True)
            ends = hvd.rank() == 0 and os.path.exists(os.environ["UNTIL"])
            state.over = sum_of(float(ends), "over") > 0
            state.step += 1
            time.sleep(0.1)
            state.commit()
            committed = state.step
        # Rank 0 does not wait for the others in a commit, and must not end before they have the last one.
        sum_of(0.0, "end")
    except mx.base.MXNetError as error:
        # Horovod's words, or those of Gloo below it.
        lost = ("Horovod", "gloo", "pair closure", "Read error [", "Write error [", "Connection closed by peer")
        if not any(word in str(error) for word in lost):
            raise
        raise HorovodInternalError(error)

run_fn(train, reset)(state)
print("sum", state.step, state.total, flush=True)
"""
WITHOUT_STATE = """
import time
import mxnet as mx
import horovod.mxnet as hvd
hvd.init()
while True:
    hvd.allreduce(mx.nd.ones(1), name="one").asscalar()
    print("committed 1", hvd.size(), flush=True)
    time.sleep(0.1)
"""
# With TensorFlow, which has hvd.elastic, and a model whose weight grows by 1 in each step.
TENSORFLOW = """
import os, time
import tensorflow as tf
import horovod.tensorflow as hvd

hvd.init()
model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
model.build([None, 1])
optimizer = tf.keras.optimizers.SGD(1.0)
optimizer.build(model.trainable_variables)
state = hvd.elastic.TensorFlowKerasState(model, optimizer, step=0)

@hvd.elastic.run
def train(state):
    while True:
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = -tf.reduce_sum(model(tf.ones([1, 1])))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        state.step += 1
        time.sleep(0.1)
        state.commit()
        ends = hvd.rank() == 0 and os.path.exists(os.environ["UNTIL"])
        over = float(hvd.allreduce(tf.constant(float(ends)), op=hvd.Sum, name="ends")) > 0
        # Now all ranks have committed the step: no failure can bring it back.
        if hvd.rank() == 0:
            weight = float(model.weights[0][0][0])
            print("committed", state.step, hvd.size(), weight, int(optimizer.iterations), flush=True)
        if over:
            break

train(state)
print("sum", state.step, float(model.weights[0][0][0]), flush=True)
"""
FINISH = "/tmp/kit-test-finish"


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elastic")
    (folder / "train.py").write_text(TRAIN)
    (folder / "without_state.py").write_text(WITHOUT_STATE)
    (folder / "with_tensorflow.py").write_text(TENSORFLOW)
    return folder


@pytest.fixture(autouse=True)
def _whole(cluster: Cluster) -> Iterator[None]:
    """Give the next test a whole cluster."""
    yield
    for host in cluster.hosts:
        host.text("docker", "start", cluster.container(host))
        cluster.inside(host, "rm", "-f", FINISH)
    cluster.wait_for_none()


class Watched:
    """A run of `kit`, whose lines two threads collect."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.out, self.err = process, list[str](), list[str]()
        self.threads = [
            threading.Thread(target=lines.extend, args=(stream,), daemon=True)
            for lines, stream in ((self.out, process.stdout), (self.err, process.stderr))
        ]
        for thread in self.threads:
            thread.start()

    def committed(self, size: int, least: int = 5) -> bool:
        """Whether the latest world has this size, and has committed some steps."""
        sizes = [line.split()[2] for line in self.out if line.startswith("committed")]
        return len(sizes) >= least and set(sizes[-least:]) == {str(size)}

    def wait_for(self, line: str, *, size: int | None = None) -> None:
        """Wait until kit has printed this line, and until the ranks of a world of this size have committed steps."""

        def there() -> bool:
            assert self.process.poll() is None, self.text
            return self.said(line) and (size is None or self.committed(size))

        try:
            until(f"{line}, {size} ranks", there)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text}") from None

    def said(self, pattern: str) -> bool:
        return not pattern or any(re.search(pattern, line) for line in list(self.err))

    def saw(self, fault: str) -> None:
        """Check that the row of this fault is true: the words are in one line, and the run has ended or goes on."""
        row = faults.ROWS[fault]
        assert any(all(words in line for words in row.sees) for line in list(self.err)), f"{row.sees}\n{self.text}"
        assert self.process.poll() == row.code, self.text

    def ended(self) -> int:
        until("the run ends", lambda: self.process.poll() is not None)
        for thread in self.threads:
            thread.join(60)
        return self.process.returncode

    @property
    def text(self) -> str:
        return "".join(self.out[-5:] + self.err[-30:])


def rank_of(host: VM, *, local: int = 0) -> int:
    """Return the process of a rank on the host, without its relay."""
    scripts = ("python3 train.py", "python3 with_tensorflow.py")
    ranks = [p for p in host.marked() if p.rank is not None and p.command.startswith(scripts)]
    return sorted(ranks, key=lambda process: process.rank or 0)[local].pid


def steps(run: Watched) -> list[int]:
    """Return the committed steps, after a check that none came again."""
    numbers = [int(line.split()[1]) for line in run.out if line.startswith("committed")]
    assert numbers == sorted(set(numbers)), "a committed step came again"
    return numbers


@contextlib.contextmanager
def never_deployed(cluster: Cluster, host: VM, folder: Path) -> Iterator[None]:
    """Deploy without the host, and remove what it has of the cluster. Deploy to it at the block's end."""
    lines = (cluster.folder / "hosts").read_text().splitlines(keepends=True)
    for name, verb, own in (("others", ("deploy",), False), ("own", ("down", "--yes"), True)):
        (folder / name).write_text("".join(line for line in lines if (f"name={host.name} " in line) is own))
        done = cluster.kit("--hosts", str(folder / name), *verb)
        assert done.returncode == 0, done.stderr
    try:
        yield
    finally:
        done = cluster.kit("deploy")
        assert done.returncode == 0, done.stderr


def words(code: Path, *more: str, gloo_s: int = 20) -> list[str]:
    # A rank may wait that long for one that has ended, and all ranks must start within this time of each other.
    variables = (f"UNTIL={FINISH}", "TOKEN=s3cr3t", f"HOROVOD_GLOO_TIMEOUT_SECONDS={gloo_s}")
    return ["run", "--elastic", "--code", str(code), *(word for name in variables for word in ("-x", name)), *more]


def test_a_run_goes_on_through_faults_and_ends_with_the_right_sum(cluster: Cluster, code: Path, tmp_path: Path) -> None:
    head, gpu2, gpu3, gpu4 = cluster.hosts
    # Without --max-np, ranks start on each host that comes.
    options = words(code, "--min-np", "2", "-H", "gpu[2-3]")
    # The head then says that gpu4 has the code. It loses it with the cluster.
    assert cluster.kit("run", "-H", "gpu4", "--np", "1", "--code", str(code), "--", "true").returncode == 0
    with (
        never_deployed(cluster, gpu4, tmp_path),
        cluster.running(*options, "--", "python3", "train.py") as process,
    ):
        run = Watched(process)
        run.wait_for("", size=4)
        ranks = [p for host in (gpu2, gpu3) for p in host.marked()]
        assert not [p for p in (*ranks, *head.marked()) if "s3cr3t" in p.command], "a variable is on a command line"
        environ = gpu2.text("sh", "-c", f"tr '\\0' '\\n' </proc/{rank_of(gpu2)}/environ")
        port = int(environ.partition("HOROVOD_GLOO_RENDEZVOUS_PORT=")[2].split()[0])
        assert head.listeners(port) == [head.address]

        gpu3.text("kill", "-9", str(rank_of(gpu3)))
        # If the others notice it only by Gloo's timeout, gpu3 has rested by then, and never leaves.
        run.wait_for(r"reset: (gpu3 left; 4 → 2|4) ranks; \d+\.\d s lost; rank \d on gpu3 was killed by SIGKILL")
        run.saw(faults.RANK_KILLED)
        run.wait_for(r"reset: (gpu3 joined; 2 → 4|4) ranks", size=4)

        early = cluster.kit("hosts", "add", "gpu4")
        assert (early.returncode, "kit deploy" in early.stderr) == (5, True), early.stderr
        for verb in (("deploy",), ("hosts", "add", "gpu4")):
            done = cluster.kit(*verb)
            assert done.returncode == 0, done.stderr
        run.wait_for(r"reset: gpu4 joined; 4 → 6 ranks", size=6)

        CONNECTIONS.forget()
        gpu3.text("docker", "kill", cluster.container(gpu3))
        run.wait_for(r"reset: gpu3 left; 6 → 4 ranks", size=4)
        run.saw(faults.NODE_KILLED)

        with cut(cluster, "gpu4"):
            # Horovod may abort a rank of the others at once. kit notices a cut link only after some seconds.
            cause = r"(the connection to gpu4 broke|rank \d on gpu2 was killed by SIG(ABRT|SEGV))"
            run.wait_for(rf"reset: gpu4 left; 4 → 2 ranks; .*; {cause}", size=2)
            run.saw(faults.LINK_CUT)
        run.wait_for(r"reset: gpu4 joined; 2 → 4 ranks", size=4)

        done = cluster.kit("hosts", "drop", "gpu4")
        assert done.returncode == 0, done.stderr
        run.wait_for(r"reset: gpu4 left; 4 → 2 ranks; \d+\.\d s lost$", size=2)
        assert cluster.kit("hosts", "drop", "gpu2").returncode == 5, "fewer slots than --min-np would stay"

        # The only host has a rank left that has the state.
        gpu2.text("kill", "-9", str(rank_of(gpu2)))
        run.wait_for(r"reset: 2 ranks; \d+\.\d s lost; rank 0 on gpu2 was killed", size=2)
        run.saw(faults.LAST_RANK_KILLED)

        cluster.inside(gpu2, "touch", FINISH)
        assert run.ended() == 0, run.text
    assert steps(run)
    sums = [line.split() for line in run.out if line.startswith("sum")]
    assert len(sums) == 2
    for _, count, total in sums:
        assert float(total) == pytest.approx(int(count))
    assert {name: left for name, left in cluster.marked().items() if left} == {}


def test_a_script_without_state_is_refused_with_what_to_write(cluster: Cluster, code: Path) -> None:
    options = words(code, "-H", "gpu[2-3]", "--max-np", "4")
    with cluster.running(*options, "--", "python3", "without_state.py") as process:
        run = Watched(process)
        run.wait_for("", size=4)
        victim = next(p.pid for p in cluster.hosts[2].marked() if p.command.startswith("python3 without_state.py"))
        cluster.hosts[2].text("kill", "-9", str(victim))
        run.ended()
        run.saw(faults.NO_STATE)
    assert run.said(r"state\.commit\(\)")
    assert not cluster.marked()


def test_a_vm_is_gone_and_then_the_last_host(cluster: Cluster, code: Path) -> None:
    _, gpu2, gpu3, _ = cluster.hosts
    # TensorFlow needs longer to start.
    options = words(code, "-H", "gpu[2-3]", "--max-np", "4", gloo_s=40)
    try:
        with cluster.running(*options, "--", "python3", "with_tensorflow.py") as process:
            run = Watched(process)
            run.wait_for("", size=4)
            power(cluster, "gpu3", "kill")
            run.wait_for(r"reset: gpu3 left; 4 → 2 ranks; .*; the connection to gpu3 broke", size=2)
            run.saw(faults.HOST_GONE)
            gpu2.text("docker", "kill", cluster.container(gpu2))
            run.ended()
            run.saw(faults.LAST_NODE_KILLED)
    finally:
        lab = cluster.kit("lab", "up", "--name", cluster.name, "--hosts", "4", "--slots", "2")
        assert lab.returncode == 0, lab.stderr
        until("the engine of gpu3 is back", lambda: gpu3.ssh("docker", "info").returncode == 0)
    check_model(run)


def check_model(run: Watched) -> None:
    """Check that weight and optimizer count every step once, also after resets."""
    weights = [float(line.split()[3]) for line in run.out if line.startswith("committed")]
    iterations = [int(line.split()[4]) for line in run.out if line.startswith("committed")]
    assert weights == pytest.approx(steps(run))
    assert iterations == steps(run)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_keras_model_goes_on_through_the_same_faults(cluster: Cluster, code: Path) -> None:
    """Each new rank imports TensorFlow, so this takes minutes."""
    _, gpu2, gpu3, _ = cluster.hosts
    options = words(code, "--min-np", "2", "-H", "gpu[2-3]", gloo_s=40)
    with cluster.running(*options, "--", "python3", "with_tensorflow.py") as process:
        run = Watched(process)
        run.wait_for("", size=4)
        gpu3.text("kill", "-9", str(rank_of(gpu3)))
        run.wait_for(r"reset: (gpu3 left; 4 → 2|4) ranks; \d+\.\d s lost; rank \d on gpu3 was killed by SIGKILL")
        run.wait_for(r"reset: (gpu3 joined; 2 → 4|4) ranks", size=4)
        assert cluster.kit("hosts", "add", "gpu4").returncode == 0
        run.wait_for(r"reset: gpu4 joined; 4 → 6 ranks", size=6)
        CONNECTIONS.forget()
        gpu3.text("docker", "kill", cluster.container(gpu3))
        run.wait_for(r"reset: gpu3 left; 6 → 4 ranks", size=4)
        with cut(cluster, "gpu4"):
            # Horovod may abort a rank of the others at once. kit notices a cut link only after some seconds.
            cause = r"(the connection to gpu4 broke|rank \d on gpu2 was killed by SIG(ABRT|SEGV))"
            run.wait_for(rf"reset: gpu4 left; 4 → 2 ranks; .*; {cause}", size=2)
        run.wait_for(r"reset: gpu4 joined; 2 → 4 ranks", size=4)
        assert cluster.kit("hosts", "drop", "gpu4").returncode == 0
        run.wait_for(r"reset: gpu4 left; 4 → 2 ranks; \d+\.\d s lost$", size=2)
        gpu2.text("kill", "-9", str(rank_of(gpu2)))
        run.wait_for(r"reset: 2 ranks; \d+\.\d s lost; rank 0 on gpu2 was killed", size=2)
        cluster.inside(gpu2, "touch", FINISH)
        assert run.ended() == 0, run.text
    check_model(run)
    sums = [line.split() for line in run.out if line.startswith("sum")]
    assert len(sums) == 2
    assert all(float(weight) == pytest.approx(int(count)) for _, count, weight in sums)
    assert not cluster.marked()
