"""A host with fewer CPUs or less memory than the others."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, File, Sight
from kit.model.text import size
from kit.plan.doctor.kernel import cpus, memory
from kit.plan.doctor.majority import odd, usual
from kit.plan.doctor.sights import idle_of

_CPUS = File(path="/sys/devices/system/cpu/online")
_MEMORY = File(path="/proc/meminfo")
# The firmware and the kernel keep some memory, and not the same amount on each VM.
_SHARE = 0.9


def judge(examined: Examined) -> Iterator[Sight]:
    # No rank waits for a head without ranks, which is often small.
    hosts = [host for host in examined.hosts if host.name != idle_of(examined)]
    counts = {host.name: str(count) for host in hosts if (count := cpus(host.file(_CPUS.path)))}
    # slots= in the hosts file says that the user knows the host's size.
    chosen = {host.name: host.host.slots for host in hosts}
    slots = usual((host.node.slots for host in hosts if host.node is not None), int) or 0
    for name, value, reference in odd(counts, int):
        fewer = int(value) < int(reference) and (chosen[name] or slots) >= slots
        yield Sight(
            hosts=(name,),
            seen=f"{value} {'CPU' if value == '1' else 'CPUs'}, usual {reference}",
            severity=None if fewer else "watch",
        )
    totals = {host.name: total for host in hosts if (total := memory(host.file(_MEMORY.path)).get("MemTotal"))}
    # Values in GiB, so that hosts of one size are equal.
    most = usual((round(total / 1048576) for total in totals.values()), int)
    reference_kib = next((total for total in totals.values() if round(total / 1048576) == most), 0)
    for name, total in totals.items():
        if total < _SHARE * reference_kib:
            seen = f"{size(total * 1024)} of memory, usual {size(reference_kib * 1024)}"
            yield Sight(hosts=(name,), seen=seen, severity="watch")


CHECK = Check(
    id="sizes",
    title="Hosts have different sizes",
    area="host",
    severity="slows",
    judge=judge,
    reads=(_CPUS, _MEMORY),
    leads_to="Each step ends with the slowest rank, so the larger hosts wait for the smaller one.",
    fix="Choose the same type for all VMs. Or give this host fewer ranks: `slots=` in the hosts file.",
    lab="kit lab fault HOST sizes",
)
