"""A table of neighbors that is too small for the cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kit.model.doctor import Check, Examined, File, Seen, Sight
from kit.plan.doctor.kernel import number

_MOST = File(path="/proc/sys/net/ipv4/neigh/default/gc_thresh3")
_ARP = File(path="/proc/net/arp")
# A row of hexadecimal numbers for each CPU. The first one is the same in all: how many entries all tables have.
_COUNT = File(path="/proc/net/stat/arp_cache")
_ENTRIES = re.compile(r"^entries .*\n([0-9a-f]{8,16}) ", re.ASCII)
# As much as the doctor reads of a file: some 800 neighbors.
_READ = 64 << 10
# The table also has the gateway, other services and entries that wait to be removed.
_FULL = 0.8


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        most = number(host.file(_MOST.path))
        if most is None or most <= 0:
            continue
        entries = _entries(host)
        needed = max(entries, len(examined.hosts))
        if needed >= _FULL * most:
            seen = f"room for {most} neighbors, {entries} known, {len(examined.hosts)} hosts in the cluster"
            yield Sight(hosts=(host.name,), seen=seen)


def _entries(host: Seen) -> int:
    """Return how many neighbors the host knows. Only of a long list, the count also has those of containers."""
    text = host.file(_ARP.path) or ""
    listed = max(0, text.count("\n") - 1)
    match = _ENTRIES.match(host.file(_COUNT.path) or "") if len(text) >= _READ else None
    return max(listed, int(match[1], 16)) if match else listed


CHECK = Check(
    id="arp-table",
    title="The table of neighbors is too small",
    area="network",
    severity="breaks",
    judge=judge,
    reads=(_MOST, _ARP, _COUNT),
    leads_to="The kernel logs `arp_cache: neighbor table overflow!`, and connections to some hosts fail now and then.",
    fix="Raise the limits: `kit setup --only sysctl`, or by hand `sudo sysctl -w "
    "net.ipv4.neigh.default.gc_thresh1=4096 net.ipv4.neigh.default.gc_thresh2=8192 "
    "net.ipv4.neigh.default.gc_thresh3=16384`.",
    lab="kit lab fault HOST arp-table",
)
