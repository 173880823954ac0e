"""Tests which programs on the GPUs of a run's hosts stop the run, and how they are named."""

from __future__ import annotations

import pytest

from kit.model.launch import Node
from kit.model.nvidia.listing import listed, numbers
from kit.model.observed import GpuProcess
from kit.model.run import Place
from kit.plan.run import busy

GPUS = listed(
    "GPU 0: A (UUID: GPU-a)\nGPU 1: A (UUID: GPU-b)\n"
    "  MIG 3g.20gb     Device  0: (UUID: MIG-1)\n  MIG 3g.20gb     Device  1: (UUID: MIG-2)\n"
)


def process(gpu: str = "GPU-a", pid: int = 42, cluster: str = "", size: int = 0, command: str = "python") -> GpuProcess:
    return GpuProcess(gpu=gpu, pid=pid, user="alice", command=command, cluster=cluster, memory_mib=size)


def test_processes_of_the_cluster_have_leases() -> None:
    mine, other, none = process(cluster="lab"), process(cluster="lab2"), process()
    assert busy.strangers((mine, other, none), "lab") == (other, none)


@pytest.mark.parametrize(
    ("gpu", "held", "expected"),
    [
        ("GPU-a", (0,), [(0,)]),
        ("GPU-a", (1, 2), []),
        ("MIG-2", (2,), [(2,)]),
        # MIG devices may be reported as their GPU.
        ("GPU-b", (2,), [(1, 2)]),
        ("GPU-unknown", (0,), [()]),
    ],
)
def test_only_gpus_of_the_run_count(gpu: str, held: tuple[int, ...], expected: list[tuple[int, ...]]) -> None:
    assert [row.gpus for row in busy.busy_gpus("gpu1", (process(gpu),), GPUS, held)] == expected


def test_the_numbers_are_those_of_leases() -> None:
    assert numbers(GPUS) == {"GPU-a": (0,), "GPU-b": (1, 2), "MIG-1": (1,), "MIG-2": (2,)}


def test_a_refusal_names_the_programs() -> None:
    rows = [
        *busy.busy_gpus("gpu1", (process(size=5120),), GPUS, (0,)),
        *busy.busy_gpus("gpu2", (process("GPU-b", command=""), process("GPU-c"), process()), GPUS, (0, 1)),
    ]
    error = busy.refusal(rows)
    assert error.message == (
        "programs that kit did not start use GPUs of this run: gpu1: GPU 0: python (PID 42 of alice, 5120 MiB); "
        "gpu2: GPUs 1, 2: a program (PID 42 of alice); gpu2: GPU-c: python (PID 42 of alice); and 1 more"
    )
    assert error.hint == "end them, leave out gpu[1-2] with -H, or run beside them: --ignore-busy-gpus"


def test_a_busy_gpu_holds_the_slots_that_mean_it() -> None:
    nodes = [Node(name=f"gpu{n}", address=f"10.0.0.{n}", slots=2, gpus=3) for n in range(1, 6)]
    used = {"gpu1": [process("GPU-a")], "gpu2": [process("MIG-2")], "gpu3": [process("GPU-x")], "gpu4": []}
    used["gpu5"] = [process("GPU-a")]
    holder = busy.holding(nodes, used, dict.fromkeys(used, GPUS), lost={"gpu5"})
    assert [place.node for place in holder.places] == ["gpu1", "gpu2", "gpu3", "gpu5"]
    # Slot 0 means GPU 0, slot 1 means GPUs 1 and 2.
    assert {place.node: place.slots for place in holder.places} == {
        "gpu1": (0,), "gpu2": (1,), "gpu3": (0, 1), "gpu5": (0, 1),
    }  # fmt: skip
    assert busy.overlaps(holder, [Place(node="gpu2", address="", ranks=1, slots=(0, 1))])
    assert not busy.overlaps(holder, [Place(node="gpu2", address="", ranks=1, slots=(0,))])


def test_a_run_around_busy_gpus_says_which_it_has() -> None:
    rows = busy.busy_gpus("gpu1", (process(),), GPUS, (0,))
    before = "programs that kit did not start use GPUs: gpu1: GPU 0: python (PID 42 of alice); the run uses others: "
    assert busy.around(rows, {"gpu2": (0,), "gpu3": (0,), "gpu4": (1, 2)}) == (
        f"{before}gpu[2-3]: GPU 0; gpu4: GPUs 1, 2"
    )
    assert busy.around(rows, {}) == f"{before}hosts without GPUs"


@pytest.mark.parametrize(
    ("seen", "fault", "deployed", "chosen", "expected"),
    [
        ({"GPU-a", "GPU-b", "MIG-1", "MIG-2"}, "", 3, False, ""),
        ({"GPU-b", "MIG-1", "MIG-2"}, "", 3, False, "the node sees 2 of the host's 3 GPUs: GPU-a is missing"),
        # The MIG devices are newer than the node.
        ({"GPU-a", "GPU-b"}, "", 3, False, "the node sees 1 of the host's 3 GPUs: MIG-1, MIG-2 are missing"),
        ({"GPU-b"}, "", 3, True, ""),
        (set(), "Unknown Error", 3, False, "the node sees no GPU: Unknown Error"),
        # What nvidia-smi prints beside some GPUs is no loss of all.
        ({"GPU-b", "MIG-1", "MIG-2"}, "Unknown Error", 3, False, "the node sees 2 of the host's 3 GPUs: Unknown Error"),
        (None, "", 3, False, ""),
        ({"GPU-a", "GPU-b"}, "", 4, True, "the host has 3 of the 4 GPUs that it had at the deploy"),
    ],
)
def test_what_a_host_has_lost(seen: set[str] | None, fault: str, deployed: int, chosen: bool, expected: str) -> None:
    assert busy.loss(GPUS, seen, fault, deployed=deployed, chosen=chosen) == expected


def test_a_list_that_failed_is_no_loss() -> None:
    assert busy.loss((), None, "", deployed=2, chosen=False) == ""
    assert busy.loss((), {"GPU-a"}, "", deployed=2, chosen=False) == ""
    assert busy.loss((), set(), "Unknown Error", deployed=2, chosen=False) == "the node sees no GPU: Unknown Error"


def test_hosts_with_the_same_loss_share_a_sentence() -> None:
    error = busy.lost({"gpu1": "the node sees no GPU: x", "gpu2": "the node sees no GPU: x", "gpu3": "y"})
    assert error.message == "gpu[1-2]: the node sees no GPU: x; gpu3: y"
    assert "kit deploy" in str(error.hint)


def test_each_message_about_pretended_gpus_says_so_once() -> None:
    lab = listed("GPU 0: NVIDIA H200 (PRETENDED) (UUID: GPU-a)\nGPU 1: NVIDIA H200 (PRETENDED) (UUID: GPU-b)\n")
    (row,) = busy.busy_gpus("gpu1", (process("GPU-b", size=1024),), lab, (1,))
    assert str(row) == "gpu1: GPU 1 (PRETENDED): python (PID 42 of alice, 1024 MiB)"
    assert busy.refusal([row]).message.count("PRETENDED") == 1
    assert busy.around([row], {"gpu1": (0,)}).count("PRETENDED") == 1
    for seen, fault, deployed in (({"GPU-a"}, "", 2), (set(), "Unknown Error", 2), (None, "", 3)):
        assert busy.loss(lab, seen, fault, deployed=deployed, chosen=False).endswith(" (PRETENDED)")
    assert busy.loss(lab, {"GPU-a", "GPU-b"}, "", deployed=2, chosen=False) == ""
