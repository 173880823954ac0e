"""The ranks of runs on this host, and the other processes that use its cores.

KIT_RUN in a process's environment marks it. A process below a rank that overwrote its environment has the mark of its
parent. A look costs the same on a host with thousands of processes: those that are no ranks are read in turn, a few in
each look.
"""

import os
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from kitwatch import cgroups, files

# Between mpirun and a rank. Their environment has the rank, too.
RELAYS = (b"kit-rank", b"kit-torchrun")
_SHELLS = ("sh", "bash", "dash", "env", "timeout", "nice", "numactl", "time", "taskset", "stdbuf")
# How many processes that are no ranks a look reads, without the new ones.
VISITS = 100
# A process may become another program with another environment. A young one has its environment read again.
YOUNG_S = 5.0
# Other processes that use less than this much of a core, in percent, are nobody's trouble.
LEAST = 10.0
MOST_OTHERS, MOST_RANKS = 3, 512
_KTHREADD = 2


class Stat(NamedTuple):
    """What /proc/PID/stat has. `cpu`, `delayed` (waiting for disks) and `start` (after the boot) are in seconds.

    `reaped` is the CPU time of the children for whose end the process has waited, and of theirs.
    """

    comm: str
    state: str
    parent: int
    cpu: float
    reaped: float
    threads: int
    start: float
    rss: int
    core: int
    delayed: float


class Known(NamedTuple):
    """What is remembered of a process. `rank` is -1 for one of a run that is no rank; `run` is '' for any other."""

    comm: str
    start: float
    run: str
    rank: int
    at: float
    cpu: float
    use: float


def stat(pid: int) -> Optional[Stat]:
    """Return None for a process that has ended, and for a zombie."""
    head, _, rest = files.record("%s/%d/stat" % (files.PROC, pid)).rpartition(b")")
    words = rest.split()
    if len(words) < 40 or words[0] in (b"Z", b"X"):
        return None
    return Stat(
        comm=head.partition(b"(")[2].decode("utf-8", "replace"),
        state=words[0].decode("ascii", "replace"),
        parent=int(words[1]),
        cpu=(int(words[11]) + int(words[12])) / files.TICKS,
        reaped=(int(words[13]) + int(words[14])) / files.TICKS,
        threads=int(words[17]),
        start=int(words[19]) / files.TICKS,
        rss=int(words[21]) * files.PAGE,
        core=int(words[36]),
        delayed=int(words[39]) / files.TICKS,
    )


def environment(pid: int) -> bytes:
    return files.read("%s/%d/environ" % (files.PROC, pid))


