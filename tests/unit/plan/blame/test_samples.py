"""What Horovod counts in the ranks becomes samples of the same part of the run."""

from __future__ import annotations

import pytest

from kit.model.blame import HostInterval, RankShares, Readiness, Watched
from kit.plan.blame.samples import samples, totals


def counted(tensors: int, steps: int) -> Readiness:
    """Return counters of a rank that waits 10 ms for a tensor, and 4 ms of it for a step's last one."""
    return Readiness(
        tensors=tensors, wait_us=10_000 * tensors, op_us=5_000 * tensors, bytes=1000 * tensors, steps=steps,
        tail_us=4_000 * tensors,
    )  # fmt: skip


def run(*ranks: list[Readiness], seconds: float = 2.0) -> Watched:
    """Return a run with one rank on each host, and these counters in each look."""
    hosts = {
        f"gpu{number}": tuple(
            HostInterval(
                seconds=seconds if at else 0.0, cores=2, ranks=(RankShares(rank=number, pid=1, readiness=one),)
            )
            for at, one in enumerate(looks)
        )
        for number, looks in enumerate(ranks)
    }
    return Watched(run="r", hosts=hosts, addresses={}, gpus={})


def test_a_sample_has_waits_of_a_tensor_and_shares_of_the_time() -> None:
    (one,) = samples(run([counted(10, 1), counted(50, 5)], [counted(10, 1), counted(70, 7)]))
    assert one.seconds == 2.0
    assert one.wait == pytest.approx({0: 0.01, 1: 0.01})
    assert one.tail == pytest.approx({0: 0.08, 1: 0.12})
    assert one.operation == pytest.approx({0: 0.1, 1: 0.15})
    # The mean of the two ranks, of 2 s.
    assert one.steps == pytest.approx(2.5)


@pytest.mark.parametrize(
    "stuck",
    [counted(20, 2), counted(25, 2)],
    ids=["no tensor", "no whole step"],
)
def test_a_look_without_progress_of_a_rank_is_joined_with_the_next_one(stuck: Readiness) -> None:
    goes = [counted(10 * number, number) for number in range(1, 6)]
    waits = [counted(10, 1), counted(20, 2), stuck, counted(40, 4), counted(50, 5)]
    assert [one.seconds for one in samples(run(goes, goes))] == [2.0, 2.0, 2.0, 2.0]
    assert [one.seconds for one in samples(run(goes, waits))] == [2.0, 4.0, 2.0]
    assert [one.seconds for one in samples(run(waits, goes))] == [2.0, 4.0, 2.0]


def test_ranks_that_count_no_steps_have_samples_of_their_tensors() -> None:
    watched = run([counted(10, 0), counted(20, 0), counted(20, 0), counted(30, 0)])
    assert [(one.seconds, one.steps) for one in samples(watched)] == [(2.0, None), (4.0, None)]
    whole = totals(watched)
    assert whole is not None
    assert (whole.seconds, whole.tensors, whole.bytes, whole.steps) == (6.0, 20 / 6, 20_000 / 6, None)


def test_totals_are_those_of_the_mean_rank() -> None:
    whole = totals(run([counted(10, 1), counted(50, 5)], [counted(10, 1), counted(70, 7)]))
    assert whole is not None
    assert (whole.seconds, whole.tensors, whole.steps) == (2.0, 25.0, 2.5)


def test_one_look_or_no_rank_has_no_samples() -> None:
    for watched in (run([counted(10, 1)]), Watched(run="r", hosts={}, addresses={}, gpus={})):
        assert samples(watched) == ()
        assert totals(watched) is None
