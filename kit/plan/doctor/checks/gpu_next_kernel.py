"""A kernel that the next start uses, without the driver."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from kit.model.doctor import Check, Examined, File, Links, Sight
from kit.plan.doctor.kernel import word

_RUNNING = File(path="/proc/sys/kernel/osrelease")
_KERNELS = Links(pattern="/boot/vmlinuz-*")
# updates/dkms, extra, kernel/nvidia-550, kernel/drivers/video. Deeper folders have modules with similar names.
_MODULES = tuple(Links(pattern=f"/lib/modules/*/{folder}/nvidia*.ko*") for folder in ("*", "*/*", "*/*/*"))
# Debian: nvidia-current.ko, nvidia-current-open.ko. Not nvidia-drm.ko, which is beside it.
_MODULE = re.compile(r"nvidia(?:-current|-tesla|-open)*(?:-[0-9]{3})?\.ko(?:\.(?:xz|gz|zst))?")
_RELEASE = re.compile(r"[0-9][0-9A-Za-z.+~_-]{0,80}")


def _order(release: str) -> list[tuple[int, str]]:
    """Return a key that sorts 6.1.0-9 before 6.1.0-27, as a boot loader does."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]{1,9})", release) if part]


def _with_module(paths: Iterable[str]) -> set[str]:
    parts = (path.split("/") for path in paths)
    return {part[3] for part in parts if len(part) > 4 and _MODULE.fullmatch(part[-1])}


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        running = word(host.file(_RUNNING.path))
        names = (path.rpartition("/vmlinuz-")[2] for path in host.link(_KERNELS.pattern))
        kernels = sorted((name for name in names if _RELEASE.fullmatch(name)), key=_order)
        with_module = _with_module(path for pattern in _MODULES for path in host.link(pattern.pattern))
        # If the running kernel has no module there either, the driver is somewhere else, or there is no GPU.
        if kernels and running in with_module and kernels[-1] not in with_module:
            yield Sight(hosts=(host.name,), seen=f"the newest kernel {kernels[-1]} has no nvidia module")


CHECK = Check(
    id="gpu-next-kernel",
    title="The driver is missing for the next kernel",
    area="gpu",
    severity="watch",
    judge=judge,
    reads=(_RUNNING, _KERNELS, *_MODULES),
    leads_to="After the next reboot, the VM has no GPUs.",
    fix="If the driver is of Ubuntu's packages, as `kit setup` installs it: `sudo apt-get install "
    "linux-modules-nvidia-BRANCH-KERNEL`, with the branch that `dpkg -l 'linux-modules-nvidia-*'` shows. "
    "If dkms builds it: `sudo apt-get install linux-headers-KERNEL`, then `sudo dkms autoinstall -k KERNEL`.",
    lab="kit lab fault HOST gpu-next-kernel",
)
