"""How often a container's limit of CPU time stops its processes, of both versions of cgroups."""

from typing import Any, Dict, List, NamedTuple, Optional

from kitwatch import files


class Mount(NamedTuple):
    """A hierarchy: where it is mounted, and which part of it. `controllers` is empty for version 2."""

    root: str
    path: str
    controllers: List[str]


def mounts() -> List[Mount]:
    hierarchies = []
    for line in files.lines(files.PROC + "/self/mountinfo"):
        left, _, right = line.partition(" - ")
        words, kind = left.split(), right.split()
        if len(words) >= 5 and len(kind) >= 3 and kind[0] in ("cgroup", "cgroup2"):
            controllers = kind[2].split(",") if kind[0] == "cgroup" else []
            hierarchies.append(Mount(words[3], words[4], controllers))
    return hierarchies


class Cgroups:
    """Remembers the group of each process, because nothing moves a rank to another one."""

    def __init__(self) -> None:
        self._mounts: Optional[List[Mount]] = None
        self._folders: Dict[int, str] = {}
        self._counts: Dict[str, Dict[str, int]] = {}

    def again(self) -> None:
        """Begin another look. The ranks of a container share a group, which a look reads once."""
        self._counts = {}

    def throttled(self, pid: int) -> Dict[str, Any]:
        """Return {"throttled": times, "throttled_s": seconds} since the group exists; None if it is not counted."""
        folder = self._folders.get(pid)
        if folder is None:
            if len(self._folders) > 4096:
                self._folders.clear()
            folder = self._folders[pid] = self._folder(pid)
        counts = self._counts.get(folder)
        if counts is None:
            counts = self._counts[folder] = files.pairs(folder + "/cpu.stat") if folder else {}
        nanoseconds = counts.get("throttled_time", counts.get("throttled_usec", 0) * 1000)
        times = counts.get("nr_throttled")
        return {"throttled": times, "throttled_s": None if times is None else nanoseconds / 1e9}

    def _folder(self, pid: int) -> str:
        """Return the folder of the group that limits this process's CPU time, or ''."""
        if self._mounts is None:
            self._mounts = mounts()
        rows = [line.split(":", 2) for line in files.lines("%s/%d/cgroup" % (files.PROC, pid))]
        paths = {name: row[2] for row in rows if len(row) == 3 for name in row[1].split(",")}
        for mount in sorted(self._mounts, key=lambda mount: not mount.controllers):
            path = paths.get("cpu") if "cpu" in mount.controllers else None if mount.controllers else paths.get("")
            if path is not None:
                # The mount may show only a part, as in a container.
                inside = path[len(mount.root) :] if mount.root != "/" and path.startswith(mount.root) else path
                folder = mount.path + inside.rstrip("/")
                if "nr_throttled" in files.pairs(folder + "/cpu.stat"):
                    return folder
        return ""
