"""A host with another congestion control of TCP."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, File, Sight
from kit.plan.doctor.kernel import word
from kit.plan.doctor.majority import odd

_CONTROL = File(path="/proc/sys/net/ipv4/tcp_congestion_control")


def judge(examined: Examined) -> Iterator[Sight]:
    values = {host.name: name for host in examined.hosts if (name := word(host.file(_CONTROL.path)))}
    for host, value, usual in odd(values):
        yield Sight(hosts=(host,), seen=f"TCP uses {value}, usual {usual}")


CHECK = Check(
    id="congestion",
    title="TCP's congestion control differs between hosts",
    area="network",
    severity="slows",
    judge=judge,
    reads=(_CONTROL,),
    leads_to="Where two kinds share a link, one takes most of it. The hosts with the other kind send slower, and "
    "everybody waits for them.",
    fix="Use one kind on all hosts, such as the kernel's default: `sudo sysctl -w "
    "net.ipv4.tcp_congestion_control=cubic`. Look for who set another one: `grep -r congestion /etc/sysctl.*`.",
    lab="kit lab fault HOST congestion",
)
