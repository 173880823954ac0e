"""Who is late: what a rank does itself, and what the network does to it."""

from __future__ import annotations

import pytest

from kit.model.values import replace
from kit.plan.blame.lateness import Late, late, latest, lost, needed
from kit.plan.blame.samples import Sample

HOSTS = {rank: f"gpu{rank + 1}" for rank in range(4)}


def sample(number: int, *, late_wait: float, operation: float) -> Sample:
    """Rank 2 waits for `late_wait` seconds a tensor, and `operation` of the time is its operations'. Others: 80 ms,
    30 %."""
    wait = dict.fromkeys(HOSTS, 0.08 + 0.001 * (number % 3)) | {2: late_wait}
    return Sample(
        seconds=1.0,
        wait=wait,
        tail=dict.fromkeys(HOSTS, 0.0),
        operation=dict.fromkeys(HOSTS, 0.3) | {2: operation},
        steps=3.0,
    )


def found(*, late_wait: float, operation: float) -> Late | None:
    return late([sample(number, late_wait=late_wait, operation=operation) for number in range(10)], HOSTS)


def test_the_rank_that_waits_least_is_late() -> None:
    one = found(late_wait=0.01, operation=0.3)
    assert one
    assert (one.host, one.ranks, one.wins) == ("gpu3", (2,), 10)
    assert one.share == pytest.approx(3 * 0.071, abs=0.002)


def test_a_rank_whose_operations_end_late_is_not_late_by_itself() -> None:
    """A slow link gives it its sums later, and so it begins the next step later, by not more than that."""
    assert found(late_wait=0.01, operation=0.55) is None


def test_what_it_is_late_beside_its_operations_stays_its_own() -> None:
    one = found(late_wait=0.01, operation=0.4)
    assert one
    assert one.share == pytest.approx(3 * 0.071 - 0.1, abs=0.002)


# Lateness by the waits alone: the ranks of two hosts, two on each.
PAIRS = {0: "gpu1", 1: "gpu1", 2: "gpu2", 3: "gpu2"}


def waiting(*waits: float, tail: float = 0.0, steps: float | None = 1.0) -> Sample:
    """Return a sample in which the ranks wait for these seconds: the mean tensor, and (`tail`) a step's last one."""
    ranks = range(len(waits))
    return Sample(
        seconds=1.0,
        wait=dict(zip(ranks, waits, strict=True)),
        tail={rank: tail if wait else 0.0 for rank, wait in zip(ranks, waits, strict=True)},
        operation=dict.fromkeys(ranks, 0.3),
        steps=steps,
    )


@pytest.mark.parametrize(("wait", "ranks"), [(0.049, None), (0.051, (2,)), (1.5, (2,))])
def test_who_costs_the_others_less_than_5_percent_is_not_named(wait: float, ranks: tuple[int, ...] | None) -> None:
    one = late([waiting(wait, wait, 0.0)] * 10, HOSTS)
    assert (one.ranks if one else None) == ranks
    # No more than all of the time can be lost.
    assert one is None or one.share == pytest.approx(min(wait, 1.0))


@pytest.mark.parametrize(("single", "ranks"), [(0.4, None), (0.2, (2,))])
def test_a_loss_that_may_be_chance_is_no_lateness(single: float, ranks: tuple[int, ...] | None) -> None:
    """Rank 2 is always the last, but much of what it costs is that of two samples."""
    samples = [waiting(0.06, 0.06, 0.0)] * 8 + [waiting(single, single, 0.0)] * 2
    loud = late(samples, HOSTS)
    assert (loud.ranks if loud else None) == ranks


@pytest.mark.parametrize("steps", [1.0, None])
def test_the_waits_for_the_last_tensor_of_a_step_say_what_is_lost(steps: float | None) -> None:
    one = late([waiting(0.01, 0.01, 0.0, tail=0.2, steps=steps)] * 10, HOSTS)
    assert one is not None
    assert one.share == pytest.approx(0.2)


def test_what_the_late_rank_waits_itself_is_not_lost() -> None:
    one = replace(waiting(0.0, 0.0, 0.0), tail={0: 0.3, 1: 0.3, 2: 0.1})
    assert lost(one, [2], [0, 1]) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("waits", "host", "ranks"),
    [
        ((0.3, 0.3, 0.0, 0.0), "gpu2", (2, 3)),
        ((0.3, 0.3, 0.0, 0.1), "gpu2", (2, 3)),
        ((0.3, 0.3, 0.0, 0.2), "gpu2", (2,)),
        ((0.3, 0.0, 0.3, 0.3), "gpu1", (1,)),
        # What the late rank waits itself is no lateness.
        ((0.4, 0.4, 0.1, 0.2), "gpu2", (2, 3)),
        ((0.4, 0.4, 0.1, 0.3), "gpu2", (2,)),
        # The mean of a host's ranks would be that of gpu2.
        ((0.3, 0.0, 0.1, 0.1), "gpu1", (1,)),
    ],
    ids=["both", "mostly both", "mostly one", "one", "some", "more", "the latest counts"],
)
def test_a_rank_is_named_alone_if_it_makes_its_host_late(
    waits: tuple[float, ...], host: str, ranks: tuple[int, ...]
) -> None:
    one = late([waiting(*waits)] * 10, PAIRS)
    assert one is not None
    assert (one.host, one.ranks, one.wins, one.samples) == (host, ranks, 10, 10)


def test_of_one_host_a_rank_is_named() -> None:
    alone = dict.fromkeys(range(3), "gpu1")
    one = late([waiting(0.3, 0.0, 0.3)] * 10, alone)
    assert one is not None
    assert (one.host, one.ranks) == ("gpu1", (1,))
    # Each is the last one in turn.
    turns = [waiting(*(0.0 if rank == number % 3 else 0.3 for rank in range(3))) for number in range(12)]
    assert late(turns, alone) is None
    assert late(turns, HOSTS) is None


@pytest.mark.parametrize(
    ("wins", "count", "named"),
    [(8, 8, True), (7, 7, False), (9, 10, False), (10, 11, False), (11, 12, True), (10, 12, False)],
)
def test_of_two_hosts_one_is_late_only_if_chance_does_not_explain_it(wins: int, count: int, named: bool) -> None:
    """A healthy run is blamed once in 100 times. By chance, either host is the last 7 times of 7 in 1 of 64 runs."""
    samples = [waiting(0.3, 0.0)] * wins + [waiting(0.0, 0.3)] * (count - wins)
    assert latest([one.wait for one in samples]) == (1 if named else None)


@pytest.mark.parametrize(
    ("hosts", "ranks", "samples"),
    [(2, 2, 8), (2, 16, 8), (3, 3, 6), (4, 4, 5), (16, 16, 3), (1000, 1000, 2), (1, 2, 8), (1, 4, 5), (1, 1, 1)],
)
def test_so_many_samples_can_show_who_is_late(hosts: int, ranks: int, samples: int) -> None:
    assert needed(hosts, ranks) == samples
