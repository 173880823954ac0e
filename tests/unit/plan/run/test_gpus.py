"""Tests which GPUs the slots of a host mean, and runs whose ranks each get GPUs for themselves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.errors import InputError, NotReadyError
from kit.model.launch import Node, Placement, RunRequest
from kit.model.observed import Gpu, GpuProcess, Lease
from kit.model.run import Place, RunRecord
from kit.model.spec import ClusterSpec, MpiSpec
from kit.model.values import replace
from kit.plan.run import gpus
from kit.plan.run.leases import place_free
from kit.plan.run.mpi import launch_plan
from tests.fakes.facts import facts, node


def host(number: int = 1, *, slots: int = 2, has: int = 2) -> Node:
    return node(number, slots=slots, gpus=has)


def record(run: str, places: tuple[Place, ...]) -> RunRecord:
    return RunRecord(id=run, cluster="lab", image="i", command=("true",), places=places, by="me@here")


def numbers(nodes: list[Node], *living: RunRecord, share: int = 1, **more: Any) -> list[tuple[str, tuple[int, ...]]]:
    """Return (node, GPUs) of each rank."""
    placement, places = place_free(nodes, living, share=share, **more)
    return [(name, held) for _, name, held in gpus.of_ranks(placement, places, share)]


# Slots


@pytest.mark.parametrize(
    ("slots", "has", "expected"),
    [
        (2, 2, [(0,), (1,)]),
        (2, 4, [(0, 1), (2, 3)]),
        (4, 2, [(0,), (0,), (1,), (1,)]),
        (3, 8, [(0, 1), (2, 3, 4), (5, 6, 7)]),
        (2, 0, [(), ()]),
    ],
)
def test_slots_divide_the_gpus(slots: int, has: int, expected: list[tuple[int, ...]]) -> None:
    only = host(slots=slots, has=has)
    assert [tuple(gpus.of_slot(only, slot)) for slot in range(slots)] == expected


@given(st.integers(1, 12), st.integers(1, 12), st.sets(st.integers(0, 11)))
def test_a_gpu_is_free_only_if_no_slot_of_it_is_held(slots: int, has: int, held: set[int]) -> None:
    only = host(slots=slots, has=has)
    held = {slot for slot in held if slot < slots}
    taken = gpus.of_slots(only, held)
    free = gpus.free(only, [slot for slot in range(slots) if slot not in held])
    assert sorted((*taken, *free)) == list(range(has))
    assert not held & set(gpus.slots_of(only, free))


# Ranks with GPUs for themselves


def test_each_rank_gets_its_own_gpu() -> None:
    assert numbers([host(1), host(2)]) == [("gpu1", (0,)), ("gpu1", (1,)), ("gpu2", (0,)), ("gpu2", (1,))]
    assert numbers([host(1, slots=8, has=8)], share=4) == [("gpu1", (0, 1, 2, 3)), ("gpu1", (4, 5, 6, 7))]


def test_other_numbers_of_slots_than_gpus() -> None:
    # As many ranks as slots at most, however many GPUs there are.
    assert numbers([host(slots=2, has=8)]) == [("gpu1", (0,)), ("gpu1", (1,))]
    assert numbers([host(slots=4, has=8)], share=2, np=2) == [("gpu1", (0, 1)), ("gpu1", (2, 3))]
    # Two slots on one GPU: one rank holds both.
    assert numbers([host(slots=4, has=2)]) == [("gpu1", (0,)), ("gpu1", (1,))]


@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(1, 6), st.none() | st.integers(1, 3)), max_size=6),
)
def test_no_gpu_is_given_twice(hosts: list[tuple[int, int]], wishes: list[tuple[int, int | None, int | None]]) -> None:
    """Runs with and without GPUs for each rank start one after the other as long as they fit."""
    nodes = [host(number, slots=slots, has=has) for number, (slots, has) in enumerate(hosts, 1)]
    living: list[RunRecord] = []
    given_out: list[tuple[str, int]] = []
    slots_out: list[tuple[str, int]] = []
    for share, np, npernode in wishes:
        try:
            placement, places = place_free(nodes, living, np=np, npernode=npernode, share=share)
        except (InputError, NotReadyError):
            continue
        living.append(record(f"r{len(living)}", places))
        slots_out += [(p.node, slot) for p in places for slot in p.slots]
        if share:
            rows = gpus.of_ranks(placement, places, share)
            assert all(len(held) == share for _, _, held in rows)
            given_out += [(name, gpu) for _, name, held in rows for gpu in held]
    assert len(given_out) == len(set(given_out))
    assert len(slots_out) == len(set(slots_out))


def test_gpus_that_another_run_holds_are_left_out() -> None:
    nodes = [host(1, slots=4, has=4), host(2, slots=4, has=4)]
    _, places = place_free(nodes, [], np=1)
    assert numbers(nodes, record("a", places), share=2, np=3) == [
        ("gpu1", (1, 2)), ("gpu2", (0, 1)), ("gpu2", (2, 3)),
    ]  # fmt: skip
    with pytest.raises(NotReadyError, match="other runs hold them: a of me@here"):
        place_free(nodes, [record("a", places)], share=2)
    waiting, chosen = place_free(nodes, [record("a", places)], share=2, wait=True)
    assert (waiting.np, [place.slots for place in chosen]) == (4, [(0, 1, 2, 3)] * 2)


@pytest.mark.parametrize(
    ("nodes", "wish", "message", "hint"),
    [
        ([host(1), host(2, has=0)], {}, "gpu2 has no GPU, and each rank gets 1", "-H, or 2 ranks with --np 2; or let"),
        ([host(1, has=0)], {"np": 1}, "gpu1 has no GPU, and each rank gets 1", "let the ranks share the GPUs"),
        ([host(1)], {"share": 4}, "gpu1 has 2 GPUs, and each rank gets 4", "--gpus-per-rank 0"),
        ([host(1), host(2)], {"np": 5}, "gpu1 has 2 GPUs, and 3 ranks there with 1 GPU each need 3", "use --np 4; or"),
        (
            [host(1, slots=8), host(2, slots=8)], {"npernode": 4},
            "gpu1 has 2 GPUs, and 4 ranks there with 1 GPU each need 4", "use --npernode 2; or",
        ),
        (
            [host(1, slots=8, has=8), host(2, slots=8, has=4)], {"npernode": 3, "share": 2},
            "gpu2 has 4 GPUs, and 3 ranks there with 2 GPUs each need 6", "use --npernode 2; or",
        ),
        (
            [host(1, has=4), host(2, slots=8, has=4)], {"np": 7, "npernode": 4},
            "gpu1 has 2 slots, fewer than 4 ranks", "use --np 6, or raise slots=",
        ),
        ([host(1, slots=1)], {"np": 2}, "gpu1 has 1 slot, fewer than 2 ranks", "use --np 1, or raise slots="),
        (
            [host(1, slots=1, has=3)], {"np": 2, "share": 2},
            "gpu1 has 3 GPUs, and 2 ranks there with 2 GPUs each need 4", "use --np 1; or let",
        ),
    ],
)  # fmt: skip
def test_a_host_with_too_few_gpus(nodes: list[Node], wish: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        place_free(nodes, [], **{"share": 1, **wish})
    assert message in caught.value.message
    assert hint in str(caught.value.hint)
    # Where no rank fits, kit does not propose to start none.
    assert not str(caught.value.hint).startswith("0")
    assert "--np 0" not in str(caught.value.hint)


def test_hosts_without_gpus_are_skipped_if_the_ranks_fit_on_others() -> None:
    assert numbers([host(1, has=0), host(2)], np=2) == [("gpu2", (0,)), ("gpu2", (1,))]
    assert numbers([host(1, has=0), host(2)], np=2, npernode=2) == [("gpu2", (0,)), ("gpu2", (1,))]


# Variables


def plan(nodes: list[Node], *living: RunRecord, spec: ClusterSpec | None = None, **more: Any) -> dict[str, str]:
    """Return the variables of a run's ranks about GPUs."""
    spec, request = spec or ClusterSpec(), RunRequest(**more)
    placement, places = place_free(nodes, living, np=request.np, share=gpus.per_rank(request, spec))
    launch = launch_plan(
        run_id="r", spec=spec, placement=placement, network=None, command=("true",), env={}, places=places,
        devices=gpus.variables(request, spec),
    )  # fmt: skip
    return {name: value for name, value in launch.env.items() if name != "KIT_RUN"}


