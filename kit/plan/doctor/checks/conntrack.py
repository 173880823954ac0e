"""A table of connections that is nearly full."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, File, Severity, Sight
from kit.plan.doctor.kernel import number

_COUNT = File(path="/proc/sys/net/netfilter/nf_conntrack_count")
_MOST = File(path="/proc/sys/net/netfilter/nf_conntrack_max")
# The kernel drops packets of new connections at 100 %. A run opens thousands of connections within a second.
_FULL, _NEARLY = 0.95, 0.8


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        count, most = number(host.file(_COUNT.path)), number(host.file(_MOST.path))
        # 0 means no limit.
        if count is not None and most and most > 0 and count >= _NEARLY * most:
            severity: Severity = "breaks" if count >= _FULL * most else "watch"
            yield Sight(hosts=(host.name,), seen=f"{count} of {most} tracked connections", severity=severity)


CHECK = Check(
    id="conntrack",
    title="The table of tracked connections is nearly full",
    area="network",
    severity="breaks",
    judge=judge,
    reads=(_COUNT, _MOST),
    leads_to="When the table is full, the kernel drops packets of new connections. Ranks wait for each other at the "
    "start, and ssh fails sometimes.",
    fix="Raise the limit, `sudo sysctl -w net.netfilter.nf_conntrack_max=1048576`, and look for what opens them: "
    "`sudo ss -s`.",
    lab="kit lab fault HOST conntrack",
    deploy=True,
)
