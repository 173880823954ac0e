"""Which link is slow, of very many."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from kit.plan.blame import links


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
