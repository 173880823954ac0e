"""Tests which programs on the GPUs of a run's hosts stop the run, and how they are named."""

from __future__ import annotations

import pytest

from kit.model.nvidia.listing import listed
from kit.model.observed import GpuProcess
from kit.plan.run import busy
from kit.remote.run.busy import numbers

NUMBERS = {"GPU-a": (0,), "GPU-b": (1, 2), "MIG-1": (1,), "MIG-2": (2,)}


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
    assert [row.gpus for row in busy.busy_gpus("gpu1", (process(gpu),), NUMBERS, held)] == expected


def test_the_numbers_are_those_of_leases() -> None:
    text = (
        "GPU 0: A (UUID: GPU-a)\nGPU 1: A (UUID: GPU-b)\n"
        "  MIG 3g.20gb     Device  0: (UUID: MIG-1)\n  MIG 3g.20gb     Device  1: (UUID: MIG-2)\n"
    )
    assert numbers(listed(text)) == NUMBERS


def test_a_refusal_names_the_programs() -> None:
    rows = [
        *busy.busy_gpus("gpu1", (process(size=5120),), NUMBERS, (0,)),
        *busy.busy_gpus("gpu2", (process("GPU-b", command=""), process("GPU-c"), process()), NUMBERS, (0, 1)),
    ]
    error = busy.refusal(rows)
    assert error.message == (
        "programs that kit did not start use GPUs of this run: gpu1: GPU 0: python (PID 42 of alice, 5120 MiB); "
        "gpu2: GPUs 1, 2: a program (PID 42 of alice); gpu2: GPU-c: python (PID 42 of alice); and 1 more"
    )
    assert error.hint == "end them, leave out gpu[1-2] with -H, or run beside them: --ignore-busy-gpus"
