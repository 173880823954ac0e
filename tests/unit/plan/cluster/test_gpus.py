"""How a node gets its host's GPUs: what the engine can really do decides."""

from __future__ import annotations

from typing import Any

import pytest

from kit.errors import StepError
from kit.model.host import Host
from kit.model.observed import Container, GpuEngine, GpuProcess
from kit.model.spec import ClusterSpec
from kit.model.values import replace
from kit.plan.cluster.gpus import compose_driver, file_driver, lost, notes, swarm_driver, too_few, unsplit, verify_gpus
from tests.fakes.facts import GPU_ENGINE, facts, gpus

BASE = replace(GPU_ENGINE, hook="")
CDI = GpuEngine(cdi_enabled=True, cdi=("0", "1", "all"))
NODE = Container(
    name="kit-lab-mpinode", service="mpinode", cluster="lab", image="kit:1", spec="1", running=True, status="Up"
)


def host(engine: GpuEngine, **more: Any) -> Any:
    return facts(1, **{"gpus": gpus(2), "driver": "535.104.05", "gpu_engine": engine, **more})


def test_a_host_without_gpus_gets_none() -> None:
    assert (compose_driver(facts(1, gpu_engine=CDI)), swarm_driver(facts(1))) == ("", "")


@pytest.mark.parametrize(
    ("engine", "driver"),
    [
        # The toolkit is not configured in daemon.json. The engine needs no runtime for this.
        (replace(GPU_ENGINE, runtimes={"runc": "runc"}), "nvidia"),
        (GpuEngine(hook="/usr/local/bin/nvidia-container-runtime-hook"), "nvidia"),
        # CDI survives a daemon-reload.
        (replace(GPU_ENGINE, cdi_enabled=True, cdi=("0", "1", "all")), "cdi"),
        (CDI, "cdi"),
        (replace(CDI, cdi=("GPU-0", "GPU-1", "all")), "cdi"),
        (replace(CDI, cdi=("all",)), "cdi"),
        (replace(CDI, cdi_driver="535.104.05"), "cdi"),
        # Without a snap's limits, CDI works there, too.
        (replace(CDI, snap=True), "cdi"),
        # The CDI file is not of this host: written before the second GPU, or before a new driver; or CDI is off.
        (replace(GPU_ENGINE, cdi_enabled=True, cdi=("0", "all")), "nvidia"),
        (replace(GPU_ENGINE, cdi_enabled=True, cdi=("0", "1")), "nvidia"),
        (replace(GPU_ENGINE, cdi_enabled=True, cdi=("0", "1", "all"), cdi_driver="470.57.02"), "nvidia"),
        (replace(GPU_ENGINE, cdi=("0", "1", "all")), "nvidia"),
    ],
)
def test_the_driver_of_compose(engine: GpuEngine, driver: str) -> None:
    assert compose_driver(host(engine)) == driver
    assert file_driver(host(engine)) == driver


