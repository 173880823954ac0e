"""kitrun.devices: which GPUs and which cores a rank gets, on nodes whose nvidia-smi and /sys are files of the test."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kit.model.pretended import MARK
from tests.fakes import launcher

devices: Any = launcher.load("kitrun.devices")

CAPTURES = Path(__file__).parents[2] / "captures" / "nvidia-smi"
UUIDS = [f"GPU-{n}{n}{n}{n}-aaaa" for n in range(4)]
GPUS = "".join(f"{uuid}, 00000000:{n}A:00.0, {n}, [N/A]\n" for n, uuid in enumerate(UUIDS))
# MIG is on, on the first two of three GPUs. The second has no MIG device yet.
MIG_GPUS = (
    "GPU-aaaa-0, 00000000:0A:00.0, 0, Enabled\n"
    "GPU-aaaa-1, 00000000:1A:00.0, 1, Enabled\n"
    "GPU-aaaa-2, 00000000:2A:00.0, 2, Disabled\n"
)
MIG = (
    "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa-0)\n"
    "  MIG 3g.20gb     Device  0: (UUID: MIG-bbbb-0)\n"
    "  MIG 3g.20gb     Device  1: (UUID: MIG-bbbb-1)\n"
    "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa-1)\n"
    "GPU 2: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa-2)\n"
)
TOPOLOGY = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV12\tSYS\t0-3,8-11\t0\t\tN/A\n"
    "GPU1\tNV12\t X \tPXB\t4-7,12-15\t1\t\tN/A\n"
    "NIC0\tSYS\tPXB\t X \t\t\t\t\n\nLegend:\n\n  X    = Self\n"
)

Node = Callable[..., None]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """Make the node: what nvidia-smi prints for the query, the topology and -L, its GPUs' cores, and its exit code."""
    control, sys = tmp_path / "nvidiactl", tmp_path / "sys"
    monkeypatch.setattr(devices, "CONTROL", str(control))
    monkeypatch.setattr(launcher.load("kitrun.cores"), "SYS", str(sys))
    monkeypatch.setattr(devices.os, "listdir", lambda _path: ["null", "nvidia0", "nvidia1", "nvidiactl"])
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda _pid: set(range(16)))

    def make(
        text: str | None, topology: str = "", *, mig: str = "", near: Mapping[str, str] | None = None, code: int = 0
    ) -> None:
        control.touch()
        folder = tmp_path / "bin"
        folder.mkdir()
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}" if text is not None else "/usr/bin:/bin")
        for name, content in (("query", text or ""), ("topo", topology), ("-L", mig)):
            (folder / name).write_text(content)
        smi = folder / "nvidia-smi"
        smi.write_text(
            f"#!/bin/sh\ncase $1 in -L) cat {folder}/-L ;; topo) cat {folder}/topo ;; *) cat {folder}/query ;; esac\n"
            f"exit {code}\n"
        )
        smi.chmod(0o755)
        for cpu in range(16):
            core = sys / f"devices/system/cpu/cpu{cpu}/topology"
            core.mkdir(parents=True)
            (core / "thread_siblings_list").write_text(f"{cpu % 8},{cpu % 8 + 8}\n")
        for address, cpus in (near or {}).items():
            device = sys / f"bus/pci/devices/0000:{address}:00.0"
            device.mkdir(parents=True)
            (device / "local_cpulist").write_text(f"{cpus}\n")
            (device / "numa_node").write_text("-1\n" if cpus == "0-15" else "0\n")

    return make


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """The cores to which the rank was bound."""
    calls: list[set[int]] = []
    monkeypatch.setattr(devices.os, "sched_setaffinity", lambda _pid, cpus: calls.append(set(cpus)))
    return calls


def environment(local: int = 0, size: int = 2, **more: Any) -> dict[str, str]:
    place = {"OMPI_COMM_WORLD_RANK": str(4 + local), "OMPI_COMM_WORLD_LOCAL_RANK": str(local)}
    return {"KIT_NODE": "gpu7", **place, "OMPI_COMM_WORLD_LOCAL_SIZE": str(size), **more}


def visible(environ: dict[str, str]) -> str | None:
    devices.take(environ)
    assert not set(devices.VARIABLES) & set(environ)
    return environ.get("CUDA_VISIBLE_DEVICES")


# GPUs


def test_each_rank_gets_its_own_gpus(node: Node) -> None:
    node(GPUS)
    assert visible(environment(0, KIT_GPUS_PER_RANK="1")) == UUIDS[0]
    assert visible(environment(3, 4, KIT_GPUS_PER_RANK="1")) == UUIDS[3]
    assert visible(environment(1, KIT_GPUS_PER_RANK="2")) == ",".join(UUIDS[2:])


