"""A path that loses large packets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kit.model.doctor import Check, Examined, PairSeen, Sight
from kit.model.values import replace
from kit.plan.doctor import links

# In bytes/s: a stream that stops reaches less. The first packets of one are small.
CARRIES = 1e6
# The ends of a pair (source, target) at which a host is that is named for a direction.
_ENDS = {"in": slice(1, 2), "out": slice(0, 1), "both": slice(0, 2)}


def lossy(examined: Examined) -> dict[links.Pair, tuple[PairSeen, int]]:
    """Return the pairs whose path carries less than the interfaces of both ends, each with what these carry."""
    local = {pair.source: pair.mtu_local for pair in examined.pairs if pair.mtu_local}
    made = {}
    for pair in examined.pairs:
        if pair.mtu is not None and pair.mtu_local:
            # Where the ends differ, TCP sends no more than the smaller one takes.
            least = min(pair.mtu_local, local.get(pair.target, pair.mtu_local))
            if pair.mtu < least:
                made[pair.source, pair.target] = (pair, least)
    return made


def stopped(examined: Examined) -> dict[links.Pair, tuple[PairSeen, int]]:
    """Return those of the lossy pairs over which TCP carried next to nothing, or was not measured."""
    return {pair: value for pair, value in lossy(examined).items() if (value[0].rate or 0.0) < CARRIES}


def judge(examined: Examined) -> Iterator[Sight]:
    bad = lossy(examined)
    hung = stopped(examined)
    tried = [(pair.source, pair.target) for pair in examined.pairs if pair.mtu is not None]
    yield from _sights(hung, tried)
    # The probe ignores what routers answer. TCP does not, so behind a gateway with a smaller MTU it works.
    adapted = {pair: value for pair, value in bad.items() if pair not in hung}
    for sight in _sights(adapted, [pair for pair in tried if pair not in hung]):
        fix = f"nothing for TCP; for other protocols, {sight.fix}"
        yield replace(sight, seen=f"{sight.seen}; TCP adapts to that", severity="watch", fix=fix)


def _sights(bad: Mapping[links.Pair, tuple[PairSeen, int]], tried: Sequence[links.Pair]) -> Iterator[Sight]:
    blamed, rest = links.blame(bad, tried, directed=True)
    for one in blamed:
        # A path to another such host is that host's, and may carry less. If all paths are lossy, kit names each host,
        # also one that only sent.
        own = [pair for pair in bad if one.host in pair[_ENDS[one.direction]]]
        ends = [bad[pair] for pair in own or bad if one.host in pair]
        size, least = min(seen.mtu or 0 for seen, _ in ends), max(least for _, least in ends)
        word = {"in": "that it receives", "out": "that it sends", "both": "that it sends or receives"}[one.direction]
        yield Sight(
            hosts=(one.host,),
            seen=f"packets {word} arrive up to {size} bytes; its MTU is {least}",
            fix=_fix(size, least),
        )
    for pair in rest:
        seen, least = bad[pair]
        size = seen.mtu or 0
        yield Sight(hosts=pair, seen=f"packets arrive up to {size} bytes; the MTU is {least}", fix=_fix(size, least))


def _fix(size: int, least: int) -> str:
    return f"on all hosts: sudo ip link set dev INTERFACE mtu {size}; or let the network carry {least} bytes"


CHECK = Check(
    id="path-mtu",
    title="Large packets do not arrive",
    area="pair",
    severity="breaks",
    judge=judge,
    measures=True,
    leads_to="Small messages work, and large ones hang: ssh answers, and an all-reduce stops. Where TCP adapts, only "
    "protocols without that, such as UDP, lose packets.",
    fix="Set one MTU on all hosts that their network carries: `sudo ip link set dev INTERFACE mtu SIZE`.",
    lab="kit lab fault HOST path-mtu",
)
