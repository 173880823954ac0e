"""PyTorch and JAX on VMs whose own names are 127.0.1.1, as Debian sets up a VM: DDP, torchrun, and the flavour pytorch.

Their nodes have better names. PyTorch does not need them: its ranks meet in nodes whose own names are 127.0.1.1, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kit.events import Silent
from kit.flows.image.build import ImageResult, build_image
from kit.model.spec import ClusterSpec, ImageSpec
from tests.integration.conftest import HOSTS, LAB, missing
from tests.integration.preload import template
from tests.integration.rig import VM, Cluster, change_settings, everywhere, kit, objects, taken_down

TORCH = "torch==2.13.0+cpu"
# As the page says that it is installed.
JAX = "jax==0.10.2"
PAGE = Path(__file__).parents[2] / "docs/pytorch.md"
# Each rank prints where it is and what it has learned with the others. FAIL is the rank that gives up in its first try.
# Each ends without Python's own end, in which a thread of Gloo can abort the program: pytorch/pytorch#190489.
TRAIN = """
import os, socket, sys
import torch
import torch.distributed as dist
dist.init_process_group()
rank = dist.get_rank()
torch.manual_seed(rank)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    inputs = torch.randn(16, 8)
    loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if os.environ.get("FAIL") == str(rank) and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
        print("rank %d gives up" % rank, file=sys.stderr, flush=True)
        os._exit(1)