def test_the_gpus_are_those_that_the_run_holds(node: Node) -> None:
    node(GPUS)
    held = "gpu1=0 gpu7=1,3"
    assert visible(environment(1, KIT_GPUS_PER_RANK="1", KIT_HELD_SLOTS=held)) == UUIDS[3]
    # Without a share, all ranks see all of them.
    assert visible(environment(1, KIT_HELD_SLOTS=held)) == f"{UUIDS[1]},{UUIDS[3]}"
    # A run that holds the whole node does not set it.
    assert visible(environment(1, KIT_HELD_SLOTS="gpu1=0")) is None


def test_a_rank_of_torchrun_has_the_local_rank_of_torchrun(node: Node) -> None:
    node(GPUS)
    agent = {"KIT_AGENT": "torchrun", "RANK": "9", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4"}
    # Open MPI numbers the agents.
    assert visible(environment(0, 1, **agent, KIT_GPUS_PER_RANK="1")) == UUIDS[2]


def of_jax(environ: dict[str, str]) -> str | None:
    devices.take(environ)
    return environ.get("JAX_LOCAL_DEVICE_IDS")


def test_jax_takes_the_gpus_that_are_the_ranks_own(node: Node) -> None:
    """It would take the one whose place among the visible ones is the local rank."""
    node(GPUS)
    assert of_jax(environment(1, KIT_GPUS_PER_RANK="1")) == "0"
    assert of_jax(environment(1, KIT_GPUS_PER_RANK="2")) == "0,1"
    assert of_jax(environment(1, KIT_GPUS_PER_RANK="2", JAX_LOCAL_DEVICE_IDS="1")) == "1"
    # These ranks see all GPUs of the run, so the local rank is right.
    assert of_jax(environment(1, KIT_HELD_SLOTS="gpu7=1,3")) is None
    assert of_jax(environment(1, KIT_REPORT_BINDINGS="1")) is None


def test_jax_takes_the_only_mig_device_that_a_rank_sees(node: Node) -> None:
    node(MIG_GPUS, mig=MIG)
    assert of_jax(environment(1, KIT_HELD_SLOTS="gpu7=0,1")) == "0"


def test_a_user_chooses(node: Node, bound: list[set[int]]) -> None:
    node(GPUS, near={"0a": "0-3"})
    environ = environment(
        1, CUDA_VISIBLE_DEVICES="0", KIT_GPUS_PER_RANK="1", KIT_HELD_SLOTS="gpu7=1", KIT_BIND_NEAR="1"
    )
    assert visible(environ) == "0"
    assert bound == []


def test_mig_devices_go_by_their_uuid(node: Node) -> None:
    node(MIG_GPUS, mig=MIG)
    ranks = [visible(environment(local, 3, KIT_GPUS_PER_RANK="1")) for local in range(3)]
    assert ranks == ["MIG-bbbb-0", "MIG-bbbb-1", "GPU-aaaa-2"]
    # CUDA would show each of them the first device only.
    held: Any = {"KIT_HELD_SLOTS": "gpu7=0,1"}
    assert [visible(environment(local, **held)) for local in range(2)] == ["MIG-bbbb-0", "MIG-bbbb-1"]
    with pytest.raises(devices.NoDevicesError, match="one MIG device in a process"):
        devices.take(environment(0, KIT_GPUS_PER_RANK="2"))


def test_without_nvidia_smi_gpus_have_numbers(node: Node) -> None:
    node(None)
    environ = environment(1, KIT_GPUS_PER_RANK="1")
    assert visible(environ) == "1"
    assert environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert visible(environment(0, KIT_HELD_SLOTS="gpu7=5")) == "5"


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"KIT_GPUS_PER_RANK": "3"}, "2 ranks on this node get 3 each for themselves, but it sees 4 GPUs"),
        ({"KIT_HELD_SLOTS": "gpu7=2,4", "KIT_GPUS_PER_RANK": "1"}, "holds GPU 4 of this node, which sees 4"),
    ],
)
def test_too_few_gpus(node: Node, variables: dict[str, Any], text: str) -> None:
    node(GPUS)
    with pytest.raises(devices.NoDevicesError, match=text):
        devices.take(environment(1, **variables))


