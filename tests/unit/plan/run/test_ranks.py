"""Tests the placement: small cases, the arithmetic of messages, and properties of any cluster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.errors import InputError
from kit.model.launch import Node, Placement
from kit.plan.run.ranks import place


def nodes(*slots: int) -> list[Node]:
    return [Node(name=f"n{i}", address=f"10.0.0.{i}", slots=s) for i, s in enumerate(slots, 1)]


def counts(placement: Placement) -> dict[str, int]:
    return {node.name: count for node, count in zip(placement.nodes, placement.counts, strict=True)}


@pytest.mark.parametrize(
    ("slots", "np", "npernode", "oversubscribe", "expected"),
    [
        # Without a number, every slot gets a rank.
        ((2, 2, 2, 2), None, None, False, {"n1": 2, "n2": 2, "n3": 2, "n4": 2}),
        ((8,), None, None, False, {"n1": 8}),
        ((1, 4), None, None, False, {"n1": 1, "n2": 4}),
        # np fills the nodes in order; a node without ranks is left out.
        ((2, 2, 2), 3, None, False, {"n1": 2, "n2": 1}),
        ((2, 2, 2), 2, None, False, {"n1": 2}),
        ((4, 4), 8, None, False, {"n1": 4, "n2": 4}),
        # npernode on every node, or until np is reached.
        ((4, 4), None, 1, False, {"n1": 1, "n2": 1}),
        ((4, 4, 4, 4), 8, 2, False, {"n1": 2, "n2": 2, "n3": 2, "n4": 2}),
        ((4, 4, 4, 4), 4, 2, False, {"n1": 2, "n2": 2}),
        ((4, 4), 3, 2, False, {"n1": 2, "n2": 1}),
        # A small node is no problem if it is not needed, or if the rest fits on it.
        ((2, 2, 1), 4, 2, False, {"n1": 2, "n2": 2}),
        ((2, 1), 3, 2, False, {"n1": 2, "n2": 1}),
        # --oversubscribe: exactly npernode; without it, full rounds, and the rest on the first nodes.
        ((1, 1), None, 4, True, {"n1": 4, "n2": 4}),
        ((2, 2), 8, None, True, {"n1": 4, "n2": 4}),
        ((2, 2), 5, None, True, {"n1": 3, "n2": 2}),
        ((1, 3), 6, None, True, {"n1": 2, "n2": 4}),
        # --oversubscribe changes nothing if the ranks fit.
        ((2, 2), 3, None, True, {"n1": 2, "n2": 1}),
    ],
)
def test_placement(
    slots: tuple[int, ...], np: int | None, npernode: int | None, oversubscribe: bool, expected: dict[str, int]
) -> None:
    assert counts(place(nodes(*slots), np=np, npernode=npernode, oversubscribe=oversubscribe)) == expected


@pytest.mark.parametrize(
    ("slots", "np", "npernode", "oversubscribe", "message", "hint"),
    [
        ((), 1, None, False, "no host can run ranks", "-H"),
        ((2,), 0, None, False, "--np 0 is not a number of ranks", "--np with a number from 1"),
        ((2,), None, -1, False, "--npernode -1 is not", "--npernode with"),
        ((2, 2), 5, None, False, "--np 5 is more than the 4 slots of 2 hosts (n1 2, n2 2)", "--np 4"),
        ((2,), 3, None, False, "the 2 slots of 1 host (n1 2)", "--oversubscribe"),
        ((4, 4), 10, 2, False, "--npernode 2 × 2 hosts = 4 ranks, fewer than --np 10", "--npernode 5, or --np 4"),
        # --oversubscribe does not change the arithmetic.
        ((4, 4), 10, 2, True, "--npernode 2 × 2 hosts = 4 ranks", "--npernode 5"),
        ((4, 1), None, 2, False, "--npernode 2 is more than the 1 slots of n2", "--npernode 1"),
        ((1,) * 9, 10, None, False, "n8 1, …)", "--np 9"),
    ],
)
def test_refusals_count(  # noqa: PLR0917
    slots: tuple[int, ...], np: int | None, npernode: int | None, oversubscribe: bool, message: str, hint: str
) -> None:
    with pytest.raises(InputError) as caught:
        place(nodes(*slots), np=np, npernode=npernode, oversubscribe=oversubscribe)
    assert message in caught.value.message
    assert caught.value.hint is not None
    assert hint in caught.value.hint
    assert caught.value.exit_code == 2


SLOTS = st.lists(st.integers(1, 16), min_size=1, max_size=20)
COUNT = st.none() | st.integers(1, 400)


@given(SLOTS, COUNT, COUNT, st.booleans())
def test_laws_of_placement(slots: list[int], np: int | None, npernode: int | None, oversubscribe: bool) -> None:
    all_nodes = nodes(*slots)
    try:
        placement = place(all_nodes, np=np, npernode=npernode, oversubscribe=oversubscribe)
    except InputError:
        # A refusal means that the ranks really do not fit.
        too_few = np is not None and npernode is not None and npernode * len(slots) < np
        over = np is not None and np > sum(slots)
        uneven = npernode is not None and npernode > min(slots)
        assert too_few or (not oversubscribe and (over or uneven))
        return
    assert placement.np == sum(placement.counts)
    assert np is None or placement.np == np
    assert all(count > 0 for count in placement.counts)
    places = [all_nodes.index(node) for node in placement.nodes]
    assert places == sorted(set(places))
    if npernode is not None:
        assert max(placement.counts) <= npernode
    if not oversubscribe:
        assert all(count <= node.slots for node, count in zip(placement.nodes, placement.counts, strict=True))


def test_ten_thousand_hosts_are_placed_in_order() -> None:
    placement = place([Node(name=f"n{i}", address="10.0.0.1", slots=8) for i in range(10_000)], np=79_999)
    assert placement.np == 79_999
    assert placement.counts[-1] == 7
