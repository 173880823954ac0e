"""RDMA adapters without an active port, or without an address for RoCE v2."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Files, Seen, Sight
from kit.model.values import replace
from kit.plan.cluster.rdma import problems
from kit.plan.doctor.majority import odd
from kit.plan.doctor.sights import facts_of, sights_of

_PORTS = "/sys/class/infiniband/*/ports/*/"
_STATE = Files(pattern=f"{_PORTS}state")
_LAYER = Files(pattern=f"{_PORTS}link_layer")
# The first GIDs are the default ones and those of the interface's addresses.
_TYPES = Files(pattern=f"{_PORTS}gid_attrs/types/[0-9]")
_ACTIVE = "4: ACTIVE"
_SHOWN = 40


def _ports(host: Seen) -> dict[tuple[str, str], str]:
    """Return the state of each port, by adapter and number."""
    rows = {}
    for path, text in host.glob(_STATE.pattern).items():
        parts = path.split("/")
        if len(parts) == 8 and len(parts[4]) <= _SHOWN and parts[4].isprintable():
            rows[parts[4], parts[6]] = text[:_SHOWN].strip()
    return rows


def _roce_without_v2(host: Seen, ports: dict[tuple[str, str], str]) -> Iterator[str]:
    """Return the adapters that have an active Ethernet port, but no GID of RoCE v2."""
    types: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path, text in host.glob(_TYPES.pattern).items():
        parts = path.split("/")
        if len(parts) == 10:
            types[parts[4], parts[6]].append(text.strip())
    for path, layer in host.glob(_LAYER.pattern).items():
        key = (path.split("/")[4], path.split("/")[6]) if path.count("/") == 7 else ("", "")
        # An adapter without the files of types has a driver that does not write them.
        if layer.strip() == "Ethernet" and ports.get(key) == _ACTIVE and types[key] and "RoCE v2" not in types[key]:
            yield key[0]


def judge(examined: Examined) -> Iterator[Sight]:
    required = list(sights_of(problems(facts_of(examined), examined.spec)))
    for sight in required:
        yield replace(sight, severity="breaks")
    active: dict[str, str] = {}
    named = {name for sight in required for name in sight.hosts}
    for host in examined.hosts:
        ports = _ports(host)
        up = [key for key, state in ports.items() if state == _ACTIVE]
        if ports:
            active[host.name] = str(len(up))
        if ports and not up and host.name not in named:
            (adapter, _), state = next(iter(ports.items()))
            shown = state.partition(":")[2].strip() or "unknown"
            seen = f"no port is active: {adapter} is {shown if shown.isprintable() else 'unknown'}"
            yield Sight(hosts=(host.name,), seen=seen)
        for adapter in dict.fromkeys(_roce_without_v2(host, ports)):
            yield Sight(hosts=(host.name,), seen=f"{adapter} has no GID of RoCE v2")
    for name, value, usual in odd(active, int):
        if 0 < int(value) < int(usual):
            yield Sight(hosts=(name,), seen=f"{value} active ports, usual {usual}")


CHECK = Check(
    id="infiniband",
    title="RDMA does not work",
    area="network",
    severity="slows",
    judge=judge,
    reads=(_STATE, _LAYER, _TYPES),
    facts=True,
    leads_to="NCCL uses sockets instead, and large messages take several times as long. With fewer ports than the "
    "other hosts, this host is the slowest.",
    fix="Look at the ports with `ibstat` or `rdma link`. A port that is INIT waits for a subnet manager; one that is "
    "DOWN has no cable. RoCE v2 needs an IPv4 address on its interface.",
    lab="kit lab fault HOST infiniband",
)
