"""An interface of the cluster's network whose MTU is not that of the other hosts."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Files, Sight
from kit.plan.doctor.kernel import number
from kit.plan.doctor.majority import odd
from kit.plan.doctor.network import ROUTES, interface, of_interface

_MTU = Files(pattern="/sys/class/net/*/mtu")


def judge(examined: Examined) -> Iterator[Sight]:
    values = {
        host.name: str(mtu)
        for host in examined.hosts
        if (mtu := number(of_interface(host, examined, host.glob(_MTU.pattern)))) is not None
    }
    names = {host.name: interface(host, examined) for host in examined.hosts}
    for host, value, usual in odd(values):
        yield Sight(hosts=(host,), seen=f"MTU {value} on {names[host]}, usual {usual}")


CHECK = Check(
    id="mtu-differs",
    title="The MTU differs between hosts",
    area="network",
    severity="slows",
    judge=judge,
    reads=(ROUTES, _MTU),
    leads_to="Small messages arrive, and large ones may be lost on the way. A connection to the host with the "
    "smaller MTU uses smaller packets and is slower.",
    fix="Give all hosts the same MTU, for example 1500: `kit setup --only mtu --mtu 1500`, or by hand `sudo ip link "
    "set dev INTERFACE mtu MTU`.",
    lab="kit lab fault HOST mtu-differs",
    deploy=True,
)
