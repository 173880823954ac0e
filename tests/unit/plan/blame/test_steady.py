"""A run that begins, ends, is reset or hangs while kit watches it."""

from __future__ import annotations

import random

import pytest

from kit.model.blame import HostInterval, RankShares, Watched
from kit.model.values import replace
from kit.plan.blame.judge import judge
from kit.plan.blame.steady import steady
from tests.unit.plan.blame.world import SETUP, Fault, World
from tests.unit.plan.blame.world import watched as played

BURNED = Fault(kind="busy-core", host=1, rank=1, strength=2)


def watched(looks: int = 12) -> Watched:
    return played(World(random.Random(1), SETUP, BURNED, looks + 4), looks=looks)  # noqa: S311  (the same run again)


def before_and_after(whole: Watched, first: list[dict[str, list[int]]], last: list[dict[str, list[int]]]) -> Watched:
    """Return the run with these ranks on each host in seconds before and after it. They do not count."""

    def idle(host: str, ranks: dict[str, list[int]]) -> HostInterval:
        return HostInterval(seconds=1.0, cores=2, ranks=tuple(RankShares(rank=n, pid=1) for n in ranks.get(host, ())))

    return replace(
        whole,
        hosts={
            host: (*(idle(host, ranks) for ranks in first), *row, *(idle(host, ranks) for ranks in last))
            for host, row in whole.hosts.items()
        },
    )


NOBODY: dict[str, list[int]] = {}
STARTING = {"gpu1": [0]}
SAVING = {"gpu1": [0]}


@pytest.mark.parametrize(
    ("first", "last"),
    [([], []), ([], [NOBODY]), ([], [SAVING] * 9 + [NOBODY]), ([NOBODY, STARTING], []), ([STARTING], [NOBODY] * 50)],
    ids=["all the time", "it ended", "rank 0 saved the model", "it began", "both"],
)
def test_who_is_late_is_named_also_if_the_run_begins_or_ends_meanwhile(
    first: list[dict[str, list[int]]], last: list[dict[str, list[int]]]
) -> None:
    result = judge(before_and_after(watched(), first, last))
    assert result.culprit is not None
    assert (result.culprit.host, result.culprit.ranks, result.culprit.reason) == ("gpu2", (1,), "busy-core")
    assert result.seconds == pytest.approx(12, abs=0.5)
    assert [row.rank for row in result.ranks] == [0, 1, 2]


def test_of_a_run_that_ended_soon_nobody_says_that_it_does_not_count() -> None:
    result = judge(before_and_after(watched(looks=3), [], [NOBODY] * 20))
    assert result.verdict == "too-few-steps"


def moved(one: HostInterval, by: int, opened_us: int) -> HostInterval:
    """Return the interval in another world, in which the ranks have other numbers."""
    ranks = tuple(
        replace(r, rank=(r.rank + by) % 3, readiness=r.readiness and replace(r.readiness, opened_us=opened_us))
        for r in one.ranks
    )
    return replace(one, ranks=ranks)


@pytest.mark.parametrize("reset", [3, 9])
def test_a_reset_gives_ranks_other_numbers_and_the_longer_world_is_judged(reset: int) -> None:
    whole = watched()
    hosts = {host: (*row[:reset], *(moved(one, 1, 777) for one in row[reset:])) for host, row in whole.hosts.items()}
    result = judge(replace(whole, hosts=hosts))
    assert result.culprit is not None
    assert (result.culprit.host, result.culprit.ranks) == ("gpu2", (2,) if reset == 3 else (1,))
    # The interval of the reset belongs to no world.
    assert result.seconds == pytest.approx(9 if reset == 3 else 8, abs=0.5)


def test_ranks_that_kit_saw_only_once_are_no_ranks_that_do_not_count() -> None:
    whole = watched(looks=3)
    resets = {host: tuple(moved(one, 1, at) for at, one in enumerate(row)) for host, row in whole.hosts.items()}
    ends = {host: (row[0], replace(row[0], ranks=())) for host, row in whole.hosts.items()}
    for hosts in (resets, ends):
        result = judge(replace(whole, hosts=hosts))
        assert (result.verdict, result.culprit) == ("too-few-steps", None)
        assert "kit saw the same ranks only once" in result.why


def test_what_has_the_same_ranks_all_the_time_stays() -> None:
    whole = watched()
    assert steady(whole) is whole
    nothing = replace(whole, hosts={})
    assert steady(nothing) is nothing


@pytest.mark.parametrize(
    ("pending", "who"),
    [
        ([3, 0, 3], ". The other ranks wait for rank 1 on gpu2"),
        ([0, 0, 3], ". The other ranks wait for rank 0 on gpu1, rank 1 on gpu2"),
        ([0, 0, 0], ""),
        ([1, 2, 3], ""),
    ],
)
def test_of_a_run_that_hangs_the_rank_is_named_that_gave_no_tensor(pending: list[int], who: str) -> None:
    whole = watched()

    def stuck(one: HostInterval, first: HostInterval) -> HostInterval:
        ranks = tuple(
            replace(r, readiness=r.readiness and replace(r.readiness, pending=pending[r.rank])) for r in first.ranks
        )
        return replace(one, ranks=ranks)

    hosts = {host: tuple(stuck(one, row[0]) for one in row) for host, row in whole.hosts.items()}
    result = judge(replace(whole, hosts=hosts))
    assert result.verdict == "too-few-steps"
    assert result.why == f"no tensor was summed in 12 s, so the run hangs or its steps take longer{who}"
