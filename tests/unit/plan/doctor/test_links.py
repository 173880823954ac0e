"""Which links are slow, and which host causes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.model.doctor import PairSeen
from kit.model.values import replace
from kit.plan.doctor import links

FAST = 1.25e9


def pairs(count: int, rate: Callable[[str, str], float | None], trip_s: float = 1e-4) -> list[PairSeen]:
    names = [f"gpu{n}" for n in range(1, count + 1)]
    return [
        PairSeen(source=one, target=other, address="", rate=rate(one, other), rtt_s=trip_s)
        for one, other in permutations(names, 2)
    ]


@pytest.mark.parametrize("count", [3, 4, 5, 8])
def test_a_slow_host_has_only_slow_links(count: int) -> None:
    seen = pairs(count, lambda one, other: FAST / 10 if "gpu2" in (one, other) else FAST)
    assert {*links.slow(seen)} == {tuple(sorted(("gpu2", f"gpu{n}"))) for n in range(1, count + 1) if n != 2}
    assert links.lopsided(seen) == ()
    blamed, rest = links.blame(links.slow(seen), links.best_rates(seen), directed=False)
    assert (blamed, rest) == ([links.Blame(host="gpu2", direction="both")], [])


def test_two_of_four_slow_hosts() -> None:
    seen = pairs(4, lambda one, other: FAST / 10 if {"gpu2", "gpu3"} & {one, other} else FAST)
    blamed, _ = links.blame(links.slow(seen), links.best_rates(seen), directed=False)
    assert [one.host for one in blamed] == ["gpu2", "gpu3"]


def test_one_slow_link_is_no_host() -> None:
    seen = pairs(4, lambda one, other: FAST / 10 if {one, other} == {"gpu2", "gpu3"} else FAST)
    assert links.blame(links.slow(seen), links.best_rates(seen), directed=False) == ([], [("gpu2", "gpu3")])


def test_two_hosts_have_nothing_to_compare_with() -> None:
    assert links.slow(pairs(2, lambda *_: 1.0)) == ()
    assert links.slow([]) == links.lopsided([]) == links.late([]) == links.suspects([]) == ()


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_a_host_that_sends_slowly(count: int) -> None:
    seen = pairs(count, lambda one, _: FAST / 10 if one == "gpu2" else FAST)
    assert {*links.lopsided(seen)} == {("gpu2", f"gpu{n}") for n in range(1, count + 1) if n != 2}
    assert links.slow(seen) == ()
    tried = [(pair.source, pair.target) for pair in seen]
    blamed, rest = links.blame(links.lopsided(seen), tried, directed=True)
    if count > 2:
        assert (blamed, rest) == ([links.Blame(host="gpu2", direction="out")], [])
    else:
        # Either end may be the reason.
        assert (blamed, rest) == ([], [("gpu2", "gpu1")])


def test_a_direction_that_is_unknown_is_as_fast_as_the_other() -> None:
    seen = pairs(3, lambda one, other: None if one == "gpu3" else FAST)
    assert links.slow(seen) == links.lopsided(seen) == ()


def test_a_late_host() -> None:
    seen = [
        PairSeen(source=one, target=other, address="", rtt_s=0.012 if "gpu3" in (one, other) else 2e-4)
        for one, other in permutations(("gpu1", "gpu2", "gpu3", "gpu4"), 2)
    ]
    assert {*links.late(seen)} == {("gpu1", "gpu3"), ("gpu2", "gpu3"), ("gpu3", "gpu4")}
    # Four times a tiny round trip is no fault.
    assert links.late(pairs(3, lambda *_: FAST, trip_s=1e-5)) == ()


def test_a_wait_for_a_core_is_never_a_fault_of_a_calm_link() -> None:
    """On busy hosts with a limited network, what a link may be is far above what any link is."""
    busy = [replace(pair, possible=FAST * 3.3) for pair in pairs(4, lambda *_: FAST)]
    calm = [
        replace(pair, possible=FAST * 1.2) if {pair.source, pair.target} == {"gpu2", "gpu4"} else pair for pair in busy
    ]
    assert links.suspects(calm) == ()
    assert links.reference(calm) == FAST
    # A suspect has the benefit of the doubt.
    waited = [replace(pair, possible=FAST) for pair in pairs(4, lambda one, _: FAST / 3 if one == "gpu2" else FAST)]
    assert links.suspects(waited) == ()


@given(st.integers(2, 9), st.data())
def test_noise_is_not_a_fault(count: int, data: st.DataObject) -> None:
    """Rates that differ by less than the factor, and trips by less than a millisecond, suspect nobody."""
    rates = st.floats(FAST / links.SLOW * 1.01, FAST)
    names = [f"gpu{n}" for n in range(count)]
    seen = [
        PairSeen(
            source=one, target=other, address="", rate=data.draw(rates), rtt_s=data.draw(st.floats(1e-5, links.LATE_S))
        )
        for one, other in permutations(names, 2)
    ]
    assert links.suspects(seen) == ()


@given(st.integers(2, 7), st.data())
def test_blame_explains_each_bad_pair_once(count: int, data: st.DataObject) -> None:
    names = [f"gpu{n}" for n in range(count)]
    for directed, tried in ((True, list(permutations(names, 2))), (False, list(combinations(names, 2)))):
        bad = data.draw(st.lists(st.sampled_from(tried), unique=True))
        blamed, rest = links.blame(bad, tried, directed=directed)
        assert {*rest} <= {*bad}
        hosts = {one.host: one.direction for one in blamed}
        for source, target in {*bad} - {*rest}:
            assert hosts.get(source) in ("out", "both") or hosts.get(target) in ("in", "both")


def test_everything_is_closed() -> None:
    tried = list(permutations(("gpu1", "gpu2", "gpu3"), 2))
    blamed, rest = links.blame(tried, tried, directed=True)
    assert rest == []
    assert {one.host for one in blamed} == {"gpu1", "gpu2", "gpu3"}


def test_suspects_are_links_in_the_order_of_the_hosts() -> None:
    seen = pairs(4, lambda one, _: FAST / 10 if one == "gpu3" else FAST)
    assert links.suspects(seen) == (("gpu1", "gpu3"), ("gpu2", "gpu3"), ("gpu3", "gpu4"))


def test_a_link_that_is_slow_in_both_directions_is_not_lopsided() -> None:
    rates = {("gpu1", "gpu2"): FAST / 40, ("gpu2", "gpu1"): FAST / 10}
    seen = pairs(3, lambda one, other: rates.get((one, other), FAST))
    assert links.slow(seen) == (("gpu1", "gpu2"),)
    assert links.lopsided(seen) == ()


def test_a_thousand_bad_pairs_are_judged_at_once() -> None:
    """With 256 hosts, a search over all pairs for each host takes minutes."""
    names = [f"gpu{n}" for n in range(256)]
    tried = [(one, names[(at + 2**k) % 256]) for at, one in enumerate(names) for k in range(8)]
    bad = [pair for number, pair in enumerate(tried) if number % 3]
    began = time.process_time()
    blamed, rest = links.blame(bad, tried, directed=True)
    assert len(blamed) > 100
    assert {*rest} < {*bad}
    assert time.process_time() - began < 5


def test_a_busy_host_that_sends_very_slowly_is_lopsided() -> None:
    rates = {("gpu1", "gpu2"): FAST / 400, ("gpu2", "gpu1"): FAST / 4}
    seen = pairs(3, lambda one, other: rates.get((one, other), FAST))
    assert links.slow(seen) == ()
    assert links.lopsided(seen) == (("gpu1", "gpu2"),)
