"""A link that is slower than those of the other hosts."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Files, Sight
from kit.plan.doctor.kernel import number
from kit.plan.doctor.majority import odd
from kit.plan.doctor.network import ROUTES, interface, of_interface
from kit.plan.doctor.sights import idle_of

_SPEED = Files(pattern="/sys/class/net/*/speed")


def judge(examined: Examined) -> Iterator[Sight]:
    # A virtual card has no speed: the kernel gives an error, -1, or 4294967295.
    values = {
        host.name: speed
        for host in examined.hosts
        if (speed := number(of_interface(host, examined, host.glob(_SPEED.pattern)))) and 0 < speed < 10_000_000
    }
    names = {host.name: interface(host, examined) for host in examined.hosts}
    for host, value, usual in odd({name: str(speed) for name, speed in values.items()}, int):
        if int(value) < int(usual):
            seen = f"{names[host]} has {value} Mbit/s, usual {usual}"
            yield Sight(hosts=(host,), seen=seen, severity="watch" if host == idle_of(examined) else None)


CHECK = Check(
    id="nic-speed",
    title="A link is slower than those of the others",
    area="network",
    severity="slows",
    judge=judge,
    reads=(ROUTES, _SPEED),
    leads_to="Each step of training ends when the slowest link has carried its part.",
    fix="Look at the link, `sudo ethtool INTERFACE`, and at its cable and switch port. On a cloud, choose the same "
    "size of VM for all hosts.",
    lab="kit lab fault HOST nic-speed",
)
