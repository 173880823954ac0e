"""Tests which slots a run gets, and the message of a refusal."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kit.errors import InputError, NotReadyError
from kit.model.launch import Node
from kit.model.run import Place, RunRecord
from kit.model.values import replace
from kit.plan.run.leases import place_free, places, taken
from kit.plan.run.ranks import place
from tests.fakes.facts import node


def record(run: str, *held: Place, by: str = "me@here") -> RunRecord:
    return RunRecord(id=run, cluster="lab", image="i", command=("true",), places=held, by=by)


def held(number: int, *slots: int) -> Place:
    return Place(node=f"gpu{number}", address=f"10.0.0.{number}", ranks=len(slots), slots=slots)


NODES = st.lists(st.integers(1, 5), min_size=1, max_size=5).map(
    lambda slots: [node(number, slots=count) for number, count in enumerate(slots, 1)]
)
WISHES = st.lists(st.tuples(st.none() | st.integers(1, 12), st.none() | st.integers(1, 4)), min_size=1, max_size=8)


@given(NODES, WISHES)
def test_no_slot_is_given_twice(nodes: list[Node], wishes: list[tuple[int | None, int | None]]) -> None:
    """Runs start one after the other as long as they fit, and none ends."""
    living: list[RunRecord] = []
    slots = {node.name: node.slots for node in nodes}
    for np, npernode in wishes:
        try:
            placement, chosen = place_free(nodes, living, np=np, npernode=npernode)
        except InputError:
            with pytest.raises(InputError):
                place(nodes, np=np, npernode=npernode)
            continue
        except NotReadyError:
            assert living
            continue
        assert [(p.node, p.ranks) for p in chosen] == [
            (n.name, count) for n, count in zip(placement.nodes, placement.counts, strict=True)
        ]
        for chosen_place in chosen:
            assert len(chosen_place.slots) == chosen_place.ranks > 0
            assert set(chosen_place.slots) <= set(range(slots[chosen_place.node]))
        # The placement keeps all slots of a node, held or not. KIT_HELD_SLOTS depends on it.
        assert all(n.slots == slots[n.name] for n in placement.nodes)
        assert np is None or placement.np == np
        assert npernode is None or max(placement.counts) <= npernode
        living.append(record(f"r{len(living)}", *chosen))
    given_out = [
        (chosen_place.node, slot) for run in living for chosen_place in run.places for slot in chosen_place.slots
    ]
    assert len(given_out) == len(set(given_out))


@given(NODES, st.none() | st.integers(1, 12), st.none() | st.integers(1, 4))
def test_an_empty_cluster_is_filled_as_ever(nodes: list[Node], np: int | None, npernode: int | None) -> None:
    try:
        expected = place(nodes, np=np, npernode=npernode)
    except InputError:
        assume(False)
    placement, chosen = place_free(nodes, [], np=np, npernode=npernode)
    assert placement == expected
    assert [chosen_place.slots for chosen_place in chosen] == [tuple(range(count)) for count in expected.counts]


def test_the_free_slots_of_a_node_are_taken_in_order() -> None:
    nodes = [node(1, slots=4), node(2, slots=4)]
    living = [record("a", held(1, 0, 2)), record("b", held(2, 3))]
    placement, chosen = place_free(nodes, living, np=4)
    assert placement.counts == (2, 2)
    assert [chosen_place.slots for chosen_place in chosen] == [(1, 3), (0, 1)]
    # With npernode, a node with fewer free slots is left out.
    placement, chosen = place_free(nodes, living, np=3, npernode=3)
    assert [(chosen_place.node, chosen_place.slots) for chosen_place in chosen] == [("gpu2", (0, 1, 2))]


def test_the_last_node_needs_room_for_its_own_ranks_only() -> None:
    nodes = [node(1), node(2, slots=1)]
    placement, chosen = place_free(nodes, [record("a", held(9, 0))], np=3, npernode=2)
    assert placement.counts == (2, 1)
    assert [chosen_place.slots for chosen_place in chosen] == [(0, 1), (0,)]


def test_a_node_that_is_full_is_left_out() -> None:
    placement, chosen = place_free([node(1), node(2)], [record("a", held(1, 0, 1))], np=2)
    assert [chosen_place.node for chosen_place in chosen] == ["gpu2"]
    assert [n.name for n in placement.nodes] == ["gpu2"]


def test_a_refusal_names_who_holds_the_slots() -> None:
    nodes = [node(1), node(2)]
    living = [record("r1", held(1, 0, 1), by="ann@desk"), record("r2", held(2, 0), by=""), record("r3", held(9, 0))]
    with pytest.raises(NotReadyError) as caught:
        place_free(nodes, living)
    assert caught.value.message == (
        "4 free slots are needed, but other runs hold them: r1 of ann@desk, 2 ranks; r2, 1 rank"
    )
    assert "--wait" in str(caught.value.hint)
    assert "kit stop" in str(caught.value.hint)


def test_a_refusal_says_that_nobody_has_to_stop_a_lost_run() -> None:
    lost = replace(record("r1", held(1, 0)), state="lost")
    hint = str(taken(1, [lost]).hint)
    assert "run the same again then" in hint
    assert "kit stop" not in hint
    assert "kit stop" in str(taken(2, [lost, record("r2", held(1, 1))]).hint)
    assert "kit stop" in str(taken(2, []).hint)
    assert taken(1, [lost]).message == (
        "1 free slot is needed, but other runs hold them: r1 of me@here, which was lost with the head"
    )


def test_a_refusal_names_three_and_counts_the_others() -> None:
    message = taken(4, [record(f"r{n}", held(1, n)) for n in range(5)]).message
    assert message.endswith("r2 of me@here, 1 rank; and 2 more")
    assert "r3" not in message
    assert taken(4, [record(f"r{n}", held(1, n)) for n in range(3)]).message.endswith("r2 of me@here, 1 rank")


def test_a_waiting_run_gets_the_places_of_an_empty_cluster() -> None:
    nodes = [node(1), node(2)]
    placement, chosen = place_free(nodes, [record("a", held(1, 0, 1))], np=3, wait=True)
    assert placement.counts == (2, 1)
    assert [chosen_place.slots for chosen_place in chosen] == [(0, 1), (0,)]


def test_what_never_fits_is_not_waited_for() -> None:
    for wait in (False, True):
        with pytest.raises(InputError, match="more than the 2 slots"):
            place_free([node(1)], [record("a", held(1, 0))], np=3, wait=wait)


def test_more_ranks_than_slots_hold_all_of_them() -> None:
    placement = place([node(1)], np=5, oversubscribe=True)
    (only,) = places(placement, {"gpu1": range(2)})
    assert (only.ranks, only.slots) == (5, (0, 1))
    assert replace(only, ranks=2, of=0) == held(1, 0, 1)


def test_slots_of_another_division_of_a_host_hold_all_of_it() -> None:
    """With 2 slots on 4 GPUs, slot 0 has GPUs 0 and 1. With 4 slots, slot 1 has GPU 1."""
    place = Place(node="gpu1", address="10.0.0.1", ranks=1, slots=(0,), of=2)
    with pytest.raises(NotReadyError, match="other runs hold them: r1"):
        place_free([node(1, slots=4)], [record("r1", place)], np=1)
    placement, (chosen,) = place_free([node(1, slots=2)], [record("r1", place)], np=1)
    assert (placement.np, chosen.slots, chosen.of) == (1, (1,), 2)
    # Nothing of the run is there any more.
    gone = replace(place, slots=(), ranks=0)
    assert place_free([node(1, slots=4)], [record("r1", gone)], np=4)[0].np == 4