def test_the_ranks_learn_their_share() -> None:
    nodes = [host(1), host(2)]
    assert plan(nodes) == {}
    assert plan(nodes, gpus_per_rank=1) == {"KIT_GPUS_PER_RANK": "1", "KIT_BIND_NEAR": "1"}
    assert plan(nodes, spec=ClusterSpec(gpus_per_rank=2)) == {"KIT_GPUS_PER_RANK": "2", "KIT_BIND_NEAR": "1"}
    # The command line wins over kit.yaml.
    assert plan(nodes, spec=ClusterSpec(gpus_per_rank=2), gpus_per_rank=0) == {}
    assert plan(nodes, report_bindings=True) == {"KIT_REPORT_BINDINGS": "1"}


def test_kit_binds_no_rank_that_kit_yaml_binds() -> None:
    for bind_to in ("none", "core"):
        spec = ClusterSpec(mpi=MpiSpec(bind_to=bind_to))
        assert plan([host(1)], spec=spec, gpus_per_rank=1) == {"KIT_GPUS_PER_RANK": "1"}


def test_the_held_gpus_have_numbers_of_gpus() -> None:
    assert plan([host(slots=4, has=8)], np=1) == {"KIT_HELD_SLOTS": "gpu1=0,1"}
    # Every GPU, though not every slot.
    assert plan([host(slots=2, has=1)], np=1) == {}
    assert plan([host(slots=4, has=2)], gpus_per_rank=1, np=1)["KIT_HELD_SLOTS"] == "gpu1=0"
    assert plan([host(slots=2, has=0)], np=1) == {"KIT_HELD_SLOTS": "gpu1=0"}
    # CUDA would show the same MIG device to all ranks.
    assert plan([replace(host(), mig=True), host(2)]) == {"KIT_HELD_SLOTS": "gpu1=0,1"}


