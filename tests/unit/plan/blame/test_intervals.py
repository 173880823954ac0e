"""What readings show: which GPUs are those of a rank, and whether the run is over."""

from __future__ import annotations

import pytest

from kit.model.run import Place
from kit.model.watch import Suspect, SuspectReading, Suspects
from kit.plan.blame.intervals import gpus_of, over


@pytest.mark.parametrize(
    ("slots", "gpus", "ranks", "expected"),
    [
        (2, 2, 2, [(0,), (1,)]),
        (None, 2, 2, [(0,), (1,)]),
        (2, 1, 2, [(0,), (0,)]),
        (4, 2, 4, [(0,), (0,), (1,), (1,)]),
        (2, 4, 2, [(0, 1), (2, 3)]),
        (4, 4, 2, [(0, 1), (2, 3)]),
        (2, 0, 2, [(), ()]),
        (2, 2, 4, [(0, 1)] * 4),
    ],
    ids=["alike", "by default", "shared", "several share", "several each", "two slots each", "none", "more ranks"],
)
def test_slots_divide_the_gpus_of_their_host(
    slots: int | None, gpus: int, ranks: int, expected: list[tuple[int, ...]]
) -> None:
    held = tuple(range(slots or gpus))
    places = [Place(node=name, address="10.0.0.1", ranks=ranks, slots=held) for name in ("gpu1", "gpu2")]
    numbers = gpus_of(places, dict.fromkeys(("gpu1", "gpu2"), gpus), dict.fromkeys(("gpu1", "gpu2"), slots), {})
    assert numbers == dict(enumerate([*expected, *expected]))


@pytest.mark.parametrize("slots", [None, 1, 8])
@pytest.mark.parametrize(
    ("of", "gpus", "expected"),
    [(2, 8, [(0, 1, 2, 3), (4, 5, 6, 7)]), (4, 2, [(0,), (0,), (1,), (1,)])],
    ids=["several each", "shared"],
)
def test_the_run_knows_how_many_slots_its_host_had(
    slots: int | None, of: int, gpus: int, expected: list[tuple[int, ...]]
) -> None:
    """kit.yaml sets them, or the hosts file has changed since."""
    place = Place(node="gpu1", address="10.0.0.1", ranks=of, slots=tuple(range(of)), of=of)
    assert gpus_of([place], {"gpu1": gpus}, {"gpu1": slots}, {}) == dict(enumerate(expected))


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({"gpu9": [0, 1], "gpu10": [2, 3, 4]}, [(0,), (1,), (0,), (1,), (2,)]),
        ({"gpu9": [4, 3], "gpu10": [0, 2, 1]}, [(0,), (1,), (2,), (0,), (1,)]),
        ({"gpu9": [3, 4], "gpu10": [0, 2]}, [(), (), (0,), (0,), (1,)]),
    ],
    ids=["mpirun", "torchrun", "one is gone"],
)
def test_torchrun_numbers_hosts_in_another_order(seen: dict[str, list[int]], expected: list[tuple[int, ...]]) -> None:
    """By their addresses, as text: 10.0.0.10 comes before 10.0.0.9."""
    places = [
        Place(node=f"gpu{n}", address=f"10.0.0.{n}", ranks=ranks, slots=tuple(range(ranks)), of=8)
        for n, ranks in ((9, 2), (10, 3))
    ]
    numbers = gpus_of(places, {"gpu9": 8, "gpu10": 8}, {}, seen)
    assert [numbers.get(rank, ()) for rank in range(5)] == expected


def rows(*counts: int) -> list[SuspectReading]:
    """Return readings with these numbers of ranks."""
    return [
        SuspectReading(at=float(at), suspects=Suspects(ranks=tuple(Suspect(rank=rank) for rank in range(count))))
        for at, count in enumerate(counts)
    ]


def test_a_run_is_over_if_it_had_ranks_and_has_none() -> None:
    assert over({"gpu1": rows(0, 1, 0), "gpu2": rows(0, 0), "gpu3": []})
    assert not over({"gpu1": rows(0, 1, 0), "gpu2": rows(0, 1)})
    # It has not begun.
    assert not over({"gpu1": rows(0, 0)})
    assert not over({})
