"""Rounds in which kit doctor measures pairs."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.model.doctor import Pairing
from kit.plan.doctor import rounds

COUNTS = st.integers(min_value=0, max_value=70)


def hosts(count: int) -> list[str]:
    return [f"gpu{n}" for n in range(1, count + 1)]


@given(COUNTS, st.sampled_from(["all", "quick"]))
def test_no_host_is_in_two_measurements_of_a_round(count: int, pairing: Pairing) -> None:
    for one in rounds.rounds(hosts(count), pairing):
        busy = [name for pair in one for name in pair]
        assert one
        assert len(busy) == len({*busy})


@given(COUNTS)
def test_a_tournament_has_each_pair_once(count: int) -> None:
    made = rounds.rounds(hosts(count), "all")
    pairs = [pair for one in made for pair in one]
    assert sorted(pairs) == sorted(combinations(hosts(count), 2))
    assert len(made) == (0 if count < 2 else count - 1 + count % 2)


@given(COUNTS)
def test_quick_is_a_ring_and_the_powers_of_two(count: int) -> None:
    names = hosts(count)
    pairs = [pair for one in rounds.rounds(names, "quick") for pair in one]
    assert len(pairs) == len({*pairs})
    ring = {frozenset((names[n], names[(n + 1) % count])) for n in range(count)} if count > 1 else set()
    assert ring <= {frozenset(pair) for pair in pairs}
    place = {name: n for n, name in enumerate(names)}
    for one, other in pairs:
        apart = place[other] - place[one]
        assert 0 < apart < count
        assert {apart, count - apart} & {2**k for k in range(8)}
    most = max(Counter(name for pair in pairs for name in pair).values(), default=0)
    assert most <= (1 + math.log2(count) if count > 1 else 0)


def test_256_hosts_take_nine_quick_rounds() -> None:
    made = rounds.rounds(hosts(256), "quick")
    assert len(made) == 9
    assert {len(one) for one in made} == {128}


@given(COUNTS, st.sampled_from(["all", "quick", "none"]))
def test_both_directions_and_the_head_with_each_host(count: int, pairing: Pairing) -> None:
    names = hosts(count)
    tried = rounds.directions(names, pairing)
    assert len(tried) == len({*tried})
    assert {(target, source) for source, target in tried} == {*tried}
    if pairing == "none" or count < 2:
        assert tried == ()
        return
    assert {(names[0], other) for other in names[1:]} <= {*tried}
    assert {pair for one in rounds.rounds(names, pairing) for pair in one} <= {*tried}


def test_nothing_is_measured_without_a_pairing() -> None:
    assert rounds.rounds(hosts(4), "none") == ()


@given(st.sets(st.sampled_from(list(combinations(hosts(9), 2)))))
def test_any_pairs_become_disjoint_rounds(pairs: set[rounds.Pair]) -> None:
    made = rounds.disjoint(sorted(pairs))
    assert sorted(pair for one in made for pair in one) == sorted(pairs)
    for one in made:
        assert len({name for pair in one for name in pair}) == 2 * len(one)


@pytest.mark.parametrize(("count", "pairing"), [(2, "all"), (16, "all"), (17, "quick"), (256, "quick")])
def test_the_default(count: int, pairing: Pairing) -> None:
    assert rounds.default(count) == pairing
