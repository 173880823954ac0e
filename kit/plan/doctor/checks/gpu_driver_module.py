"""A driver that was updated while the old one still runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kit.model.doctor import Check, Command, Examined, File, Sight
from kit.plan.doctor.gpus import PROGRAM, STATE, complaint

_LOADED = File(path="/proc/driver/nvidia/version")
# Debian's modules have names that modinfo does not find as nvidia. It prints those that it finds, and then fails.
_NAMES = ("nvidia", "nvidia-current", "nvidia-current-open")
_INSTALLED = Command(argv=("modinfo", "-F", "version", *_NAMES), only_with=PROGRAM)
# "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  …", and "… Open Kernel Module for x86_64  550.54.15 …"
_VERSION = re.compile(r"Kernel Module(?: for \S{1,20})? {1,4}([0-9]{3,4}(?:\.[0-9]{1,4}){1,2})\b")
_NUMBER = re.compile(r"[0-9]{3,4}(?:\.[0-9]{1,4}){1,2}")


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        match = _VERSION.search((host.file(_LOADED.path) or "")[:4096])
        ran = host.ran(*_INSTALLED.argv)
        installed = [word for word in ran.out[:256].split() if _NUMBER.fullmatch(word)] if ran else []
        if match and installed and match[1] not in installed:
            yield Sight(hosts=(host.name,), seen=f"{match[1]} is loaded, {installed[0]} is installed")
        elif "version mismatch" in complaint(host):
            yield Sight(hosts=(host.name,), seen="the loaded driver and its libraries have different versions")


CHECK = Check(
    id="gpu-driver-module",
    title="The loaded driver is not the installed one",
    area="gpu",
    severity="breaks",
    judge=judge,
    reads=(_LOADED, _INSTALLED, STATE),
    leads_to="New containers fail with `Failed to initialize NVML: Driver/library version mismatch`. Programs that "
    "run go on until they end.",
    fix="Reboot the VM. Then hold the driver's packages, so that no update does this again: `sudo apt-mark hold "
    "PACKAGE`.",
    lab="kit lab gpu HOST --fault driver-mismatch",
)