@pytest.mark.parametrize(
    ("devices", "more", "fits"),
    [
        (("0:0", "0:1", "1"), {}, True),
        # Files have the UUIDs alone, or beside the numbers.
        (("MIG-a", "MIG-b", "GPU-1"), {}, True),
        (("GPU-0", "0", "0:0", "0:1", "MIG-a", "MIG-b", "GPU-1", "1"), {}, True),
        # nvidia-ctk cdi generate --device-name-strategy=type-index.
        (("mig0:0", "mig0:1", "gpu1"), {}, True),
        (("mig0:0", "gpu1"), {}, False),
        (("mig0:0", "mig0:1", "gpu1", "gpu2"), {}, False),
        # A name that somebody chose.
        (("0:0", "0:1", "1", "mine"), {}, True),
        # The file is older than the MIG devices: than all of them, the second one, or these.
        (("0", "1"), {}, False),
        (("0:0", "1"), {}, False),
        (("0:0", "0:1", "MIG-a", "MIG-c", "1"), {}, False),
        # A restart has removed a MIG device, or a GPU: the file names a device node that is gone.
        (("0:0", "0:1", "0:2", "1"), {}, False),
        (("0:0", "0:1", "1", "1:0"), {}, False),
        (("0:0", "0:1", "1", "2"), {}, False),
        (("MIG-a", "MIG-b", "GPU-1", "GPU-2"), {}, False),
        # The node of a GPU that has just fallen off the bus is still there.
        (("0:0", "0:1", "1", "2"), {"gpu_fault": "Unable to determine the device handle"}, True),
    ],
)
def test_a_cdi_file_fits_the_gpus_and_mig_devices_that_the_host_has(
    devices: tuple[str, ...], more: dict[str, Any], *, fits: bool
) -> None:
    split, other = gpus(2)
    there = (replace(split, mig=("MIG-a", "MIG-b")), other)
    engine = replace(GPU_ENGINE, cdi_enabled=True, cdi=(*devices, "all"))
    assert compose_driver(host(engine, gpus=there, **more)) == ("cdi" if fits else "nvidia")


@pytest.mark.parametrize(
    ("engine", "cause", "hint"),
    [
        (GpuEngine(), "without NVIDIA's toolkit", "kit setup --only toolkit"),
        # A runtime's name alone gives no GPU.
        (GpuEngine(runtimes={"nvidia": "nvidia-container-runtime"}), "without NVIDIA's toolkit", "install"),
        (BASE, "only the package nvidia-container-toolkit-base", "sudo apt-get install nvidia-container-toolkit "),
        (replace(GPU_ENGINE, hook_newer=True), "newer than the running engine", "sudo systemctl restart docker"),
        (GpuEngine(snap=True, hook=""), "is a snap", "Docker's packages"),
        (replace(BASE, snap=True), "is a snap", "Docker's packages"),
        (replace(CDI, cdi=("0", "all")), "CDI devices are 0, all, and not all", "nvidia-ctk cdi generate"),
        (replace(CDI, cdi_driver="470.57.02"), "for the driver 470.57.02, and the host has 535.104.05", "cdi generate"),
        (replace(CDI, cdi=("0", "1", "1:0", "all")), "that the host no longer has: 1:0", "cdi generate"),
        # The engine would still take the file of the later folder.
        (replace(CDI, cdi=("0", "all"), cdi_folder="/run/cdi"), "and not all", "--output=/run/cdi/nvidia.yaml"),
        # A foreign vendor's CDI device is no GPU of NVIDIA: it is not among these.
        (GpuEngine(cdi_enabled=True, cdi=()), "without NVIDIA's toolkit", "install"),
    ],
)
def test_what_prevents_compose(engine: GpuEngine, cause: str, hint: str) -> None:
    problem = compose_driver(host(engine))
    assert isinstance(problem, StepError)
    assert problem.host == "gpu1"
    assert problem.message.startswith("2 × NVIDIA A100-SXM4-40GB, but ")
    assert cause in problem.message
    assert hint in str(problem.hint)
    # The file that kit compose prints is right when the problem is solved.
    assert file_driver(host(engine)) == "nvidia"


def test_an_upgraded_hook_is_no_problem_where_a_node_has_the_gpus() -> None:
    engine = replace(GPU_ENGINE, hook_newer=True)
    assert compose_driver(host(engine, containers=(NODE,))) == "nvidia"
    assert isinstance(compose_driver(host(engine, containers=(replace(NODE, running=False),))), StepError)


@pytest.mark.parametrize(
    ("name", "program", "works"),
    [
        ("nvidia", "/usr/bin/nvidia-container-runtime", True),
        ("gpu", "nvidia-container-runtime.cdi", True),
        # The name alone decides nothing.
        ("nvidia", "/usr/bin/crun", False),
        ("runc", "runc", False),
    ],
)
def test_swarm_needs_the_default_runtime(name: str, program: str, works: bool) -> None:
    engine = replace(GPU_ENGINE, default_runtime=name, runtimes={name: program})
    driver = swarm_driver(host(engine))
    if works:
        assert driver == "runtime"
        return
    assert isinstance(driver, StepError)
    assert f"default runtime is {name}" in driver.message
    assert '"default-runtime": "nvidia"' in str(driver.hint)