def test_drivers_that_do_not_know_mig(node: Node, tmp_path: Path) -> None:
    node(GPUS.replace(", [N/A]", ""))
    smi = tmp_path / "bin" / "nvidia-smi"
    refusal = 'Field "mig.mode.current" is not a valid field to query.'
    smi.write_text(
        smi.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\ncase $1 in *mig*) echo '{refusal}'; exit 2 ;; esac\n")
    )
    assert visible(environment(1, KIT_GPUS_PER_RANK="1")) == UUIDS[1]


def test_an_nvidia_smi_that_fails_fails_only_ranks_that_need_it(node: Node) -> None:
    node("Failed to initialize NVML: Unknown Error\n", code=255)
    with pytest.raises(devices.NoDevicesError, match="nvidia-smi fails: Failed to initialize NVML: Unknown Error"):
        devices.take(environment(0, KIT_GPUS_PER_RANK="1"))
    assert visible(environment(0, KIT_HELD_SLOTS="gpu7=1")) == "1"


def test_an_nvidia_smi_that_fails_after_its_answer_has_listed_the_gpus(node: Node) -> None:
    """It ends with 14 for a corrupted infoROM, with 15 for a lost GPU. The GPUs that it lists work."""
    node(f"{GPUS}WARNING: infoROM is corrupted at gpu 0000:1A:00.0\n", code=14)
    assert visible(environment(1, KIT_GPUS_PER_RANK="1")) == UUIDS[1]
    assert visible(environment(1, KIT_HELD_SLOTS="gpu7=1,3")) == f"{UUIDS[1]},{UUIDS[3]}"


@pytest.mark.parametrize("share", [{}, {"KIT_GPUS_PER_RANK": "1"}])
def test_a_lost_gpu_gives_no_run_the_gpu_of_another(node: Node, share: dict[str, Any]) -> None:
    """Without the row of GPU 0, the second row is that of GPU 2, and a run holds GPU 1."""
    rows = GPUS.partition("\n")[2]
    node(f"{rows}Unable to determine the device handle for GPU 0000:0A:00.0: GPU is lost\n", code=15)
    assert visible(environment(0, KIT_HELD_SLOTS="gpu7=1", **share)) == UUIDS[1]
    assert visible(environment(0, KIT_HELD_SLOTS="gpu7=3", **share)) == UUIDS[3]
    with pytest.raises(devices.NoDevicesError, match="the run holds GPU 0 of this node, which sees 3"):
        devices.take(environment(0, KIT_HELD_SLOTS="gpu7=0", **share))


def test_a_run_that_holds_the_whole_node_goes_on_without_a_lost_gpu(node: Node) -> None:
    rows = GPUS.splitlines(keepends=True)
    node(f"{rows[0]}{rows[2]}{rows[3]}Unable to determine the device handle for GPU 0000:1A:00.0\n", code=15)
    assert visible(environment(1, KIT_GPUS_PER_RANK="1")) == UUIDS[2]


def test_a_gpu_with_mig_and_no_mig_device_has_no_number(node: Node) -> None:
    node(MIG_GPUS.partition("\n")[2], mig=MIG)
    assert visible(environment(0, KIT_HELD_SLOTS="gpu7=0")) == "GPU-aaaa-2"


def test_a_node_without_gpus() -> None:
    with pytest.raises(devices.NoDevicesError, match="this node sees no GPU, and each rank gets 1 for itself"):
        devices.take(environment(0, KIT_GPUS_PER_RANK="1"))
    assert visible(environment(0, KIT_HELD_SLOTS="gpu7=1")) is None


def test_servers_of_a_parameter_server_get_no_gpu_for_themselves(node: Node) -> None:
    node(GPUS)
    # Ranks 4 and 5 of 4 workers, their servers and a scheduler.
    assert visible(environment(0, KIT_GPUS_PER_RANK="1", DMLC_NUM_WORKER="4")) is None
    assert visible(environment(0, KIT_GPUS_PER_RANK="1", DMLC_NUM_WORKER="5")) == UUIDS[0]


# Cores

NEAR = {"0a": "0-3,8-11", "1a": "0-3,8-11", "2a": "4-7,12-15", "3a": "4-7,12-15"}


@pytest.mark.parametrize(
    ("local", "cpus"),
    [(0, {0, 1, 8, 9}), (1, {2, 3, 10, 11}), (2, {4, 5, 12, 13}), (3, {6, 7, 14, 15})],
)
def test_ranks_share_the_whole_cores_near_their_gpus(
    node: Node, bound: list[set[int]], local: int, cpus: set[int]
) -> None:
    node(GPUS, near=NEAR)
    devices.take(environment(local, 4, KIT_GPUS_PER_RANK="1", KIT_BIND_NEAR="1"))
    assert bound == [cpus]


