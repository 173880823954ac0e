"""Which GPUs are those of a rank."""

from __future__ import annotations

import pytest

from kit.model.run import Place
from kit.plan.blame.intervals import gpus_of


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
    numbers = gpus_of(places, dict.fromkeys(("gpu1", "gpu2"), gpus), dict.fromkeys(("gpu1", "gpu2"), slots))
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
    assert gpus_of([place], {"gpu1": gpus}, {"gpu1": slots}) == dict(enumerate(expected))
