"""A host that lacks RDMA adapters, and adapters without an active port, or without an address for RoCE v2."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from kit.model.doctor import Check, Examined, Files, Seen, Sight
from kit.model.values import replace
from kit.plan.cluster.rdma import problems
from kit.plan.doctor.majority import odd, usual
from kit.plan.doctor.sights import facts_of, idle_of, sights_of

_PORTS = "/sys/class/infiniband/*/ports/*/"
_STATE = Files(pattern=f"{_PORTS}state")
_LAYER = Files(pattern=f"{_PORTS}link_layer")
# The first GIDs are the default ones and those of the interface's addresses.
_TYPES = Files(pattern=f"{_PORTS}gid_attrs/types/[0-9]")
_ACTIVE = "4: ACTIVE"
_SHOWN = 40
_DRIVER = (
    "list its cards: lspci -nn | grep -iE 'infiniband|ethernet'. If an adapter is there, load its driver, for NVIDIA: "
    "sudo modprobe -a mlx5_ib ib_uverbs. If that fails, build the driver for this kernel: sudo dkms status names it. "
    "Without an adapter, choose the same type for all VMs"
)


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
    if examined.spec.rdma == "off":
        return
    required = list(sights_of(problems(facts_of(examined), examined.spec)))
    for sight in required:
        yield replace(sight, severity="breaks")
    active: dict[str, str] = {}
    bare: list[str] = []
    idle = idle_of(examined)
    named = {name for sight in required for name in sight.hosts}
    for host in examined.hosts:
        ports = _ports(host)
        up = [key for key, state in ports.items() if state == _ACTIVE]
        if ports:
            active[host.name] = str(len(up))
        elif _STATE.pattern in host.globs and host.name not in {idle, *named}:
            bare.append(host.name)
        if ports and not up and host.name not in named:
            (adapter, _), state = next(iter(ports.items()))
            shown = state.partition(":")[2].strip() or "unknown"
            seen = f"no port is active: {adapter} is {shown if shown.isprintable() else 'unknown'}"
            yield Sight(hosts=(host.name,), seen=seen)
        for adapter in dict.fromkeys(_roce_without_v2(host, ports)):
            yield Sight(hosts=(host.name,), seen=f"{adapter} has no GID of RoCE v2")
    for name, value, reference in odd(active, int):
        if 0 < int(value) < int(reference):
            seen = f"{value} active ports, usual {reference}"
            yield Sight(hosts=(name,), seen=seen, severity="watch" if name == idle else None)
    yield from _bare(bare, [value for name, value in active.items() if value != "0" and name != idle])


def _bare(bare: Sequence[str], working: Sequence[str]) -> Iterator[Sight]:
    """Name the hosts without adapters, unless more hosts have none than have ports that work.

    A kernel's update can leave a host without the driver of its adapters, and the kernel then lists none.
    """
    if working and len(working) >= len(bare):
        count = usual(working, int)
        seen = f"no RDMA adapter, usual {count} active port{'' if count == '1' else 's'}"
        for name in bare:
            yield Sight(hosts=(name,), seen=seen, fix=_DRIVER)


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
