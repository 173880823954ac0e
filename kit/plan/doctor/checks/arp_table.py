"""A table of neighbors that is too small for the cluster."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, File, Sight
from kit.plan.doctor.kernel import number

_MOST = File(path="/proc/sys/net/ipv4/neigh/default/gc_thresh3")
_ARP = File(path="/proc/net/arp")
# The table also has the gateway, other services and entries that wait to be removed.
_FULL = 0.8


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        most = number(host.file(_MOST.path))
        if most is None or most <= 0:
            continue
        entries = max(0, (host.file(_ARP.path) or "").count("\n") - 1)
        needed = max(entries, len(examined.hosts))
        if needed >= _FULL * most:
            seen = f"room for {most} neighbors, {entries} known, {len(examined.hosts)} hosts in the cluster"
            yield Sight(hosts=(host.name,), seen=seen)


CHECK = Check(
    id="arp-table",
    title="The table of neighbors is too small",
    area="network",
    severity="breaks",
    judge=judge,
    reads=(_MOST, _ARP),
    leads_to="The kernel logs `arp_cache: neighbor table overflow!`, and connections to some hosts fail now and then.",
    fix="Raise the limits: `kit setup --only sysctl`, or by hand `sudo sysctl -w "
    "net.ipv4.neigh.default.gc_thresh1=4096 net.ipv4.neigh.default.gc_thresh2=8192 "
    "net.ipv4.neigh.default.gc_thresh3=16384`.",
    lab="kit lab fault HOST arp-table",
)
