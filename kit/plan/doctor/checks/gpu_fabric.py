"""NVSwitch that is not ready: a fabric manager that does not run, or has another version than the driver."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kit.model.doctor import Check, Command, Examined, Links, Seen, Sight
from kit.model.nvidia.state import GpuState, State
from kit.plan.doctor.gpus import PROGRAM, STATE, named, state_of

_SWITCHES = Links(pattern="/proc/driver/nvidia-nvswitch/devices/*")
_ACTIVE = Command(argv=("systemctl", "is-active", "nvidia-fabricmanager"), only_with=PROGRAM)
_VERSION = Command(argv=("nv-fabricmanager", "--version"))
_NUMBER = re.compile(r"\b([0-9]{3,4}(?:\.[0-9]{1,4}){1,2})\b")
_SHOWN = 40


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        state = state_of(host)
        # In a VM, the fabric manager may run on the machine below: only the GPUs' state counts then.
        waiting = [gpu for gpu in state.gpus if _trouble(gpu)] if state else []
        version = _version(host, state)
        if waiting:
            seen = f"{named(gpu.index for gpu in waiting)}: {_trouble(waiting[0])}"
            yield Sight(hosts=(host.name,), seen=f"{seen}; {version}" if version else seen)
        elif host.link(_SWITCHES.pattern) and _inactive(host):
            yield Sight(hosts=(host.name,), seen="the VM has NVSwitches, and nvidia-fabricmanager does not run")
        elif version:
            # It goes on until it is started again.
            yield Sight(hosts=(host.name,), seen=version, severity="watch")


def _trouble(gpu: GpuState) -> str:
    """Return what the GPU says about its place in the fabric if that is not sound, or ''."""
    if gpu.fabric not in (None, "Completed"):
        return f"the fabric's state is {gpu.fabric[:_SHOWN]}"
    # It is completed when it has ended, well or not.
    if gpu.fabric and gpu.fabric_status not in (None, "Success"):
        return f"the GPU could not join the fabric: {gpu.fabric_status[:_SHOWN]}"
    return ""


def _inactive(host: Seen) -> bool:
    ran = host.ran(*_ACTIVE.argv)
    return ran is not None and ran.out[:64].strip() in ("inactive", "failed")


def _version(host: Seen, state: State | None) -> str:
    """Return that the fabric manager has another version than the driver, or ''."""
    ran = host.ran(*_VERSION.argv)
    match = _NUMBER.search(ran.out[:4096]) if ran and ran.code == 0 else None
    if match is None or state is None or not state.driver or match[1] == state.driver:
        return ""
    return f"the fabric manager has version {match[1]}, the driver {state.driver}"


CHECK = Check(
    id="gpu-fabric",
    title="NVSwitch is not ready",
    area="gpu",
    severity="breaks",
    judge=judge,
    reads=(STATE, _SWITCHES, _ACTIVE, _VERSION),
    leads_to="CUDA reports `system not yet initialized`, and NCCL does not start.",
    fix="Install the fabric manager in the driver's version, `sudo apt-get install nvidia-fabricmanager-NUMBER`, and "
    "start it: `sudo systemctl enable --now nvidia-fabricmanager`. Its log is /var/log/fabricmanager.log.",
    lab="kit lab fault HOST gpu-fabric",
)
