"""Automatic updates that may replace the driver."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kit.model.doctor import Check, Command, Examined, Sight
from kit.plan.doctor.gpus import PROGRAM

_SETTINGS = Command(
    argv=("apt-config", "dump", "APT::Periodic::Unattended-Upgrade", "Unattended-Upgrade::Package-Blacklist"),
    only_with=PROGRAM,
)
_PACKAGES = Command(argv=("dpkg-query", "-W", "-f=${db:Status-Want} ${Package}\\n", "*nvidia*"), only_with=PROGRAM)
_ON = re.compile(r'^APT::Periodic::Unattended-Upgrade "([0-9]{1,4})";$', re.MULTILINE)
# The module and the libraries that must have its version. Others of NVIDIA's packages are harmless.
_DRIVER = re.compile(
    r"^install "
    "((?:nvidia-(?:driver|headless|dkms|kernel|open)|libnvidia-compute|linux-modules-nvidia)[a-z0-9.+-]{0,60})$",
    re.MULTILINE,
)


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        settings, packages = host.ran(*_SETTINGS.argv), host.ran(*_PACKAGES.argv)
        if settings is None or packages is None or settings.code != 0:
            continue
        on = _ON.search(settings.out[:65536])
        spared = [
            line for line in settings.out[:65536].splitlines() if "Package-Blacklist" in line and "nvidia" in line
        ]
        # A package that is held has the word hold.
        free = _DRIVER.findall(packages.out)
        if on and int(on[1]) and free and not spared:
            more = f" and {len(free) - 1} more" if len(free) > 1 else ""
            yield Sight(hosts=(host.name,), seen=f"unattended-upgrades may replace {free[0]}{more}")


CHECK = Check(
    id="gpu-upgrades",
    title="Automatic updates may replace the driver",
    area="gpu",
    severity="watch",
    judge=judge,
    reads=(_SETTINGS, _PACKAGES),
    leads_to="One night the libraries are newer than the loaded driver, and no container gets a GPU until a reboot.",
    fix="Hold the packages: `sudo apt-mark hold PACKAGE …`. `kit setup --only driver` does that.",
    lab="kit lab fault HOST gpu-upgrades",
)
