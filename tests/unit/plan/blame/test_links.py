"""Which link is slow, of very many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import permutations
from typing import Any

import pytest

from kit.model.blame import HostInterval, Peer, Watched
from kit.model.values import replace
from kit.plan.blame import links
from kit.plan.blame.samples import Sample


@pytest.mark.parametrize(
    ("direction", "slow"),
    [
        ("sends", lambda source, _target: source == "gpu7"),
        ("receives", lambda _source, target: target == "gpu7"),
        ("sends and receives", lambda source, target: "gpu7" in (source, target)),
    ],
)
def test_each_flow_is_only_compared_with_its_own_hosts(
    monkeypatch: pytest.MonkeyPatch, direction: str, slow: Callable[[str, str], bool]
) -> None:
    """With 1,000 hosts, a comparison of each flow with each host takes minutes."""
    asked = 0

    def counted(slows: Callable[..., bool]) -> Callable[..., bool]:
        def ask(*words: Any) -> bool:
            nonlocal asked
            asked += 1
            return slows(*words)

        return ask

    monkeypatch.setattr(links, "_WAYS", tuple((way, counted(slows)) for way, slows in links._WAYS))
    hosts = [f"gpu{n}" for n in range(1, 31)]
    flows = [
        links._Flow(source=one, target=other, sent=1e9, busy=5.0 if slow(one, other) else 1.0)
        for one, other in permutations(hosts, 2)
    ]
    suspicion = links._suspicion(flows, hosts)
    assert suspicion is not None
    assert (suspicion.host, suspicion.direction) == ("gpu7", direction)
    assert (suspicion.rate, suspicion.usual) == pytest.approx((0.2e9, 1e9))
    # Each flow has two hosts, and there are three ways.
    assert asked == 6 * len(flows)


def test_a_flow_that_is_all_there_is_has_nothing_to_compare_with() -> None:
    assert links._suspicion([links._Flow(source="gpu1", target="gpu2", sent=1e9, busy=5.0)], ["gpu1", "gpu2"]) is None


# Three hosts in a ring, where each sends 1 GB/s to the next one while bytes are under way.
RING = {"gpu1": "gpu2", "gpu2": "gpu3", "gpu3": "gpu1"}
ADDRESSES = {host: f"10.0.0.{number}" for number, host in enumerate(RING, 1)}


def peer(target: str, rate: float, *, sent: float = 400e6) -> Peer:
    return Peer(address=ADDRESSES.get(target, target), sent=int(sent), busy=sent / rate)


def ring(
    rate: float,
    *,
    looks: int = 10,
    slow: int | None = None,
    more: Mapping[str, Peer] | None = None,
    seconds: float = 1.0,
) -> Watched:
    """Return a run in which gpu2 sends at this rate in all looks, or in the first `slow` of them.

    `more` has another peer of some hosts. gpu4 is a host of the run that kit does not see.
    """

    def interval(host: str, number: int, length: float) -> HostInterval:
        own = rate if host == "gpu2" and (slow is None or number < slow) else 1e9
        others = [more[host]] if more and host in more else []
        return HostInterval(seconds=length, cores=2, peers=(peer(RING[host], own), *others))

    # What was sent before the first look belongs to another time.
    return Watched(
        run="r",
        hosts={
            host: (interval(host, 0, 0.0), *(interval(host, number, seconds) for number in range(looks)))
            for host in RING
        },
        addresses={**ADDRESSES, "gpu4": "10.0.0.4"},
        gpus={},
    )


def operations(share: float = 0.4) -> list[Sample]:
    ranks = dict.fromkeys(range(3), 0.0)
    return [Sample(seconds=1.0, wait=ranks, tail=ranks, operation=dict.fromkeys(ranks, share), steps=2.0)]


def test_a_slow_link_is_named_with_its_rates_and_what_it_costs() -> None:
    link = links.slow_link(ring(0.5e9), operations())
    assert link is not None
    assert (link.host, link.direction, link.wins, link.samples) == ("gpu2", "sends", 10, 10)
    assert (link.rate, link.usual, link.share) == pytest.approx((0.5e9, 1e9, 0.4 * 0.5))
    # Operations of several ranks at once take no more than all of the time.
    always = links.slow_link(ring(0.5e9), operations(1.5))
    assert always is not None
    assert always.share == pytest.approx(0.5)


@pytest.mark.parametrize(("rate", "named"), [(0.74e9, True), (0.76e9, False), (1e9, False)])
def test_paths_that_differ_by_less_than_a_quarter_are_no_fault(rate: float, named: bool) -> None:
    assert (links.slow_link(ring(rate), operations()) is not None) is named


@pytest.mark.parametrize(("operation", "named"), [(0.11, True), (0.09, False)])
def test_a_slow_link_that_costs_less_than_5_percent_is_not_named(operation: float, named: bool) -> None:
    assert (links.slow_link(ring(0.5e9), operations(operation)) is not None) is named


@pytest.mark.parametrize(("looks", "named"), [(4, False), (5, False), (6, True), (10, True)])
def test_a_link_that_is_slow_in_few_looks_may_be_chance(looks: int, named: bool) -> None:
    """Of three hosts, one has the slowest flow five times of five in 1 of 81 runs."""
    assert (links.slow_link(ring(0.5e9, looks=looks), operations()) is not None) is named


def test_a_link_that_was_slow_for_a_moment_is_not_named() -> None:
    """Over the whole time, it is slow. It was in one of ten looks only."""
    whole = ring(0.02e9, slow=1)
    assert links.slow_link(whole, operations()) is None


@pytest.mark.parametrize(
    "more",
    [
        Peer(address="10.9.0.7", sent=4_000_000, busy=0.7),
        Peer(address="10.0.0.4", sent=4_000_000, busy=0.7),
        Peer(address=ADDRESSES["gpu1"], sent=4_000_000, busy=0.7),
        Peer(address=ADDRESSES["gpu3"], sent=4_000_000_000, busy=0.0),
    ],
    ids=["no host of the run", "a host that kit does not see", "itself", "never under way"],
)
def test_what_is_no_exchange_of_the_run_makes_no_link_slow(more: Peer) -> None:
    assert links.slow_link(ring(1e9, more={"gpu1": more}), operations()) is None


@pytest.mark.parametrize(
    ("sent", "seconds", "host"), [(99_000, 1.0, None), (101_000, 1.0, "gpu1"), (199_000, 2.0, None), (4e6, 1.0, "gpu1")]
)
def test_words_of_ssh_are_no_exchange(sent: float, seconds: float, host: str | None) -> None:
    more = Peer(address=ADDRESSES["gpu3"], sent=int(sent), busy=0.9)
    link = links.slow_link(ring(1e9, more={"gpu1": more}, seconds=seconds), operations())
    assert (link.host if link else None) == host


def test_without_samples_or_other_hosts_no_link_is_slow() -> None:
    whole = ring(0.5e9)
    assert links.slow_link(whole, []) is None
    assert links.slow_link(replace(whole, hosts={"gpu2": whole.hosts["gpu2"]}), operations()) is None
    assert (
        links.slow_link(replace(whole, hosts={host: row[:1] for host, row in whole.hosts.items()}), operations())
        is None
    )