def test_oversubscribed_ranks_have_no_gpu_for_themselves() -> None:
    with pytest.raises(InputError, match="--oversubscribe"):
        gpus.per_rank(RunRequest(oversubscribe=True, gpus_per_rank=1), ClusterSpec())
    assert gpus.per_rank(RunRequest(oversubscribe=True), ClusterSpec()) == 0


def test_ranks_without_a_share_see_what_the_run_holds() -> None:
    placement = Placement(nodes=(host(slots=4, has=8),), counts=(2,))
    places = (Place(node="gpu1", address="10.0.0.1", ranks=2, slots=(1, 2)),)
    assert gpus.of_ranks(placement, places, 0) == [(0, "gpu1", (2, 3, 4, 5)), (1, "gpu1", (2, 3, 4, 5))]


RUN, BY_HAND = "20261121-101500-3fa2", "by-hand-7"
CARDS = (
    Gpu(name="A100", memory_mib=40960, uuid="GPU-a"),
    Gpu(name="A100", memory_mib=40960, uuid="GPU-b", mig=("MIG-1", "MIG-2")),
    Gpu(name="A100", memory_mib=40960, uuid="GPU-c"),
)


def process(gpu: str) -> GpuProcess:
    return GpuProcess(gpu=gpu, pid=42, user="alice", command="x")


@pytest.mark.parametrize(
    ("held", "used", "ranks", "seen", "expected"),
    [
        ((), (), {}, None, (0, 1, 2, 3)),
        # A lease holds its GPUs, whether ranks are there or not, and a rank of it counts once.
        ((1,), (), {}, None, (0, 2, 3)),
        ((1,), (), {RUN: (0,)}, None, (0, 2, 3)),
        ((1,), ("MIG-1",), {RUN: (0,)}, None, (0, 2, 3)),
        # A program of others, on a MIG device, or on its GPU as a whole.
        ((1,), ("MIG-2",), {}, None, (0, 3)),
        ((), ("GPU-b", "GPU-elsewhere"), {}, None, (0, 3)),
        # Ranks without a lease count by slot, unless their processes show.
        ((), (), {BY_HAND: (0, 1)}, None, (0, 1)),
        ((0,), ("GPU-c",), {RUN: (0,), BY_HAND: (0,)}, None, (1, 2)),
        ((), (), {BY_HAND: tuple(range(9))}, None, ()),
        # What the node does not see.
        ((), (), {}, frozenset({"GPU-a", "GPU-c"}), (0, 3)),
        ((), (), {}, frozenset(), ()),
    ],
)
def test_idle_gpus(
    held: tuple[int, ...],
    used: tuple[str, ...],
    ranks: dict[str, tuple[int, ...]],
    seen: frozenset[str] | None,
    expected: tuple[int, ...],
) -> None:
    leases = [Lease(run=RUN, slots={"gpu1": frozenset(held), "gpu2": frozenset({3})})]
    observed = facts(1, gpus=CARDS, gpu_processes=tuple(map(process, used)), node_gpus=seen)
    assert gpus.idle(observed, 4, leases, ranks) == expected


def test_idle_gpus_of_a_host_with_fewer_slots() -> None:
    leases = [Lease(run=RUN, slots={"gpu1": frozenset({1})})]
    assert gpus.idle(facts(1, gpus=CARDS), 2, leases, {}) == (0, 1)
