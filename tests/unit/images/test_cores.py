"""kitrun.cores: which CPUs a run and its ranks get, on nodes whose /sys is a folder of the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import launcher

cores: Any = launcher.load("kitrun.cores")

# 8 cores with 2 threads each, on 2 NUMA nodes, as Linux numbers them on most servers.
CORES = [frozenset([core, core + 8]) for core in range(8)]
LEFT, RIGHT = frozenset([0, 1, 2, 3, 8, 9, 10, 11]), frozenset([4, 5, 6, 7, 12, 13, 14, 15])
Machine = Callable[..., list[set[int]]]


def wish(*slots: int, total: int = 4, count: int = 0, exclusive: bool = True) -> Any:
    return cores.Wish(slots, total, exclusive, count)


@pytest.mark.parametrize(
    ("slots", "count", "expected"),
    [
        ("gpu1=0/4 gpu2=1,3/4 exclusive", "", ((1, 3), 4, True, 0)),
        ("gpu1=0/4 gpu2=1,3/4", "6", ((1, 3), 4, False, 6)),
        # The run holds all of this node.
        ("gpu1=0/4 exclusive", "6", ((0,), 1, True, 6)),
        ("", "2", ((0,), 1, False, 2)),
        ("gpu1=0/4 exclusive", "", None),
        ("", "", None),
        ("gpu2=9/4 exclusive", "", None),
        ("gpu2=x/4 gpu2 =/4 exclusive", "abc", None),
    ],
)
def test_what_the_variables_say_about_a_node(slots: str, count: str, expected: Any) -> None:
    assert cores.wish_of(slots, count, "gpu2") == (expected and cores.Wish(*expected))


def test_slots_divide_the_cores_in_the_order_of_numa_nodes() -> None:
    assert [sorted(cores.cpus_of(wish(slot), CORES, ())) for slot in range(4)] == [
        [0, 1, 8, 9], [2, 3, 10, 11], [4, 5, 12, 13], [6, 7, 14, 15],
    ]  # fmt: skip
    assert cores.cpus_of(wish(0, 1), CORES, ()) == LEFT


def test_slots_get_the_cores_near_their_gpus() -> None:
    """The first GPUs may be near the last cores."""
    near = [RIGHT, RIGHT, LEFT, LEFT]
    assert [sorted(cores.cpus_of(wish(slot), CORES, near)) for slot in range(4)] == [
        [4, 5, 12, 13], [6, 7, 14, 15], [0, 1, 8, 9], [2, 3, 10, 11],
    ]  # fmt: skip


def test_cores_that_are_near_no_gpu_go_to_all_slots_after_the_near_ones() -> None:
    assert [cores.cpus_of(wish(slot, total=2), CORES, [LEFT, LEFT]) for slot in (0, 1)] == [
        {0, 1, 8, 9, 4, 5, 12, 13}, {2, 3, 10, 11, 6, 7, 14, 15},
    ]  # fmt: skip
    assert cores.cpus_of(wish(0, total=2, count=4), CORES, [LEFT, LEFT]) == {0, 8, 1, 9}


@pytest.mark.parametrize("near", [[LEFT, RIGHT, LEFT | RIGHT, RIGHT], [LEFT, LEFT], [frozenset()] * 4, []])
def test_sides_that_do_not_divide_the_machine_do_not_count(near: list[frozenset[int]]) -> None:
    assert cores.cpus_of(wish(1), CORES, near) == {2, 3, 10, 11}


def test_more_slots_than_cores_divide_the_threads() -> None:
    chosen = [cores.cpus_of(wish(slot, total=16), CORES, ()) for slot in range(16)]
    assert frozenset().union(*chosen) == LEFT | RIGHT
    assert all(len(cpus) == 1 for cpus in chosen)


@given(
    machine=st.lists(st.integers(1, 4), min_size=1, max_size=24),
    total=st.integers(1, 20),
    sides=st.lists(st.sampled_from(["left", "right", "none"]), max_size=20),
    split=st.floats(0, 1),
)
def test_two_slots_never_share_a_cpu(machine: list[int], total: int, sides: list[str], split: float) -> None:
    numbers = iter(range(200))
    node = [frozenset(next(numbers) for _ in range(threads)) for threads in machine]
    half = int(len(node) * split)
    near = {"left": frozenset().union(*node[:half]), "right": frozenset().union(*node[half:]), "none": frozenset()}
    division = cores.divided(node, total, [near[side] for side in sides])
    dealt = [cpu for slot in division for part in slot for cpu in part]
    assert len(dealt) == len(set(dealt))
    assert set(dealt) <= frozenset().union(*node)
    assert len(division) == total


def test_a_number_of_cpus_begins_with_those_of_the_runs_slots() -> None:
    assert cores.cpus_of(wish(3, count=3, exclusive=False), CORES, ()) == {6, 14, 7}
    assert cores.cpus_of(wish(3, count=6, exclusive=False), CORES, ()) == {6, 14, 7, 15, 0, 8}
    assert cores.cpus_of(wish(3, count=3), CORES, ()) == {6, 14, 7}
    assert cores.cpus_of(wish(0, total=1, count=2, exclusive=False), CORES, ()) == {0, 8}


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (wish(3, count=5), "--cpus 5 is more than the 4 CPUs of the run's slot 3"),
        (wish(1, 3, count=9), "--cpus 9 is more than the 8 CPUs of the run's slots 1,3"),
        (wish(3, count=17, exclusive=False), "--cpus 17 is more than the 16 CPUs of this node"),
        (wish(0, total=99), "the run holds slot 0 of 99 slots, and this node has 16 CPUs"),
    ],
)
def test_a_node_with_too_few_cpus(wanted: Any, words: str) -> None:
    with pytest.raises(cores.TooFewError) as caught:
        cores.cpus_of(wanted, CORES, ())
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("core", [[1, 9], [4, 12], [5, 13], [1, 9]]),
        ("hwthread", [[1], [9], [4], [12]]),
        ("numa", [[1, 9], [1, 9], [4, 5, 12, 13], [4, 5, 12, 13]]),
        ("", [[1, 4, 5, 9, 12, 13]] * 4),
    ],
)
def test_ranks_are_bound_within_the_cpus_of_their_run(how: str, expected: list[list[int]]) -> None:
    cpus = frozenset([1, 9, 4, 12, 5, 13])
    bound = [sorted(cores.own(cpus, how, CORES, [LEFT, RIGHT], (local, 4))) for local in range(4)]
    assert bound == expected


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Make the node: 4 cores with 2 threads each, whose NUMA nodes have every other core. Return the affinities."""

    def make(*, numa: bool = True, allowed: range = range(8)) -> list[set[int]]:
        calls: list[set[int]] = []
        monkeypatch.setattr(cores, "SYS", str(tmp_path))
        monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _pid: set(calls[-1]) & set(allowed))
        monkeypatch.setattr(cores.os, "sched_setaffinity", lambda _pid, cpus: calls.append(set(cpus)))
        for cpu in range(8):
            topology = tmp_path / f"devices/system/cpu/cpu{cpu}/topology"
            topology.mkdir(parents=True)
            (topology / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
            (topology / "physical_package_id").write_text(f"{cpu % 2}\n")
        for number, cpus in enumerate(("0,2,4,6", "1,3,5,7") if numa else ()):
            node = tmp_path / f"devices/system/node/node{number}"
            node.mkdir(parents=True)
            (node / "cpulist").write_text(cpus + "\n")
        return calls

    return make


def take(*variables: str, near: Any = lambda _slots: ()) -> str:
    words: str = cores.take(variables, "gpu1", seat=(0, 1), near=near)
    return words


def test_a_rank_is_bound_to_what_the_node_has(machine: Machine) -> None:
    calls = machine()
    assert take("gpu1=1/2 exclusive", "", "") == "of 4 for the run here"
    # First to all: mpirun may have bound it to CPUs of another run.
    assert calls[0] >= set(range(8))
    assert calls[1:] == [{1, 3, 5, 7}]


def test_without_numa_nodes_cores_count_from_0(machine: Machine) -> None:
    calls = machine(numa=False)
    take("gpu1=1/2 exclusive", "", "")
    assert calls[1:] == [{2, 3, 6, 7}]


def test_only_cpus_that_the_container_may_use_count(machine: Machine) -> None:
    calls = machine(allowed=range(4, 8))
    take("gpu1=1/2 exclusive", "", "")
    assert calls[1:] == [{5, 7}]


def test_a_run_that_holds_a_whole_node_is_bound_if_kit_binds(machine: Machine) -> None:
    calls = machine()
    assert take("gpu2=1/2 exclusive", "", "") == ""
    assert calls == []
    take("gpu2=1/2 exclusive", "", "core")
    take("", "2", "")
    take("", "", "socket")
    assert calls[1::2] == [{0, 4}, {0, 4}, {0, 2, 4, 6}]


def test_the_gpus_are_asked_only_where_the_run_shares_the_node(machine: Machine) -> None:
    machine()
    asked: list[int] = []

    def near(slots: int) -> tuple[()]:
        asked.append(slots)
        return ()

    take("", "2", "", near=near)
    take("gpu1=0/4 exclusive", "", "", near=near)
    assert asked == [4]


def test_the_kernel_accepts_the_whole_range() -> None:
    import os  # noqa: PLC0415

    before = os.sched_getaffinity(0)
    try:
        assert cores.whole() >= before
    finally:
        os.sched_setaffinity(0, before)
