"""A host with fewer or other GPUs, or without any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kit.model.doctor import Check, Examined, Severity, Sight
from kit.model.nvidia.state import State
from kit.plan.doctor.gpus import STATE, states
from kit.plan.doctor.majority import odd, usual
from kit.plan.doctor.sights import idle_of
from kit.plan.flavour import ON_CPUS, OPEN

_SHOWN = 60
_NO_DRIVER = (
    "install the driver: kit setup --only driver. If the VM has no GPU, take it out of the hosts file, or write slots= "
    "for it there"
)


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
    for host, value, reference in odd(values, lambda value: counts[value]):
        alike = value.partition(" × ")[2] == reference.partition(" × ")[2]
        if not (alike and chosen.get(host) == len(known[host].gpus)):
            yield Sight(hosts=(host,), seen=f"{value}, usual {reference}")
    yield from _bare(examined, list(values.values()), counts)


def _bare(examined: Examined, values: Sequence[str], counts: Mapping[str, int]) -> Iterator[Sight]:
    """Name the hosts without nvidia-smi, unless more hosts have none than have GPUs."""
    flavour = examined.spec.image.flavour
    # gpu-cuda compares the hosts of an image that depends on their GPUs, and another image uses no GPU.
    if flavour in (*OPEN, *ON_CPUS):
        return
    idle = idle_of(examined)
    bare = [
        host.name
        for host in examined.hosts
        if STATE in host.commands and host.ran(*STATE.argv) is None and host.name != idle and host.host.slots is None
    ]
    reference = usual(values, lambda value: counts[value])
    if reference is not None and len(values) >= len(bare):
        for name in bare:
            severity: Severity = "breaks" if flavour.startswith("cuda-") else "slows"
            yield Sight(hosts=(name,), seen=f"no GPU, usual {reference}", fix=_NO_DRIVER, severity=severity)


CHECK = Check(
    id="gpu-count",
    title="Hosts have other GPUs",
    area="gpu",
    severity="slows",
    judge=judge,
    reads=(STATE,),
    leads_to="A GPU that fell off the bus leaves room for fewer ranks. With another model, all wait for the slowest "
    "one. A rank without a GPU fails, or computes on CPUs.",
    fix="If a GPU is missing, look at `sudo dmesg | grep -i nvrm` and reboot the VM. If the host should have fewer, "
    "write `slots=` for it in the hosts file.",
    lab="kit lab fault HOST gpu-count",
)
