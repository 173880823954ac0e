"""kit blame on simulated runs: 50 seeded faults, of which it names at least 48 rightly, and 20 healthy runs."""

from __future__ import annotations

import random

import pytest

from kit.model.blame import BlameResult
from kit.plan.blame.judge import judge
from tests.unit.plan.blame.world import FAULTS, Fault, World, drawn_fault, drawn_setup, watched

# kit blame looks for 10 s, and for longer if the steps are long.
LOOKS, MOST_LOOKS = 10, 60
# What kit may call a fault. A cgroup or a hypervisor that takes cores is nothing else than that.
CPU = ("busy-core", "steal", "cgroup-throttle")


def played(seed: int, kind: str | None) -> tuple[Fault | None, BlameResult, World]:
    chance = random.Random(seed)  # noqa: S311  (the same runs again, no secret)
    setup = drawn_setup(chance, gpus=True if kind == "gpu-throttle" else False if kind in CPU else None)
    fault = drawn_fault(chance, kind, setup) if kind else None
    world = World(chance, setup, fault, LOOKS + 4)
    for looks in range(LOOKS, MOST_LOOKS + 1, 10):
        world.play(looks + 4)
        result = judge(watched(world, looks=looks))
        if result.verdict != "too-few-steps":
            break
    return fault, result, world


def rightly(fault: Fault, result: BlameResult, per_host: int) -> bool:
    culprit = result.culprit
    if culprit is None or culprit.host != f"gpu{fault.host + 1}" or culprit.reason != fault.kind:
        return False
    whole_host = fault.kind in ("steal", "link", "cgroup-throttle")
    return (whole_host and {r // per_host for r in culprit.ranks} == {fault.host}) or culprit.ranks == (fault.rank,)


def test_of_50_faults_at_least_48_are_named_by_rank_host_and_reason() -> None:
    wrong = []
    for seed in range(50):
        kind = FAULTS[seed % len(FAULTS)]
        fault, result, world = played(seed, kind)
        assert fault is not None
        if not rightly(fault, result, world.setup.per_host):
            wrong.append((seed, fault, result.verdict, result.culprit))
    assert len(wrong) <= 2, wrong


@pytest.mark.parametrize("seed", range(1000, 1020))
def test_nobody_is_blamed_for_a_healthy_run(seed: int) -> None:
    _, result, _ = played(seed, None)
    assert result.verdict == "nobody", result.culprit


@pytest.mark.parametrize("seed", [s for s in range(14) if FAULTS[s % len(FAULTS)] != "link"])
def test_the_gain_is_within_a_third_of_what_the_same_run_takes_without_the_fault(seed: int) -> None:
    fault, result, world = played(seed, FAULTS[seed % len(FAULTS)])
    healthy = World(random.Random(seed), world.setup, None, 14)  # noqa: S311  (as above)
    step = 14 / healthy.traces[0].counters[-1].steps
    assert fault is not None
    assert result.culprit is not None
    assert result.culprit.gain is not None
    assert result.culprit.gain.then == pytest.approx(step, rel=1 / 3)


@pytest.mark.parametrize("seed", [s for s in range(70) if FAULTS[s % len(FAULTS)] == "link"])
def test_the_gain_of_a_faster_link_is_not_far_from_the_same_run_with_one(seed: int) -> None:
    """Wider than above: how much of the exchange the computing hides is not counted, only what tensors wait."""
    _, result, world = played(seed, "link")
    healthy = World(random.Random(seed), world.setup, None, 14)  # noqa: S311  (as above)
    step = 14 / healthy.traces[0].counters[-1].steps
    assert result.culprit is not None
    assert result.culprit.gain is not None
    assert step / 2 < result.culprit.gain.then < 1.2 * step
