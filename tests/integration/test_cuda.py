"""The CUDA flavours without a GPU: built, looked at, and run on CPUs. Only `scripts/test --cuda` runs these tests.

Each flavour takes minutes to build. Nothing here meets a GPU or a driver. MXNet cannot be imported without a driver's
library, so its nodes mount one that knows no device, where NVIDIA's toolkit mounts the real one.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kit.events import Silent
from kit.flows.image.build import ImageResult, build_image
from kit.model.spec import ClusterSpec, Flavour, ImageSpec
from kit.plan.image import CUDA
from tests.integration.conftest import LAB, missing
from tests.integration.image_layers import leaks
from tests.integration.preload import template
from tests.integration.rig import ROOT, VM, Cluster, change_settings, everywhere, kit, objects, taken_down

pytestmark = [pytest.mark.cuda, pytest.mark.timeout(3600)]

HOSTS = ("gpu1", "gpu2")
DRIVER = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a flavour must have. `nccl` is the number that Horovod or PyTorch reports for NCCL's version."""

    size_limit: int
    versions: dict[str, str]
    nccl: str
    libraries: tuple[str, ...]


CASES: dict[Flavour, Case] = {
    "cuda-tensorflow": Case(
        size_limit=4_500_000_000,
        versions={"tensorflow": "2.15.1", "horovod": "0.28.1", "numpy": "1.23.5"},
        nccl="21605",
        libraries=(
            "libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcudnn.so.8", "libcudnn_cnn_train.so.8",
            "libcudnn_adv_train.so.8", "libcufft.so.11", "libcurand.so.10", "libcusolver.so.11", "libcusparse.so.12",
            "libnccl.so.2", "libnvrtc.so.12", "libnvrtc.so", "libnvJitLink.so.12", "libcupti.so.12",
        ),
    ),
    "cuda-mxnet": Case(
        size_limit=4_000_000_000,
        versions={"mxnet-cu112": "1.9.1", "horovod": "0.28.1", "numpy": "1.23.5"},
        nccl="22105",
        libraries=(
            "libcudart.so.11.0", "libcublas.so.11", "libcublasLt.so.11", "libcudnn.so.8", "libcudnn_cnn_train.so.8",
            "libcudnn_adv_train.so.8", "libcufft.so.10", "libcurand.so.10", "libcusolver.so.11", "libnccl.so.2",
            "libnvrtc.so.11.2", "libnvrtc.so", "libnvToolsExt.so.1",
        ),
    ),
    "cuda-pytorch": Case(
        size_limit=5_100_000_000,
        versions={"torch": "2.13.0", "numpy": "2.4.6"},
        nccl="(2, 29, 7)",
        libraries=(
            "libcudart.so.13", "libcublas.so.13", "libcudnn.so.9", "libcufft.so.12", "libcurand.so.10",
            "libcusolver.so.12", "libcusparse.so.12", "libnccl.so.2", "libnvrtc.so.13", "libnvrtc.so",
            "libnvJitLink.so.13",
        ),
    ),
}  # fmt: skip

# In an SSH session: no variable helps the linker.
LOAD = """
import ctypes, os, sys
assert "LD_LIBRARY_PATH" not in os.environ
for name in sys.argv[1:]:
    ctypes.CDLL(name)
print(len(sys.argv) - 1, "libraries")
"""
# What Horovod was built with, as a rank sees it.
HOROVOD = """
import {module} as hvd
hvd.init()
print(hvd.rank(), hvd.nccl_built(), hvd.cuda_built(), hvd.mpi_built(), hvd.gloo_built(), hvd.size())
"""
TORCH = """
import torch
import torch.distributed as dist
assert not torch.cuda.is_available()
dist.init_process_group("gloo")
values = torch.full((4,), float(dist.get_rank() + 1))
dist.all_reduce(values)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
model(values).sum().backward()
print(dist.get_rank(), values.tolist(), dist.is_nccl_available(), torch.cuda.nccl.version(), torch.version.cuda)
dist.destroy_process_group()
"""
MODULES = {"cuda-tensorflow": "horovod.tensorflow", "cuda-mxnet": "horovod.mxnet"}


@pytest.fixture(scope="module", params=CASES)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    name: Flavour = request.param
    return name


@pytest.fixture(scope="module")
def case(flavour: Flavour) -> Case:
    return CASES[flavour]


@pytest.fixture(scope="module")
def built(bases: Any, flavour: Flavour) -> ImageResult:
    return build_image(ClusterSpec(image=ImageSpec(flavour=flavour)), reporter=Silent())


