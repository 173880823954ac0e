"""What a container gets of the host's GPUs: which ones, their nodes, and the permission of its device cgroup."""

import os
import stat
import subprocess
from typing import Dict, List, Optional, Sequence, Tuple

from pretended.state import FOLDER, State

# NVIDIA's numbers. On a machine without its driver nothing answers there: opening such a node fails with ENXIO.
MAJOR, UVM_MAJOR = 195, 508
CONTROL = (("/dev/nvidiactl", MAJOR, 255), ("/dev/nvidia-uvm", UVM_MAJOR, 0))
PROGRAM = "/usr/bin/nvidia-smi"
_PROC_CGROUPS = "/proc/%d/cgroup"


class Unknown(Exception):
    """A container asks for a GPU that the host does not have."""


def chosen(state: State, visible: str) -> "Optional[List[int]]":
    """Return the GPUs that NVIDIA_VISIBLE_DEVICES names: numbers, UUIDs or all. None: leave the container alone."""
    if visible in ("", "void"):
        return None
    if visible == "none":
        return []
    if visible == "all":
        return list(range(state.total))
    minors = []
    for word in visible.split(","):
        matching = [minor for minor in range(state.total) if word in (str(minor), state.uuid(minor))]
        if not matching:
            raise Unknown(word)
        minors += matching
    return sorted(set(minors))


def nodes(minors: Sequence[int]) -> List[Tuple[str, int, int]]:
    """Return path, major and minor of each device node."""
    return [*CONTROL, *(("/dev/nvidia%d" % minor, MAJOR, minor) for minor in minors)]


def make_nodes(root: str, minors: Sequence[int]) -> None:
    for path, major, minor in nodes(minors):
        place = root + path
        if not os.path.exists(place):
            os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(major, minor))
            os.chmod(place, 0o666)  # noqa: S103  (as NVIDIA's nodes are)


def mount_program(root: str) -> None:
    """Show the container the pretended nvidia-smi, read-only."""
    mounts = ((FOLDER, FOLDER), (os.path.join(FOLDER, "bin", "nvidia-smi"), PROGRAM))
    for source, target in mounts:
        place = root + target
        if os.path.isdir(source):
            os.makedirs(place, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, "a"):
                pass
        subprocess.run(["mount", "--bind", source, place], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)


def cgroup_of(text: str) -> Optional[str]:
    """Return the device cgroup in the text of /proc/PID/cgroup, or None on cgroup v2, which has none."""
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if "devices" in controllers.split(","):
            return path
    return None


def below(mountinfo: str, path: str) -> Optional[str]:
    """Return the folder of a device cgroup, from the text of /proc/self/mountinfo. None if it is not below ours."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if after.split()[0] == "cgroup" and "devices" in after.split()[-1].split(","):
            root, place = fields[3].rstrip("/"), fields[4]
            if path == root or path.startswith(root + "/"):
                return place + path[len(root) :]
    return None


def device_cgroup(pid: int) -> Optional[str]:
    """Return the folder of a process's device cgroup, or None if this machine has cgroup v2."""
    with open(_PROC_CGROUPS % pid) as file:
        path = cgroup_of(file.read())
    with open("/proc/self/mountinfo") as file:
        return None if path is None else below(file.read(), path)


def permit(folder: str, minors: Sequence[int], *, allow: bool) -> None:
    """Allow or deny a device cgroup the GPUs' nodes."""
    for _, major, minor in nodes(minors):
        with open(os.path.join(folder, "devices.allow" if allow else "devices.deny"), "w") as file:
            file.write("c %d:%d rwm" % (major, minor))


def environ_of(config: "Dict[str, object]") -> Dict[str, str]:
    """Return the variables of the process in an OCI bundle's config.json."""
    process = config.get("process")
    words = process.get("env") if isinstance(process, dict) else None
    return dict(word.split("=", 1) for word in words or [] if "=" in word)
