"""A host with fewer or other GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Sight
from kit.model.nvidia.state import State
from kit.plan.doctor.gpus import STATE, states
from kit.plan.doctor.majority import odd

_SHOWN = 60


def _models(state: State) -> str:
    """Return how many GPUs of which models these are."""
    counts = Counter(gpu.name[:_SHOWN] or "unknown" for gpu in state.gpus)
    return " and ".join(f"{count} × {name}" for name, count in counts.most_common(3))


def judge(examined: Examined) -> Iterator[Sight]:
    # slots= in the hosts file says that the user knows how many GPUs a host has.
    chosen = {host.name: host.host.slots for host in examined.hosts}
    known = states(examined)
    values = {name: _models(state) for name, state in known.items()}
    counts = {value: len(known[name].gpus) for name, value in values.items()}
    for host, value, usual in odd(values, lambda value: counts[value]):
        alike = value.partition(" × ")[2] == usual.partition(" × ")[2]
        if not (alike and chosen.get(host) == len(known[host].gpus)):
            yield Sight(hosts=(host,), seen=f"{value}, usual {usual}")


CHECK = Check(
    id="gpu-count",
    title="Hosts have other GPUs",
    area="gpu",
    severity="slows",
    judge=judge,
    reads=(STATE,),
    leads_to="A GPU that fell off the bus leaves room for fewer ranks. With another model, all wait for the slowest "
    "one.",
    fix="If a GPU is missing, look at `sudo dmesg | grep -i nvrm` and reboot the VM. If the host should have fewer, "
    "write `slots=` for it in the hosts file.",
    lab="kit lab fault HOST gpu-count",
)
