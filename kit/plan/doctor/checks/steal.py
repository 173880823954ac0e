"""A VM that gets less time of its CPUs than it wants."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, File, Sight
from kit.plan.doctor.kernel import numbers

_STAT = File(path="/proc/stat")
# Since the VM started. A step of training ends with the slowest rank, so some percent on one host cost all hosts as
# much.
_SHARE = 0.05
# In ticks of 10 ms, over all CPUs: the first minute of a VM says little.
_LEAST_TICKS = 6000


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        name, _, rest = (host.file(_STAT.path) or "").partition("\n")[0].partition(" ")
        # user nice system idle iowait irq softirq steal. The guests' time is part of user.
        ticks = numbers(rest)[:8]
        if name == "cpu" and len(ticks) == 8 and sum(ticks) >= _LEAST_TICKS and ticks[7] >= _SHARE * sum(ticks):
            yield Sight(hosts=(host.name,), seen=f"{ticks[7] / sum(ticks):.0%} of the CPUs' time went to other VMs")


CHECK = Check(
    id="steal",
    title="Other VMs take the CPUs' time",
    area="host",
    severity="slows",
    judge=judge,
    reads=(_STAT,),
    leads_to="This host is slower than the others at times that nobody can predict, and all ranks wait for it.",
    fix="See whether it goes on: `vmstat 5`, column `st`. Move the VM to another machine (stop and start it), or "
    "choose a type with CPUs that are not shared.",
    lab="kit lab fault HOST steal",
)