def test_only_ranks_of_the_run_share_cores(node: Node, bound: list[set[int]]) -> None:
    node(GPUS, near=NEAR)
    devices.take(environment(0, 1, KIT_GPUS_PER_RANK="1", KIT_HELD_SLOTS="gpu7=2", KIT_BIND_NEAR="1"))
    # With GPUs on both sides, a rank gets both sides, which is the whole node.
    devices.take(environment(0, 1, KIT_GPUS_PER_RANK="4", KIT_BIND_NEAR="1"))
    assert bound == [{4, 5, 6, 7, 12, 13, 14, 15}]


def test_the_composed_topology_of_a_large_host() -> None:
    text = (CAPTURES / "h200x2-570" / "topology.txt").read_text()
    assert devices.topology(text)["GPU1"] == {*range(48, 96), *range(144, 192)}


def test_more_ranks_than_cores_share_all_of_them() -> None:
    assert devices.part(frozenset({3}), 1, 2) == {3}


def test_nvidia_smi_says_what_the_bus_does_not_know(node: Node, bound: list[set[int]]) -> None:
    # Without NUMA information, local_cpulist has all CPUs.
    node(GPUS, TOPOLOGY, near={"0a": "0-15", "1a": "0-15"})
    devices.take(environment(1, 2, KIT_GPUS_PER_RANK="1", KIT_HELD_SLOTS="gpu7=0,1", KIT_BIND_NEAR="1"))
    assert bound == [{4, 5, 6, 7, 12, 13, 14, 15}]


@pytest.mark.parametrize("near", [{}, {"0a": "0-15", "1a": "0-15"}])
def test_unknown_cores_bind_nothing(node: Node, bound: list[set[int]], near: dict[str, str]) -> None:
    node(GPUS, near=near)
    line = devices.take(environment(0, KIT_GPUS_PER_RANK="1", KIT_BIND_NEAR="1", KIT_REPORT_BINDINGS="1"))
    assert bound == []
    assert line == f"rank 4 on gpu7: GPU {UUIDS[0]}; cores 0-15 (not bound: the cores near its GPU are not known)\n"


def test_a_rank_is_bound_only_if_the_run_says_so(node: Node, bound: list[set[int]]) -> None:
    node(GPUS, near=NEAR)
    devices.take(environment(0, KIT_GPUS_PER_RANK="1"))
    devices.take(environment(0, KIT_HELD_SLOTS="gpu7=1", KIT_BIND_NEAR="1"))
    assert bound == []


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-2,5", {0, 1, 2, 5}), ("7\n", {7}), ("", set()), ("N/A", set()), ("1-", set()), ("x,1", set())],
)
def test_lists_of_cpus(text: str, cpus: set[int]) -> None:
    assert devices.cpu_list(text) == cpus


# Reports


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({"KIT_GPUS_PER_RANK": "2"}, f"GPUs {UUIDS[0]}, {UUIDS[1]}"),
        ({}, "all GPUs of the node"),
        ({"CUDA_VISIBLE_DEVICES": "3"}, "GPUs as CUDA_VISIBLE_DEVICES says: 3"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "GPUs as CUDA_VISIBLE_DEVICES says: none"),
    ],
)
def test_a_report(node: Node, variables: dict[str, Any], gpus: str) -> None:
    node(GPUS)
    line = devices.take(environment(0, KIT_REPORT_BINDINGS="1", **variables))
    assert line == f"rank 4 on gpu7: {gpus}; cores 0-15\n"


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({"KIT_GPUS_PER_RANK": "1"}, f"GPU {UUIDS[0]} (PRETENDED)"),
        ({}, "all GPUs of the node (PRETENDED)"),
        ({"CUDA_VISIBLE_DEVICES": "3"}, "GPUs as CUDA_VISIBLE_DEVICES says: 3 (PRETENDED)"),
    ],
)
def test_a_report_about_pretended_gpus_says_so(node: Node, variables: dict[str, Any], gpus: str) -> None:
    node(GPUS, mig=f"GPU 0: NVIDIA H200 {MARK} (UUID: {UUIDS[0]})\n")
    line = devices.take(environment(0, KIT_REPORT_BINDINGS="1", **variables))
    assert line == f"rank 4 on gpu7: {gpus}; cores 0-15\n"
    # Without --report-bindings, there is no line.
    assert devices.take(environment(0, **variables)) == ""


def test_the_mark_of_pretended_gpus_is_that_of_the_lab() -> None:
    lab = (Path(__file__).parents[3] / "images" / "lab" / "pretended" / "models.py").read_text()
    assert f'MARK = "{MARK}"' in lab
    assert devices.PRETENDED == MARK