seen = [os.environ[name] for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "KIT_NODE")]
name = socket.gethostbyname(socket.gethostname())
print(*seen, name, "%.6f" % sum(float(p.sum()) for p in model.parameters()), flush=True)
dist.destroy_process_group()
os._exit(0)
"""
# Nodes may write it, so that a test can make each host's part there.
DATA = {"made-up": {"from": "gpu1:/srv/made-up", "to": "/data/made-up", "split": "hosts", "write": True}}
# A rank that takes its time to end, and says that it did.
SAVES = "trap 'sleep 1; echo saved $RANK; exit 0' TERM; echo up $RANK; while :; do sleep 0.1; done"
# The parameters of the papers.
PARAMETERS = {"resnet18": 11689512, "resnet50": 25557032, "vgg11": 132863336, "mobilenetv2": 3504872}
COUNT = """
import sys, torch
sys.path.insert(0, "/opt/kit/bin")
import _torch_models as models
torch.set_default_device("meta")
print(*(models.parameters(models.build(name, 1000)) for name in sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def wheels() -> Path:
    """A folder with PyTorch's CPU wheel, which PyPI does not have. pip's settings on this machine say where it is."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-kit-tests" / "wheels"
    if not list(cache.glob("torch-2.13.0+cpu-*.whl")):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(cache), TORCH]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
            missing(
                f"pip finds no {TORCH} ({reason})",
                f"on a machine that reaches it, pip download --no-deps --python-version 3.11 --dest {cache} "
                f"--index-url https://download.pytorch.org/whl/cpu torch==2.13.0",
            )
    return cache


@pytest.fixture(scope="module")
def torch_image(bases: Any, wheels: Path) -> ImageResult:
    spec = ClusterSpec(image=ImageSpec(flavour="pytorch", wheels=str(wheels), pip=(JAX,)))
    return build_image(spec, reporter=Silent())


@pytest.fixture(scope="module")
def torch_cluster(bases: Any, torch_image: ImageResult, wheels: Path) -> Iterator[Cluster]:
    """Four lab hosts with two slots each, whose own names are 127.0.1.1 on the VM and a real address in the node."""
    name = f"{LAB}-torch"
    with contextlib.ExitStack() as undo:
        folder = Path(tempfile.mkdtemp(prefix=f"kit-{name}-"))
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        undo.enter_context(taken_down(folder, name))
        with template(bases, torch_image.tag, f"{name}-template") as source:
            source.copy_to(bases, name, HOSTS)
        up = kit(folder, "lab", "up", "--name", name, "--hosts", "4", "--slots", "2", "--output", "json")
        assert up.returncode == 0, up.stderr
        hosts = tuple(VM(name=h["name"], address=h["address"], folder=folder) for h in objects(up)[-1]["hosts"])
        image = {"flavour": "pytorch", "wheels": str(wheels), "pip": [JAX]}
        change_settings(folder, image=image, code="code", data=DATA)
        (folder / "code").mkdir()
        (folder / "code" / "train.py").write_text(TRAIN)
        (folder / "code" / "train_jax.py").write_text(jax_of_the_page())
        cluster = Cluster(name=name, folder=folder, hosts=hosts)
        # torchrun needs localhost.
        names = r"127.0.0.1 localhost\n127.0.1.1 %s\n"
        everywhere(hosts, lambda host: host.script(f'printf "{names}" "$(hostname)" >/etc/hosts'))
        deploy = cluster.kit("deploy")
        assert deploy.returncode == 0, deploy.stderr
        ask = 'getent ahostsv4 "$(hostname)"'
        answers = everywhere(hosts, lambda host: cluster.inside(host, "sh", "-c", ask).stdout)
        for host in hosts:
            assert answers[host.name].split()[0] == host.address
        yield cluster


@pytest.fixture
def names_of_the_vm(torch_cluster: Cluster) -> Iterator[None]:
    """Let the nodes have the names of their VMs for one test: 127.0.1.1 is a host's own address then."""
    own = f"/opt/kit/{torch_cluster.name}/node-hosts"
    hosts = torch_cluster.hosts
    # The node has this file as its own, so that it must not be replaced.
    everywhere(hosts, lambda host: host.script(f"cp {own} /tmp/node-hosts && cat /etc/hosts >{own}"))
    yield
    everywhere(hosts, lambda host: host.script(f"cat /tmp/node-hosts >{own}"))


def trained(lines: Sequence[str], master: str) -> None:
    """Check what eight ranks of TRAIN print: each its own place, and all the same weights."""
    rows = sorted((line.split() for line in lines), key=lambda words: int(words[0]))
    assert [row[:6] for row in rows] == [
        [str(rank), str(rank % 2), str(rank // 2), "8", master, f"gpu{rank // 2 + 1}"] for rank in range(8)
    ]
    assert {row[6] for row in rows} == {"127.0.1.1"}
    assert len({row[7] for row in rows}) == 1


@pytest.mark.usefixtures("names_of_the_vm")
def test_ddp_of_8_ranks_on_hosts_named_127_0_1_1(torch_cluster: Cluster) -> None:
    done = torch_cluster.kit("run", "--np", "8", "--", "python", "train.py")
    assert done.returncode == 0, done.stderr
    trained(done.stdout.splitlines(), torch_cluster.head.address)


def jax_of_the_page() -> str:
    """Return the program in docs/pytorch.md that uses JAX."""
    page = PAGE.read_text(encoding="utf-8")
    assert f"image: {{pip: [{JAX}]}}" in page
    (program,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "import jax\n" in block)
    return str(program)


def test_ranks_of_jax_find_each_other(torch_cluster: Cluster) -> None:
    """On CPUs, JAX takes the addresses of the hosts' own names."""
    done = torch_cluster.kit("run", "-H", "gpu[2-3]", "--np", "4", "--", "python", "train_jax.py")
    assert done.returncode == 0, done.stderr
    lines = sorted(line for line in done.stdout.splitlines() if not line.startswith("[Gloo] "))
    assert lines == [f"rank {rank} of 4 on gpu{2 + rank // 2}: 4 devices, sum 10.0" for rank in range(4)]


@pytest.mark.parametrize("launcher", ["torchrun", "mpi"])
def test_the_first_failure_is_a_rank(torch_cluster: Cluster, launcher: str) -> None:
    """And not the ranks that wait for it in an all-reduce of DDP."""
    run = ("run", "--launcher", launcher, "-H", "gpu[2-3]", "-x", "FAIL=3", "--", "python", "train.py")
    done = torch_cluster.kit(*run)
    assert done.returncode == 1, done.stderr
    assert "failed: rank 3 on gpu3 ended with exit code 1" in done.stderr
    assert "│ rank 3 gives up" in done.stderr
    assert torch_cluster.marked() == {}


def test_torchrun_restarts_the_ranks_of_both_hosts(torch_cluster: Cluster) -> None:
    words = ("run", "--launcher", "torchrun", "-H", "gpu[2-3]", "--max-restarts", "1", "-x", "FAIL=3")
    done = torch_cluster.kit(*words, "--", "python", "train.py")
    assert done.returncode == 0, done.stderr
    rows = sorted(line.split() for line in done.stdout.splitlines())
    # Rank 3 gave up before it printed anything, so these are of the second try.
    assert [row[0] for row in rows] == ["0", "1", "2", "3"], done.stderr
    assert len({row[7] for row in rows}) == 1
    # Another rank may have ended first: it noticed.
    assert done.stderr.count(" ended with exit code 1; torchrun has started all ranks again (restart 1)") == 1, (
        done.stderr
    )
    assert torch_cluster.marked() == {}


@pytest.mark.parametrize("how", ["stop", "ctrl-c"])
def test_ranks_of_torchrun_end_in_their_own_time(torch_cluster: Cluster, how: str) -> None:
    """Each once: torchrun would start them again."""
    words = ("run", "--launcher", "torchrun", "-H", "gpu[3-4]", "--max-restarts", "3", "--", "sh", "-c", SAVES)
    with torch_cluster.running(*words) as run:
        torch_cluster.wait_for_ranks(run, {"gpu1": [], "gpu2": [], "gpu3": [0, 1], "gpu4": [2, 3]})
        assert run.stdout is not None
        lines = [run.stdout.readline() for _ in range(4)]
        assert sorted(lines) == [f"up {rank}\n" for rank in range(4)]
        if how == "stop":
            stopped = torch_cluster.kit("stop")
            assert stopped.returncode == 0, stopped.stderr
        else:
            run.send_signal(signal.SIGINT)
        assert run.wait(120) == (143 if how == "stop" else 130)
        assert sorted(run.stdout.read().splitlines()) == [f"saved {rank}" for rank in range(4)]
    assert torch_cluster.marked() == {}


def test_what_conflicts_with_torchrun_is_refused_before_anything_starts(torch_cluster: Cluster) -> None:
    done = torch_cluster.kit("run", "--launcher", "torchrun", "--servers", "2", "--", "python", "train.py")
    assert done.returncode == 2
    assert "--servers 2 has no effect" in done.stderr


def test_torch_benchmark_reports_as_the_others(torch_cluster: Cluster) -> None:
    small = ["--model", "mobilenet_v2", "--image-size", "32", "--batch-size", "4", "--num-warmup", "1"]
    small += ["--num-iters", "2", "--num-batches-per-iter", "1", "--compression", "fp16", "--json"]
    done = torch_cluster.kit("run", "--np", "2", "--npernode", "1", "--code", "none", "--", "torch_benchmark", *small)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["workload"], result["simulated"], result["framework"]) == ("training", False, "PyTorch")
    assert (result["ranks"], result["device"]) == (2, "CPU rank")
    assert result["img_sec_total"] == pytest.approx(2 * result["img_sec_per_rank"])
    assert result["gradient_bytes"] == 4 * PARAMETERS["mobilenetv2"] == 2 * result["bytes_per_step"]
    assert result["options"] == {"backend": "gloo", "compression": "fp16"}
    assert "total images/sec on 2 ranks:" in done.stderr


def test_kit_bench_trains_with_pytorch(torch_cluster: Cluster, tmp_path: Path) -> None:
    tiny = ["--image-size", "32", "--batch-size", "2", "--num-warmup", "1", "--num-iters", "2"]
    tiny += ["--num-batches-per-iter", "1", "--ranks", "2", "--repeats", "1"]
    done = torch_cluster.kit("bench", "--preset", "egs", "--dir", str(tmp_path / "s"), "--output", "json", *tiny)
    assert done.returncode == 0, done.stdout + done.stderr
    (case,) = objects(done)[-1]["summary"]["cases"]
    assert (case["id"], case["state"], case["workload"]) == ("egs/torch-resnet18/2", "measured", "training")
    samples = [json.loads(line) for line in (tmp_path / "s" / "samples.jsonl").read_text().splitlines()]
    # One to warm up.
    assert [(one["warmup"], one["result"]["framework"], one["result"]["ranks"]) for one in samples] == [
        (True, "PyTorch", 2),
        (False, "PyTorch", 2),
    ]


def test_torch_benchmark_reads_epochs_of_shards_that_are_split_over_the_hosts(torch_cluster: Cluster) -> None:
    hosts, files = torch_cluster.hosts[:2], {"gpu1": "2", "gpu2": "1"}

    def make(host: VM) -> str:
        words = ["--kind", "webdataset", "--files", files[host.name], "--images", "12", "--size", "40"]
        done = torch_cluster.inside(host, "data_shards", *words, "/data/made-up")
        assert done.returncode == 0, done.stderr
        return done.stdout

    made = everywhere(hosts, make)
    assert made["gpu1"].startswith("24 JPEGs of 40 pixels in 2 webdataset files in /data/made-up: ")
    small = ["--model", "mobilenet_v2", "--image-size", "32", "--batch-size", "4", "--data", "made-up"]
    small += ["--num-warmup", "1", "--num-iters", "1", "--num-batches-per-iter", "1", "--json", "--epochs", "2"]
    words = ["--np", "2", "--npernode", "1", "--code", "none"]
    done = torch_cluster.kit("run", *words, "--", "torch_benchmark", *small)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    # The second host has half as many images, and its rank takes them twice.
    assert (result["epoch_steps"], result["epoch_images"], len(result["iters"])) == (6, 48, 2)
    assert result["options"] == {"backend": "gloo", "data": ["made-up"], "epochs": 2}
    assert "Images: 36 in WebDataset shards (3, split over 2 hosts), 12 to 24 a rank, 6 steps an epoch" in done.stderr

    # If the ranks took the hosts' parts for the same files, they would train on other images than they say.
    whole = ["-x", "KIT_DATA_MADE_UP_SPLIT=none"]
    done = torch_cluster.kit("run", *words, *whole, "--", "torch_benchmark", *small)
    assert done.returncode == 2
    assert "--data: the ranks do not see the same files (rank 0: 2 files, " in done.stderr


def test_the_image_has_the_models_of_the_papers_and_no_wheel(torch_cluster: Cluster) -> None:
    done = torch_cluster.inside(torch_cluster.head, "python", "-c", COUNT, *PARAMETERS)
    assert done.returncode == 0, done.stderr
    assert [int(word) for word in done.stdout.split()] == list(PARAMETERS.values())
    left = torch_cluster.inside(torch_cluster.head, "find", "/", "-xdev", "-name", "*.whl", "-size", "+1M")
    assert not re.sub(r"\s", "", left.stdout)
