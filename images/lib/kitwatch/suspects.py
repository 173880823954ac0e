"""What `kit blame` looks at beside readings: how the ranks of one run pass their time.

The kernel counts for each thread how long it ran, and how long it was ready without a core. A rank in which no thread
did either was asleep: it waited for other ranks, for a disk or for data. Horovod's own thread does not count, because
it asks the other ranks without an end.

The environment of a process has the rank's number at its start. A reset of an elastic run gives ranks other numbers,
which only Horovod knows.
"""

import time
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from kitwatch import connections, files, readiness

# How often to look, in seconds, and at how many threads of a rank.
EVERY_S, MOST_THREADS = 0.2, 96
# kit names it so (images/horovod/kit_watch.h).
_HOROVOD = b"horovod\n"
# Who waits for a file system of FUSE, such as that of rclone, waits in this function and is no thread in state D.
_FUSE = b"request_wait_answer"
_GOLDEN = 0.618034
_TASK = "%s/%d/task/%s"


def pause_s(number: int) -> float:
    """Return the time before a look: EVERY_S on average, and never the same as before.

    Steps of a training are regular. Regular looks could all see the same part of a step.
    """
    return EVERY_S * (0.5 + number * _GOLDEN % 1)


class Thread(NamedTuple):
    """Seconds that a thread ran, and was ready without a core."""

    ran: float
    waited: float


class Sums:
    """What one rank did since the last `take`, in seconds. `looked` is how long the looks were apart."""

    def __init__(self) -> None:
        self.looked = self.ran = self.waited = self.disk = self.asleep = 0.0


