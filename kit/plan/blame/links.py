"""Decides which host's link is slow, if one is: by how fast bytes left while any were under way. Pure.

All ranks of a ring send as many bytes as the slowest link lets through. So rates per second are alike on all hosts, and
say nothing. The kernel counts for each TCP connection how long it had bytes under way. A fast link is idle for most of
that time, and a slow one is never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median

from msgspec import Struct

from kit.model.blame import HostInterval, Watched
from kit.plan.blame.lateness import CHANCE, LEAST_SHARE, tail
from kit.plan.blame.samples import Sample

# A link is slow if it lets through this part of what the others do. Less is the usual difference between paths.
SLOW = 0.75
# Bytes per second between two hosts that are no training, but words of ssh and of Open MPI.
LEAST_RATE = 100e3


class _Flow(Struct, frozen=True, kw_only=True):
    source: str
    target: str
    sent: float
    busy: float


# Which flows a fault of a host's link would slow: those that it sends, those that it receives, or both. What one host
# sends slowly to its only neighbor in a ring, that one receives slowly. Limits are mostly on what is sent, so that
# comes first.
_WAYS: tuple[tuple[str, Callable[[_Flow, str], bool]], ...] = (
    ("sends", lambda flow, host: flow.source == host),
    ("sends and receives", lambda flow, host: host in (flow.source, flow.target)),
    ("receives", lambda flow, host: flow.target == host),
)


class SlowLink(Struct, frozen=True, kw_only=True):
    """The host, the direction in which its link is slow, and rates in bytes per second: its own and the others'.

    `share` is the part of the time that the operations take longer by it.
    """

    host: str
    direction: str
    rate: float
    usual: float
    share: float
    wins: int
    samples: int


class _Suspicion(Struct, frozen=True, kw_only=True):
    """A fault that would explain the rates: of the flows that it slows (`rate`), and of the others (`usual`)."""

    host: str
    direction: str
    rate: float
    usual: float

    @property
    def contrast(self) -> float:
        return self.usual / self.rate


def slow_link(watched: Watched, samples: Sequence[Sample]) -> SlowLink | None:
    """Return the slow link, or None. It is the one whose fault separates slow and fast flows best."""
    if not samples or len(watched.hosts) < 2:
        return None
    rounds = [list(_flows(row, watched)) for row in _rows(watched)]
    rounds = [flows for flows in rounds if len(flows) > 1]
    best = [suspicion.host for flows in rounds if (suspicion := _suspicion(flows, watched.hosts))]
    whole = _suspicion(_joined([flow for flows in rounds for flow in flows]), watched.hosts)
    if whole is None or whole.rate > SLOW * whole.usual:
        return None
    wins = best.count(whole.host)
    if len(watched.hosts) * tail(len(best), wins, 1 / len(watched.hosts)) > CHANCE:
        return None
    operation = median(value for sample in samples for value in sample.operation.values())
    share = min(operation, 1.0) * (1 - whole.rate / whole.usual)
    if share < LEAST_SHARE:
        return None
    return SlowLink(
        host=whole.host,
        direction=whole.direction,
        rate=whole.rate,
        usual=whole.usual,
        share=share,
        wins=wins,
        samples=len(best),
    )


def _suspicion(flows: Sequence[_Flow], hosts: Iterable[str]) -> _Suspicion | None:
    """Return the fault with the greatest contrast between the flows that it slows and the others."""
    best: _Suspicion | None = None
    # What is not a host's own is the rest of these sums. With 1,000 hosts, adding it up for each takes minutes.
    sent, busy = sum(flow.sent for flow in flows), sum(flow.busy for flow in flows)
    by_host: dict[str, list[_Flow]] = {}
    for flow in flows:
        by_host.setdefault(flow.source, []).append(flow)
        by_host.setdefault(flow.target, []).append(flow)
    for direction, slows in _WAYS:
        for host in hosts:
            own = [flow for flow in by_host.get(host, ()) if slows(flow, host)]
            rest = busy - sum(flow.busy for flow in own)
            if 0 < len(own) < len(flows) and rest > 0:
                usual = (sent - sum(flow.sent for flow in own)) / rest
                suspicion = _Suspicion(host=host, direction=direction, rate=_rate(own), usual=usual)
                # Rates of two faults that slow the same flows differ by rounding only.
                best = suspicion if best is None or suspicion.contrast > 1.001 * best.contrast else best
    return best


def _rows(watched: Watched) -> Iterator[dict[str, HostInterval]]:
    """Yield the intervals of all hosts at the same time, without the first look, which has no length."""
    for row in zip(*watched.hosts.values(), strict=False):
        if all(interval.seconds > 0 for interval in row):
            yield dict(zip(watched.hosts, row, strict=True))


def _flows(row: Mapping[str, HostInterval], watched: Watched) -> Iterator[_Flow]:
    names = {address: name for name, address in watched.addresses.items()}
    for source, interval in row.items():
        for peer in interval.peers:
            target = names.get(peer.address, source)
            if target in row and target != source and peer.sent > LEAST_RATE * interval.seconds and peer.busy > 0:
                yield _Flow(source=source, target=target, sent=peer.sent, busy=peer.busy)


def _joined(flows: Sequence[_Flow]) -> list[_Flow]:
    sums: dict[tuple[str, str], tuple[float, float]] = {}
    for flow in flows:
        sent, busy = sums.get((flow.source, flow.target), (0.0, 0.0))
        sums[flow.source, flow.target] = (sent + flow.sent, busy + flow.busy)
    return [_Flow(source=a, target=b, sent=sent, busy=busy) for (a, b), (sent, busy) in sums.items()]


def _rate(flows: Sequence[_Flow]) -> float:
    busy = sum(flow.busy for flow in flows)
    return sum(flow.sent for flow in flows) / busy if busy > 0 else 0.0
