"""Errors of memory modules, as the kernel counts them."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Files, Sight
from kit.plan.doctor.kernel import leaf, number

_FOLDER = "/sys/devices/system/edac/mc/mc*/"
_UNCORRECTED, _CORRECTED = Files(pattern=f"{_FOLDER}ue_count"), Files(pattern=f"{_FOLDER}ce_count")
# Since the start. A sound module has a few in a year; a module that fails soon has thousands in a day.
_MANY = 1000


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        for controller, text in leaf(host.glob(_UNCORRECTED.pattern)).items():
            if (count := number(text) or 0) > 0 and controller.isalnum():
                yield Sight(
                    hosts=(host.name,),
                    seen=f"{controller[:20]}: {count} {'error' if count == 1 else 'errors'} that ECC could not correct",
                )
        for controller, text in leaf(host.glob(_CORRECTED.pattern)).items():
            if (count := number(text) or 0) >= _MANY and controller.isalnum():
                seen = f"{controller[:20]}: ECC corrected {count} errors"
                yield Sight(hosts=(host.name,), seen=seen, severity="watch")


CHECK = Check(
    id="memory-errors",
    title="The memory has errors",
    area="host",
    severity="breaks",
    judge=judge,
    reads=(_UNCORRECTED, _CORRECTED),
    leads_to="Programs end with `Bus error` or the machine restarts. Results may be wrong.",
    fix="See which module it is: `sudo edac-util -v`, `sudo dmesg | grep -i edac`. Replace it, or the VM.",
    lab="kit lab fault HOST memory-errors",
)