@pytest.mark.parametrize(
    ("engine", "cause"),
    [
        (GpuEngine(), "without NVIDIA's toolkit"),
        # Swarm cannot request a CDI device.
        (CDI, "without NVIDIA's toolkit"),
        (replace(GPU_ENGINE, snap=True), "is a snap"),
        (BASE, "default runtime is runc"),
        # The engine starts the default runtime for each container, so it may be newer than the engine's start.
        (replace(GPU_ENGINE, hook_newer=True), "default runtime is runc"),
    ],
)
def test_what_prevents_swarm(engine: GpuEngine, cause: str) -> None:
    problem = swarm_driver(host(engine))
    assert isinstance(problem, StepError)
    assert cause in problem.message


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        ({"GPU-0", "MIG-a", "MIG-b", "GPU-1"}, ""),
        # The node is older than the MIG devices, or than the second one.
        ({"GPU-0", "GPU-1"}, "the node sees 1 of the host's 3 GPUs: MIG-a, MIG-b are missing"),
        ({"GPU-0", "MIG-a", "GPU-1"}, "the node sees 2 of the host's 3 GPUs: MIG-b is missing"),
    ],
)
def test_a_node_that_does_not_see_the_mig_devices_lost_them(seen: set[str], text: str) -> None:
    split, other = gpus(2)
    observed = host(GPU_ENGINE, gpus=(replace(split, mig=("MIG-a", "MIG-b")), other), node_gpus=frozenset(seen))
    assert lost(observed, {}) == text
    step = verify_gpus(ClusterSpec(name="lab"), observed)
    assert step is not None
    assert step.gpus == ("MIG-a", "MIG-b", "GPU-1")
    # It has no device that a node could see.
    bare = replace(observed, gpus=(replace(split, mig=()), other))
    assert lost(bare, {}) == ""
    assert notes(bare, ClusterSpec(name="lab")) == ("MIG is on without a MIG device, so no rank can use GPU 0",)
    assert unsplit(replace(bare, gpus=tuple(replace(gpu, mig=()) for gpu in gpus(2)))).endswith("GPU [0-1]")
    assert unsplit(observed) == ""


def test_each_text_about_pretended_gpus_says_so_once() -> None:
    lab = tuple(replace(gpu, name="NVIDIA H200 (PRETENDED)") for gpu in gpus(2))
    observed = host(
        GpuEngine(),
        gpus=lab,
        host=Host(name="gpu1", address="10.0.0.1", slots=4),
        node_gpus=frozenset({"GPU-0"}),
        gpu_fault="Unable to determine the device handle",
        gpu_processes=(GpuProcess(gpu="GPU-0", pid=42, user="alice", command="jupyter"),),
    )
    step = verify_gpus(ClusterSpec(name="lab"), observed)
    driver = compose_driver(observed)
    assert step is not None
    assert isinstance(driver, StepError)
    texts = [
        lost(observed, {}),
        too_few(observed),
        *notes(observed, ClusterSpec(name="lab")),
        step.line()[1],
        driver.message,
    ]
    assert [text.count("(PRETENDED)") for text in texts] == [1] * 8
    assert texts[2] == "the node sees 1 of the host's 2 GPUs: GPU-1 is missing (PRETENDED); run: kit deploy"


def test_the_gpus_of_a_real_host_have_no_mark() -> None:
    observed = host(GPU_ENGINE, node_gpus=frozenset({"GPU-0"}))
    assert lost(observed, {}) == "the node sees 1 of the host's 2 GPUs: GPU-1 is missing"
