"""The cores, the memory, and the time that tasks waited for them (PSI)."""

import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from kitwatch import files

# The columns of /proc/stat. Guests are part of user and nice.
_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
# The kernel may take back some of these: see iowait in its Documentation/filesystems/proc.rst.
_TAKEN_BACK = ("idle", "iowait")
_PRESSURES = ("cpu", "memory", "io")


class Counters(NamedTuple):
    """What /proc/stat counts since the boot: seconds of each mode, of all CPUs and of each one."""

    total: Dict[str, float]
    cpus: Tuple[Tuple[float, float], ...]
    running: int
    blocked: int


def counters() -> Counters:
    """Return the state of the cores. `cpus` has (busy, all) seconds of every CPU that is online, in order."""
    total: Dict[str, float] = {}
    cpus: List[Tuple[float, float]] = []
    running = blocked = 0
    for line in files.lines(files.PROC + "/stat"):
        words = line.split()
        if line.startswith("cpu"):
            seconds = [int(word) / files.TICKS for word in words[1 : 1 + len(_MODES)]]
            if words[0] == "cpu":
                total = dict(zip(_MODES, seconds))
            else:
                times = dict(zip(_MODES, seconds))
                cpus.append((sum(seconds) - _idle(times), sum(seconds)))
        elif line.startswith("procs_running"):
            running = int(words[1])
        elif line.startswith("procs_blocked"):
            blocked = int(words[1])
    return Counters(total, tuple(cpus), running, blocked)


def cores(now: Counters, before: Optional[Counters]) -> Dict[str, Any]:
    """Return what the cores did between two looks, in percent of all of them. None if there was no earlier look.

    `per_core` has the percent of each core. `runq` is the number of tasks that run or wait for a core now, without the
    one that looks.
    """
    shares = _shares(now, before)
    return {
        "cores": len(now.cpus),
        "cpu": shares and round(100 * (1 - shares["idle"] - shares["iowait"]), 1),
        "steal": shares and round(100 * shares["steal"], 1),
        "iowait": shares and round(100 * shares["iowait"], 1),
        "per_core": _per_core(now, before),
        "cpu_s": {mode: round(seconds, 2) for mode, seconds in now.total.items()},
        "runq": max(now.running - 1, 0),
        "blocked": now.blocked,
        "load1": load(),
    }


def rising(seconds: Dict[str, float], before: Dict[str, float]) -> Dict[str, float]:
    """Return the seconds of each mode, without what the kernel took back since the last result, `before`."""
    return {
        mode: max(value, before.get(mode, 0.0)) if mode in _TAKEN_BACK else value for mode, value in seconds.items()
    }


def _idle(times: Dict[str, float]) -> float:
    return times.get("idle", 0.0) + times.get("iowait", 0.0)


def _shares(now: Counters, before: Optional[Counters]) -> Optional[Dict[str, float]]:
    if before is None:
        return None
    # The kernel may take back some idle time, which is no time that passed.
    passed = {mode: max(now.total.get(mode, 0.0) - before.total.get(mode, 0.0), 0.0) for mode in _MODES}
    whole = sum(passed.values())
    return {mode: seconds / whole for mode, seconds in passed.items()} if whole else None


def _per_core(now: Counters, before: Optional[Counters]) -> Optional[List[int]]:
    if before is None or len(before.cpus) != len(now.cpus):
        return None
    return [_percent(one, other) for one, other in zip(now.cpus, before.cpus)]


def _percent(now: Tuple[float, float], before: Tuple[float, float]) -> int:
    busy, whole = now[0] - before[0], now[1] - before[1]
    return min(max(round(100 * busy / whole), 0), 100) if whole > 0 else 0


def load() -> Optional[float]:
    words = files.word(files.PROC + "/loadavg").split()
    return float(words[0]) if words else None


def memory() -> Dict[str, int]:
    """Return the bytes of memory, and how much of it programs cannot get."""
    meminfo = files.pairs(files.PROC + "/meminfo")
    total = meminfo.get("MemTotal", 0)
    return {"total": total << 10, "used": (total - meminfo.get("MemAvailable", meminfo.get("MemFree", 0))) << 10}


def pressure() -> Optional[Dict[str, Dict[str, float]]]:
    """Return the percent of the last 10 s in which some tasks, or all, waited; None if the kernel does not count it.

    {"cpu": {"some": 1.5, "full": 0.0}, "memory": …, "io": …}
    """
    averages = {}
    for name in _PRESSURES:
        rows = [line.split() for line in files.lines("%s/pressure/%s" % (files.PROC, name))]
        values = {row[0]: _average(row) for row in rows if row}
        if values:
            averages[name] = values
    return averages or None


def _average(words: Sequence[str]) -> float:
    return next((float(word[len("avg10=") :]) for word in words if word.startswith("avg10=")), 0.0)


def space(paths: Sequence[str]) -> Dict[str, Dict[str, int]]:
    """Return the bytes of the file systems with these paths, each one once. Missing paths are left out."""
    usage = {}
    seen = set()
    for path in paths:
        try:
            device = os.stat(path).st_dev
            disk = os.statvfs(path)
        except OSError:
            continue
        if device not in seen and disk.f_blocks:
            seen.add(device)
            used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
            # As `df`: without what is kept for root.
            usage[path] = {"total": used + disk.f_bavail * disk.f_frsize, "used": used}
    return usage
