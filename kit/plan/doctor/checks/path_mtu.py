"""A path that loses large packets."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, PairSeen, Sight
from kit.plan.doctor import links


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


def judge(examined: Examined) -> Iterator[Sight]:
    bad = lossy(examined)
    tried = [(pair.source, pair.target) for pair in examined.pairs if pair.mtu is not None]
    blamed, rest = links.blame(bad, tried, directed=True)
    for one in blamed:
        ends = [value for pair, value in bad.items() if one.host in pair]
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
    leads_to="Small messages work, and large ones hang: ssh answers, and an all-reduce stops.",
    fix="Set one MTU on all hosts that their network carries: `sudo ip link set dev INTERFACE mtu SIZE`.",
    lab="kit lab fault HOST path-mtu",
)