class Ranks:
    """Looks at processes. `environ` returns the variables of a process as the kernel has them, or b''."""

    def __init__(self, environ: Callable[[int], bytes] = environment) -> None:
        self._environ = environ
        self._known: Dict[int, Known] = {}
        self._kernel: Set[int] = set()
        self._next = 0
        self._cgroups = cgroups.Cgroups()
        # The greatest CPU time of each rank by run, rank, main process and its start, as of the last look.
        self._used: Dict[Any, float] = {}
        # Without this, the kernel does not count how long a process waits for disks.
        self._delays = files.word(files.PROC + "/sys/kernel/task_delayacct") != "0"

    def look(self, *, threads: bool = False) -> Dict[str, List[Dict[str, Any]]]:
        """Return {"ranks": […], "others": […]}.

        With `threads`, a rank has also `waited_all_s`: the sum of all threads' waits for a core. It takes longer.
        """
        now = time.monotonic()
        up = _uptime()
        pids = [int(name) for name in _numbers(files.PROC)]
        self._forget(pids)
        stats = {}
        for pid in self._due(pids):
            process = stat(pid)
            if process is not None:
                stats[pid] = process
        # Parents come before their children, which may need the mark of the parent.
        for pid in sorted(stats, key=lambda pid: (stats[pid].start, pid)):
            self._learn(pid, stats[pid], now, up)
        self._cgroups.again()
        return {"ranks": self._ranks(stats, threads), "others": self._others()}

    def members(self, run: str) -> Dict[int, List[int]]:
        """Return {rank: pids} of a run's ranks and their children, as of the last look."""
        rank_pids: Dict[int, List[int]] = {}
        for pid, known in sorted(self._known.items()):
            if known.run == run and known.rank >= 0:
                rank_pids.setdefault(known.rank, []).append(pid)
        return rank_pids

    def _forget(self, pids: Sequence[int]) -> None:
        alive = set(pids)
        self._known = {pid: known for pid, known in self._known.items() if pid in alive}
        self._kernel &= alive

    def _due(self, pids: Sequence[int]) -> List[int]:
        """Return the processes to read: all ranks, all new ones, and some of the others in turn."""
        ranks, others, new = [], [], []
        for pid in pids:
            known = self._known.get(pid)
            if known is None and pid not in self._kernel:
                new.append(pid)
            elif known is not None and known.run and known.rank >= 0:
                ranks.append(pid)
            else:
                others.append(pid)
        first = self._next if self._next < len(others) else 0
        visited = others[first : first + VISITS]
        self._next = first + len(visited)
        return ranks + new + visited

    def _learn(self, pid: int, process: Stat, now: float, up: float) -> None:
        known = self._known.get(pid)
        if known is not None and known.start != process.start:
            known = None
        if _KTHREADD in (pid, process.parent):
            self._kernel.add(pid)
        age = max(up - process.start, 0.0)
        if known is None:
            use = 100 * process.cpu / age if age > 0.2 else 0.0
        else:
            passed = now - known.at
            use = 100 * (process.cpu - known.cpu) / passed if passed > 0 else known.use
        if known is None or known.comm != process.comm or age < YOUNG_S:
            run, rank = ("", -1) if pid in self._kernel else self._whose(pid, process.parent)
        else:
            run, rank = known.run, known.rank
        self._known[pid] = Known(process.comm, process.start, run, rank, now, process.cpu, max(use, 0.0))

    def _whose(self, pid: int, parent: int) -> Tuple[str, int]:
        run, rank = mark(self._environ(pid))
        if run:
            return run, -1 if is_relay(pid) else rank
        above = self._known.get(parent)
        if above is None or not above.run:
            return "", -1
        # A relay has no rank here, but its environment has the one of what is below it.
        run, rank = (above.run, above.rank) if above.rank >= 0 else mark(self._environ(parent))
        return (run, rank) if rank >= 0 else ("", -1)

    def _ranks(self, stats: Dict[int, Stat], threads: bool) -> List[Dict[str, Any]]:
        groups: Dict[Any, List[int]] = {}
        for pid in sorted(stats):
            known = self._known[pid]
            if known.run and known.rank >= 0:
                groups.setdefault((known.run, known.rank), []).append(pid)
        before, self._used = self._used, {}
        return [self._rank(key, pids, stats, before, threads) for key, pids in sorted(groups.items())[:MOST_RANKS]]

    def _rank(
        self, key: Any, pids: Sequence[int], stats: Dict[int, Stat], before: Dict[Any, float], threads: bool
    ) -> Dict[str, Any]:
        pid = main_of(pids, stats)
        main = stats[pid]
        # A child that has ended counts again when its parent waits for it, or never. The counter must not fall.
        whose = (*key, pid, main.start)
        used = max(sum(stats[one].cpu + stats[one].reaped for one in pids), before.get(whose, 0.0))
        self._used[whose] = used
        folder = "%s/%d" % (files.PROC, pid)
        words = files.record(folder + "/schedstat").split()
        rank = {
            "run": key[0],
            "rank": key[1],
            "pid": pid,
            "comm": main.comm,
            "procs": len(pids),
            "cpu": round(sum(self._known[one].use for one in pids), 1),
            "cpu_s": round(used, 2),
            "rss": sum(stats[one].rss for one in pids),
            "threads": sum(stats[one].threads for one in pids),
            "state": main.state,
            "wchan": files.record(folder + "/wchan").decode("utf-8", "replace")[:64],
            "core": main.core,
            "allowed": allowed(pid),
            "waited_s": int(words[1]) / 1e9 if len(words) > 1 else None,
            "disk_s": main.delayed if self._delays else None,
        }
        rank.update(self._cgroups.throttled(pid))
        if threads:
            rank["waited_all_s"] = waited(folder)
        return rank

    def _others(self) -> List[Dict[str, Any]]:
        """Return the processes of no run that use the most, except for this one."""
        mine = os.getpid()
        others = [(known.use, pid) for pid, known in self._known.items() if not known.run and known.use >= LEAST]
        top = sorted(((use, pid) for use, pid in others if pid != mine), reverse=True)[:MOST_OTHERS]
        return [
            {"pid": pid, "comm": self._known[pid].comm, "cpu": round(use, 1), "core": _core(pid)} for use, pid in top
        ]


def mark(data: bytes) -> Tuple[str, int]:
    """Return the run and the rank in these variables: '' without a run, and -1 without a rank."""
    if b"KIT_RUN=" not in data:
        return "", -1
    pairs = (item.partition(b"=") for item in data.split(b"\0"))
    env = {name: value for name, _, value in pairs}
    number = env.get(b"RANK" if b"KIT_AGENT" in env else b"OMPI_COMM_WORLD_RANK", b"")
    rank = int(number) if number.isdigit() and len(number) < 8 else -1
    return env.get(b"KIT_RUN", b"").decode("ascii", "replace"), rank


def main_of(pids: Sequence[int], stats: Dict[int, Stat]) -> int:
    """Return the process that does the rank's work: its first one, or the one below a shell that waits for it."""
    first = next((pid for pid in pids if stats[pid].parent not in pids), pids[0])
    seen = set()
    while stats[first].comm in _SHELLS and first not in seen:
        seen.add(first)
        first = next((pid for pid in pids if stats[pid].parent == first), first)
    return first


def is_relay(pid: int) -> bool:
    words = files.read("%s/%d/cmdline" % (files.PROC, pid)).split(b"\0")
    return any(word.endswith(RELAYS) for word in words[:4])


def allowed(pid: int) -> Optional[str]:
    """Return the cores on which the process may run, such as `0-3`."""
    try:
        return files.cpu_list(os.sched_getaffinity(pid))
    except OSError:
        return None


def waited(folder: str) -> float:
    """Return the seconds in which the threads of a process were ready and waited for a core."""
    rows = [files.word("%s/task/%s/schedstat" % (folder, name)).split() for name in _numbers(folder + "/task")]
    return sum(int(row[1]) for row in rows if len(row) > 1) / 1e9


def _core(pid: int) -> Optional[int]:
    process = stat(pid)
    return None if process is None else process.core


def _uptime() -> float:
    words = files.word(files.PROC + "/uptime").split()
    return float(words[0]) if words else 0.0


def _numbers(folder: str) -> List[str]:
    try:
        return [name for name in os.listdir(folder) if name.isdigit()]
    except OSError:
        return []