@pytest.fixture(scope="module")
def no_driver(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A libcuda.so.1 that knows no device: that of the image's build."""
    compiler = shutil.which("cc")
    if compiler is None:
        missing("there is no C compiler here", "apt-get install gcc")
    library = tmp_path_factory.mktemp("no-driver") / "libcuda.so.1"
    source = ROOT / "images/cuda/no-driver.c"
    words = [compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library), str(source)]
    subprocess.run(words, check=True)
    return library.read_bytes()


@pytest.fixture(scope="module")
def cuda_cluster(bases: Any, built: ImageResult, flavour: Flavour, no_driver: bytes) -> Iterator[Cluster]:
    """Two lab hosts with two slots each."""
    name = f"{LAB}-{flavour}"
    with contextlib.ExitStack() as undo:
        folder = Path(tempfile.mkdtemp(prefix=f"kit-{name}-"))
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        undo.enter_context(taken_down(folder, name))
        with template(bases, built.tag, f"{name}-template") as source:
            source.copy_to(bases, name, HOSTS)
        up = kit(folder, "lab", "up", "--name", name, "--hosts", str(len(HOSTS)), "--slots", "2", "--output", "json")
        assert up.returncode == 0, up.stderr
        hosts = tuple(VM(name=h["name"], address=h["address"], folder=folder) for h in objects(up)[-1]["hosts"])
        mounts = []
        if flavour == "cuda-mxnet":
            text = base64.b64encode(no_driver).decode()
            everywhere(hosts, lambda host: host.text("sh", "-c", "base64 -d >/srv/libcuda.so.1", stdin=text))
            mounts = [f"/srv/libcuda.so.1:{DRIVER}:ro"]
        change_settings(folder, image={"flavour": flavour}, volumes=mounts)
        cluster = Cluster(name=name, folder=folder, hosts=hosts)
        deploy = cluster.kit("deploy")
        assert deploy.returncode == 0, deploy.stderr
        yield cluster


def test_the_image_is_within_its_size(built: ImageResult, case: Case) -> None:
    assert built.size_bytes <= case.size_limit


def test_no_layer_has_a_key_a_certificate_or_a_driver(client: Any, built: ImageResult, tmp_path: Path) -> None:
    names, leaked = leaks(client, built.tag, tmp_path)
    assert names > 10_000
    assert leaked == []
    # A driver's library in the image would hide that of the host.
    argv = ["find", "/", "-xdev", "(", "-name", "libcuda.so*", "-o", "-name", "libnvidia-ml.so*", ")"]
    assert client.containers.run(built.tag, argv, remove=True, network_mode="none") == b""


def test_the_versions_are_those_of_the_locks(client: Any, built: ImageResult, case: Case, flavour: Flavour) -> None:
    program = f"from importlib.metadata import version; print(*map(version, {sorted(case.versions)}))"
    output = client.containers.run(built.tag, ["python3", "-c", program], remove=True, network_mode="none")
    assert output.decode().split() == [version for _, version in sorted(case.versions.items())]
    argv = ["sh", "-c", "ls -d /opt/venv/lib/python3.11/site-packages/nvidia_cuda_runtime*.dist-info"]
    (runtime,) = re.findall(rb"-([0-9]+\.[0-9]+)\.", client.containers.run(built.tag, argv, remove=True))
    assert runtime.decode() == CUDA[flavour].cuda


def test_an_ssh_session_finds_every_library_of_cuda(cuda_cluster: Cluster, case: Case) -> None:
    """From the head to the other node, as mpirun does it."""
    words = ["ssh", cuda_cluster.hosts[1].address, "python3", "-", *case.libraries]
    done = cuda_cluster.inside(cuda_cluster.head, *words, stdin=LOAD)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{len(case.libraries)} libraries\n"


def test_ranks_sum_on_cpus_and_have_nccl(cuda_cluster: Cluster, case: Case, flavour: Flavour) -> None:
    def ranks(*command: str) -> str:
        done = cuda_cluster.kit("run", "--np", "4", "--", *command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    if flavour == "cuda-pytorch":
        values = [10.0] * 4
        wanted = [f"{rank} {values} True {case.nccl} {CUDA[flavour].cuda}" for rank in range(4)]
        assert sorted(ranks("python3", "-c", TORCH).splitlines()) == wanted
        return
    module = MODULES[flavour]
    lines = ranks("python3", "-c", HOROVOD.format(module=module)).splitlines()
    assert sorted(lines) == [f"{rank} {case.nccl} True True True 4" for rank in range(4)]
    result = json.loads(ranks("hvd_check", "--framework", module.partition(".")[2], "--json"))
    assert (result["sum"], result["average"], result["ranks"], result["right"]) == (10, 2.5, 4, True)
    assert [rank["rank"] for rank in result["placement"]] == [0, 1, 2, 3]
    assert len({rank["host"] for rank in result["placement"]}) == len(HOSTS)
