"""CPUs that save power while ranks wait for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Files, Sight
from kit.plan.doctor.kernel import leaf, word

_CPUS = "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/"
_GOVERNOR, _DRIVER = Files(pattern=f"{_CPUS}scaling_governor"), Files(pattern=f"{_CPUS}scaling_driver")
_SAVING = ("powersave", "conservative")
# With these drivers, `powersave` leaves the choice to the CPU, which is slower to speed up but reaches its full clock.
_DYNAMIC = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        governors = {cpu: word(text) for cpu, text in leaf(host.glob(_GOVERNOR.pattern), 3).items()}
        drivers = {cpu: word(text) for cpu, text in leaf(host.glob(_DRIVER.pattern), 3).items()}
        saving = Counter((name, drivers.get(cpu, "")) for cpu, name in governors.items() if name in _SAVING)
        for (name, driver), count in saving.items():
            seen = f"{count} of {len(governors)} CPUs have the governor {name}"
            yield Sight(hosts=(host.name,), seen=seen, severity="watch" if driver in _DYNAMIC else None)


CHECK = Check(
    id="governor",
    title="CPUs save power",
    area="host",
    severity="slows",
    judge=judge,
    reads=(_GOVERNOR, _DRIVER),
    leads_to="CPUs run below their clock, or need time to reach it. Loading of data and small messages are slower.",
    fix="`sudo cpupower frequency-set -g performance`, from the package linux-cpupower or linux-tools-generic.",
    lab="kit lab fault HOST governor",
)
