"""A host with another kernel."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, File, Sight
from kit.plan.doctor.kernel import word
from kit.plan.doctor.majority import odd

_RELEASE = File(path="/proc/sys/kernel/osrelease")


def judge(examined: Examined) -> Iterator[Sight]:
    values = {host.name: release for host in examined.hosts if (release := word(host.file(_RELEASE.path)))}
    for host, value, usual in odd(values):
        yield Sight(hosts=(host,), seen=f"kernel {value}, usual {usual}")


CHECK = Check(
    id="kernels",
    title="The kernel differs between hosts",
    area="host",
    severity="watch",
    judge=judge,
    reads=(_RELEASE,),
    leads_to="Drivers and networks behave differently, so a problem shows on some hosts only. Often a host has an "
    "update that others wait for.",
    fix="Install the same updates on all hosts and restart them one at a time: `sudo apt-get full-upgrade`.",
    lab="kit lab fault HOST kernels",
)
