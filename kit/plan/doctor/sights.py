"""What checks share with a deploy: its problems as sights, and the facts that it observes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kit.errors import KitError
from kit.model.doctor import Examined, Sight
from kit.model.launch import Node
from kit.model.observed import HostFacts


def facts_of(examined: Examined) -> list[HostFacts]:
    """Return what a deploy observes, of the hosts that kit could observe."""
    return [host.facts for host in examined.hosts if host.facts is not None]


def nodes_of(examined: Examined) -> Sequence[Node]:
    """Return the hosts that have a place in the cluster."""
    return [host.node for host in examined.hosts if host.node is not None]


def idle_of(examined: Examined) -> str:
    """Return the name of the head if it runs no ranks, or "". It may be smaller than the hosts that do."""
    return "" if examined.spec.head_runs_ranks else examined.head


def sights_of(problems: Iterable[KitError | None]) -> Iterator[Sight]:
    """Yield the problems of a deploy as sights of their hosts."""
    for problem in problems:
        if problem is not None:
            yield Sight(hosts=(problem.host,) if problem.host else (), seen=problem.message, fix=problem.hint or "")