class Suspects:
    """Samples the ranks of a run here. `members` returns {rank: the pids of its processes, the main one first}."""

    def __init__(self, run: str) -> None:
        self.run = run
        self._peers = connections.Peers()
        self._members: Dict[int, List[int]] = {}
        self._sums: Dict[int, Sums] = {}
        self._threads: Dict[Tuple[int, str], Thread] = {}
        # Those that ran since the first look at them: all others wait for nothing that a step needs.
        self._awake: Set[Tuple[int, str]] = set()
        self._workers: Dict[int, float] = {}
        self._horovod: Dict[Tuple[int, str], bool] = {}
        # By the number at the start of a rank: its process that uses Horovod, and its number now.
        self._numbers: Dict[int, Tuple[int, int]] = {}
        # The numbers of processes in their container.
        self._inner: Dict[int, int] = {}
        self._at: Optional[float] = None

    def follow(self, members: Dict[int, List[int]]) -> None:
        """Look at these processes from now on."""
        self._members = members
        alive = {pid for pids in members.values() for pid in pids}
        self._threads = {key: value for key, value in self._threads.items() if key[0] in alive}
        self._awake = {key for key in self._awake if key[0] in alive}
        self._horovod = {key: value for key, value in self._horovod.items() if key[0] in alive}
        self._inner = {pid: inner for pid, inner in self._inner.items() if pid in alive}
        # Between two worlds, Horovod has no file: the rank keeps its number.
        self._numbers = {rank: now for rank, now in self._numbers.items() if now[0] in members.get(rank, ())}

    def number(self, rank: int) -> int:
        """Return the present number of a rank, from that of its start."""
        return self._numbers[rank][1] if rank in self._numbers else rank

    def sample(self) -> None:
        """Look once, and add what happened since the look before."""
        now = time.monotonic()
        passed, self._at = 0.0 if self._at is None else now - self._at, now
        for rank, pids in self._members.items():
            sums = self._sums.setdefault(rank, Sums())
            ran = waited = busiest = 0.0
            on_disk = False
            for pid in pids:
                threads, disk = self._look(pid)
                on_disk = on_disk or disk
                ran += sum(one.ran for one in threads)
                waited += sum(one.waited for one in threads)
                if pid == pids[0]:
                    busiest = max([one.ran + one.waited for one in threads] or [0.0])
            if passed > 0:
                sums.looked += passed
                sums.ran += ran
                sums.waited += waited
                sums.disk += passed if on_disk else 0.0
                sums.asleep += max(0.0, passed - busiest)

    def _look(self, pid: int) -> Tuple[List[Thread], bool]:
        """Return what each thread of a process did since the look before, and whether one waits for a disk now."""
        changes, on_disk = [], False
        names = files.names("%s/%d/task" % (files.PROC, pid))
        for name in names[:MOST_THREADS]:
            key = (pid, name)
            if self._is_horovod(key):
                continue
            words = files.read((_TASK + "/schedstat") % (files.PROC, pid, name)).split()
            if len(words) < 2:
                continue
            thread = Thread(int(words[0]) / 1e9, int(words[1]) / 1e9)
            before = self._threads.get(key)
            self._threads[key] = thread
            # A thread that is new began since then.
            change = Thread(thread.ran - before.ran, thread.waited - before.waited) if before else Thread(0.0, 0.0)
            changes.append(change)
            if change.ran:
                self._awake.add(key)
            on_disk = on_disk or self._is_on_disk(key)
        return changes, on_disk

    def _is_on_disk(self, key: Tuple[int, str]) -> bool:
        """Return whether a thread waits for a disk now. It may have run a moment ago: many waits are short."""
        stat = files.record((_TASK + "/stat") % (files.PROC, key[0], key[1]))
        state = stat[stat.rfind(b")") + 2 :][:1]
        if state != b"S" or key not in self._awake:
            return state == b"D"
        return files.record((_TASK + "/wchan") % (files.PROC, key[0], key[1])).startswith(_FUSE)

    def _is_horovod(self, key: Tuple[int, str]) -> bool:
        known = self._horovod.get(key)
        if known is None:
            name = files.read((_TASK + "/comm") % (files.PROC, key[0], key[1]))
            known = name == _HOROVOD
            # A thread gets its name a moment after its start.
            if known or key in self._threads:
                self._horovod[key] = known
        return known

    def take(self) -> Dict[str, Any]:
        """Return what happened since the last `take`, and what Horovod counts: {"ranks": […], "peers": […]}."""
        ranks: List[Dict[str, Any]] = []
        files_by_rank = self._files()
        for rank, pids in self._members.items():
            sums = self._sums.pop(rank, Sums())
            part = sums.looked or 1.0
            file = files_by_rank.get(rank)
            ranks.append(
                {
                    "rank": self.number(rank),
                    "looked": round(sums.looked, 3),
                    "cpu": round(sums.ran / part, 4),
                    "delay": round(sums.waited / part, 4),
                    "disk": round(sums.disk / part, 4),
                    "asleep": round(sums.asleep / part, 4),
                    "workers": round(self._worked(rank, pids) / part, 4),
                    "readiness": shortened(readiness.counters(file)) if file else None,
                }
            )
        ranks.sort(key=lambda one: one["rank"])
        return {"ranks": ranks, "peers": self._peers.look()}

    def _files(self) -> Dict[int, readiness.File]:
        """Return what Horovod counts by the number at the start of a rank, and learn the present numbers."""
        by_start: Dict[int, readiness.File] = {}
        by_pid: Dict[int, readiness.File] = {}
        for rank, pids in self._members.items():
            if not pids:
                continue
            file = self._file(rank, pids, by_pid)
            if file is None:
                # Ranks on one host mostly share a container, and one look shows them all.
                path = "%s/%d/root%s" % (files.PROC, pids[0], readiness.folder_of(self.run))
                by_pid.update((one.pid, one) for one in readiness.files(path).values())
                file = self._file(rank, pids, by_pid)
            if file is not None:
                by_start[rank] = file
        return by_start

    def _file(self, rank: int, pids: List[int], by_pid: Dict[int, readiness.File]) -> Optional[readiness.File]:
        """Return the file of a rank, which one of its processes has made."""
        for pid in pids if by_pid else ():
            file = by_pid.get(self._inner_of(pid))
            if file is not None:
                self._numbers[rank] = (pid, file.rank)
                return file
        if not self._inner_of(pids[0]):
            return next((file for file in by_pid.values() if file.rank == rank), None)
        return None

    def _inner_of(self, pid: int) -> int:
        """Return the number of a process in its container, or 0: kernels before 4.1 do not say it."""
        if pid not in self._inner:
            lines = files.lines("%s/%d/status" % (files.PROC, pid))
            words = next((line.split() for line in lines if line.startswith("NSpid:")), [])
            self._inner[pid] = int(words[-1]) if len(words) > 1 else 0
        return self._inner[pid]

    def _worked(self, rank: int, pids: List[int]) -> float:
        """Return the seconds that the children of a rank ran since the last look."""
        total = 0.0
        for pid in pids[1:]:
            words = files.read("%s/%d/stat" % (files.PROC, pid)).rpartition(b")")[2].split()
            total += (int(words[11]) + int(words[12])) / files.TICKS if len(words) > 12 else 0.0
        before = self._workers.get(rank)
        self._workers[rank] = total
        return max(0.0, total - before) if before is not None else 0.0


def shortened(counters: Dict[str, int]) -> Dict[str, int]:
    """Return what kit needs of a rank's counters. In microseconds: a number of JSON has 53 bits."""
    short = {name: counters[name] for name in ("tensors", "bytes", "steps", "pending")}
    short.update((name + "_us", counters[name + "_ns"] // 1000) for name in ("wait", "op", "tail", "opened"))
    return short
