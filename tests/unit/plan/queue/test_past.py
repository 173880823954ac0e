"""Tests where a run that does not wait in line may start."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.errors import KitError, NotReadyError
from kit.model.answer import OddAnswer
from kit.model.launch import Placement
from kit.model.queue import Reserved
from kit.model.run import Place, RunRecord
from kit.model.values import replace
from kit.plan.queue import answers
from kit.plan.queue.past import check, overlaps, place_past
from kit.plan.run.leases import place_free
from tests.fakes.facts import node

NODES = [node(1, slots=2, gpus=2), node(2, slots=3, gpus=3), node(3, slots=1, gpus=1)]
SLOTS = st.fixed_dictionaries(
    {each.name: st.frozensets(st.integers(0, each.slots - 1)) for each in NODES},
)


def living(slots: dict[str, frozenset[int]]) -> list[RunRecord]:
    places = tuple(
        Place(node=host, address="", ranks=len(numbers), slots=tuple(sorted(numbers)))
        for host, numbers in slots.items()
    )
    return [RunRecord(id="r1", cluster="lab", image="i", command=("true",), places=places)]


@given(
    held=SLOTS,
    reserved=SLOTS,
    wish=st.fixed_dictionaries(
        {
            "np": st.none() | st.integers(1, 6),
            "npernode": st.none() | st.integers(1, 3),
            "share": st.sampled_from((0, 1)),
        }
    ),
    times=st.tuples(st.sampled_from((None, 50.0, 51.0)), st.sampled_from((None, 50.0))),
)
def test_reserved_slots_are_taken_only_in_time(
    held: dict[str, frozenset[int]],
    reserved: dict[str, frozenset[int]],
    wish: Any,
    times: tuple[float | None, float | None],
) -> None:
    limit, left = times
    first, runs = Reserved(run="r2", slots=reserved, left=left), living(held)
    expected = tried(partial(place_free, NODES, runs, **wish))
    made = tried(partial(place_past, NODES, runs, first, limit=limit, **wish))
    if isinstance(expected, KitError):
        # It does not fit in any case, and the reason is the same.
        assert str(made) == str(expected)
    elif isinstance(made, KitError):
        assert overlaps(first, expected)
        assert times != (50.0, 50.0)
        assert "r2, the first in line" in made.message
    else:
        assert sum(place.ranks for place in made) == sum(place.ranks for place in expected)
        assert not overlaps(first, made) or times == (50.0, 50.0)
        assert made == expected or overlaps(first, expected)


def tried(placed: Callable[[], tuple[Placement, tuple[Place, ...]]]) -> tuple[Place, ...] | KitError:
    try:
        return placed()[1]
    except KitError as error:
        return error


def test_a_run_that_waits_gets_places_in_any_case() -> None:
    first = Reserved(run="r2", slots={"gpu1": frozenset({0})})
    assert place_past(NODES, [], first, limit=None, np=6, wait=True)[0].np == 6
    assert place_past(NODES, living({"gpu1": frozenset({0, 1})}), first, limit=None, np=6, wait=True)[0].np == 6
    # It does not wait if it need not.
    (only,) = place_past(NODES, [], first, limit=None, np=1, wait=True)[1]
    assert (only.node, only.slots) == ("gpu1", (1,))


@pytest.mark.parametrize(("limit", "fits"), [(50.0, True), (51.0, False), (None, False)])
def test_a_run_that_ends_in_time_may_take_reserved_slots(limit: float | None, *, fits: bool) -> None:
    first = Reserved(run="r2", slots={"gpu1": frozenset({0})}, left=50.0)
    made = tried(partial(place_past, NODES, [], first, limit=limit, np=6))
    assert isinstance(made, NotReadyError) is not fits


def test_a_run_that_shares_slots_is_checked() -> None:
    first = Reserved(run="r2", slots={"gpu1": frozenset({0})}, left=600.0)
    there = [Place(node="gpu1", address="", ranks=9, slots=(0, 1))]
    with pytest.raises(NotReadyError, match="9 free slots") as caught:
        check(9, there, first, limit=None)
    assert "at most 10 minutes" in str(caught.value.hint)
    check(9, there, first, limit=600.0)
    with pytest.raises(NotReadyError):
        check(9, there, first, limit=601.0)
    # No time limit is short enough if nobody knows when the slots are needed, or if that is within a minute.
    for left in (None, 59.0):
        with pytest.raises(NotReadyError) as caught:
            check(9, there, replace(first, left=left), limit=60.0)
        assert "--timeout" not in str(caught.value.hint)
    check(9, [Place(node="gpu2", address="", ranks=9, slots=(0, 1))], first, limit=None)


def test_what_the_head_says_is_reserved_is_checked() -> None:
    assert answers.reserved(None) is None
    run = "20261121-101500-3fa2"
    good: dict[str, Any] = {"id": run, "slots": {"gpu1": [0, 1]}, "left": 5.5}
    assert answers.reserved(good) == Reserved(run=run, slots={"gpu1": frozenset({0, 1})}, left=5.5)
    for wrong in ({"id": "../x"}, {"id": ""}, {"left": -1.0}, {"left": "soon"}, {"slots": [1]}, {"slots": {"a": "b"}}):
        with pytest.raises(OddAnswer):
            answers.reserved({**good, **wrong})
