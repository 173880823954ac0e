"""Limits of TCP's buffers that are small, or differ between hosts."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, File, Seen, Sight
from kit.plan.doctor.kernel import numbers
from kit.plan.doctor.majority import odd

_READ = File(path="/proc/sys/net/ipv4/tcp_rmem")
_WRITE = File(path="/proc/sys/net/ipv4/tcp_wmem")
# 25 Gbit/s with a round trip of 0.3 ms, as in a cloud, has 0.9 MB under way. The kernel's own limits are 6 and 4 MiB.
_LEAST = 1 << 20


def _most(host: Seen) -> dict[str, int]:
    """Return the limits in bytes, by their names."""
    rows = {"tcp_rmem": numbers(host.file(_READ.path)), "tcp_wmem": numbers(host.file(_WRITE.path))}
    return {name: row[2] for name, row in rows.items() if len(row) == 3}


def judge(examined: Examined) -> Iterator[Sight]:
    limits = {host.name: _most(host) for host in examined.hosts}
    for name in ("tcp_rmem", "tcp_wmem"):
        known = {host: own[name] for host, own in limits.items() if name in own}
        differing = {host: usual for host, _, usual in odd({host: str(most) for host, most in known.items()})}
        for host, most in known.items():
            if most < _LEAST:
                yield Sight(hosts=(host,), seen=f"{name} allows at most {most} bytes")
            elif host in differing:
                # Usually both are large enough.
                seen = f"{name} allows at most {most} bytes, usual {differing[host]}"
                yield Sight(hosts=(host,), seen=seen, severity="watch")


CHECK = Check(
    id="tcp-buffers",
    title="TCP's buffers are small or differ",
    area="network",
    severity="slows",
    judge=judge,
    reads=(_READ, _WRITE),
    leads_to="One connection cannot fill a fast link: it waits for acknowledgements when its buffer is full.",
    fix='Raise the limits: `kit setup --only sysctl`, or by hand `sudo sysctl -w net.ipv4.tcp_rmem="4096 131072 '
    '67108864" net.ipv4.tcp_wmem="4096 65536 67108864"`.',
    lab="kit lab fault HOST tcp-buffers",
)
