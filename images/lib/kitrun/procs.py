"""The processes of a run on this node. KIT_RUN in a process's environment marks it, so no other process can match.

A process below a rank may have overwritten its own environment. It is of the same run.
"""

import contextlib
import os
import signal
import time
from typing import Dict, Iterable, List, Set

from kitwatch import readiness

from kitrun import fence

TORCHRUN = b"kit-torchrun"
RELAYS = (b"kit-rank", TORCHRUN)
# Marks every process of a run with torchrun. Open MPI's rank is then that of the host's torchrun.
AGENT = b"KIT_AGENT"
# The same as in images/bin/kit-rank.
HOLD = signal.SIGURG
# States of a process that does nothing: stopped, traced, zombie, gone.
STILL = ("T", "t", "Z", "X", "")
# How long kit-torchrun may take to freeze its torchrun, which would restart ranks that end.
FREEZE_S = 2.0
# How long a process may take to become another program on a busy machine.
BECOMING_S = 0.5
# How many processes may be between a rank and one below it that has no mark.
DEEPEST = 16


def environment(pid: int) -> Dict[bytes, bytes]:
    """Return {name: value}; empty for a process that has ended, and for a zombie."""
    try:
        return variables(read_environ(pid))
    except OSError:
        return {}


def read_environ(pid: int) -> bytes:
    """Return the variables of a process as the kernel has them. Raises OSError."""
    path = "/proc/%d/environ" % pid
    try:
        with open(path, "rb") as file:
            return file.read()
    except PermissionError:
        with fence.as_user(), open(path, "rb") as file:
            return file.read()


def variables(data: bytes) -> Dict[bytes, bytes]:
    pairs = (item.partition(b"=") for item in data.split(b"\0") if b"=" in item)
    return {name: value for name, _, value in pairs}


def marked(run_id: str) -> Dict[int, Dict[bytes, bytes]]:
    """Return {pid: environment} of the processes of a run, without this process.

    A process below a rank or its relay that has no mark, because it overwrote its environment, has that of the rank.
    """
    wanted = b"KIT_RUN=" + run_id.encode()
    processes = {}
    unmarked = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        pid = int(name)
        data = settled(pid)
        if wanted in data.split(b"\0") and state(pid) not in ("Z", "X", ""):
            processes[pid] = variables(data)
        elif b"KIT_RUN=" not in data:
            unmarked.append(pid)
    ranks_of_run = {pid: env for pid, env in processes.items() if rank_of(env)}
    return {**processes, **below(ranks_of_run, unmarked)} if ranks_of_run else processes


def below(owners: Dict[int, Dict[bytes, bytes]], pids: Iterable[int]) -> Dict[int, Dict[bytes, bytes]]:
    """Return {pid: environment of its owner} of those of `pids` that an owner started, directly or through others."""
    rows = ((pid, stat(pid)) for pid in pids)
    parents = {pid: int(words[1]) for pid, words in rows if len(words) > 1 and words[0] not in (b"Z", b"X")}
    started = {}
    for pid in parents:
        above = pid
        # A number that is used again may close a circle.
        for _ in range(DEEPEST):
            above = parents.get(above, above)
        if above in owners:
            started[pid] = owners[above]
    return started


def settled(pid: int) -> bytes:
    """Return the environment of a process. Waits for one that is becoming another program and has none for a moment."""
    end = time.monotonic() + BECOMING_S
    whole = False
    while True:
        try:
            data = read_environ(pid)
        except OSError:
            return b""
        # Kernel threads and zombies have no memory. A program without variables still has a command line.
        if data or whole or not memory(pid) or time.monotonic() > end:
            return data
        whole = any(command(pid))
        if not whole:
            time.sleep(0.002)


def stat(pid: int) -> List[bytes]:
    """Return the words of /proc/PID/stat after the name, or an empty list if the process is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def memory(pid: int) -> int:
    """Return the bytes of its address space."""
    words = stat(pid)
    return int(words[20]) if len(words) > 20 else 0


def state(pid: int) -> str:
    """Return R, S, D, T, Z …; '' if the process is gone."""
    words = stat(pid)
    return words[0].decode() if words else ""


def parent(pid: int) -> int:
    words = stat(pid)
    return int(words[1]) if len(words) > 1 else 0


def command(pid: int) -> List[bytes]:
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def is_relay(pid: int) -> bool:
    return any(word.endswith(RELAYS) for word in command(pid)[:4])


def ranks(run_id: str) -> Dict[int, int]:
    """Return {pid: rank} of the ranks and their children, without what is between them and mpirun."""
    numbers = {pid: rank_of(env) for pid, env in marked(run_id).items()}
    return {pid: int(number) for pid, number in numbers.items() if number.isdigit() and not is_relay(pid)}


def memory_of(run_id: str, enough: int) -> int:
    """Return the bytes of memory that the ranks here and their children use, without files that they only read.

    A sum above `enough` is exact: pages that several processes share count once. A sum below may be too high.
    """
    pids = list(ranks(run_id))
    rough = sum(resident(pid) for pid in pids)
    return rough if rough <= enough else sum(exact(pid) for pid in pids)


def resident(pid: int) -> int:
    """Return the bytes that a process has written or shares in memory. The kernel counts shared pages in full."""
    return kibibytes("/proc/%d/status" % pid, ("RssAnon:", "RssShmem:", "HugetlbPages:"))


def exact(pid: int) -> int:
    """Return the same with each shared page divided by its number of processes, which takes the kernel longer."""
    with fence.as_user():
        shared = kibibytes("/proc/%d/smaps_rollup" % pid, ("Pss_Anon:", "Pss_Shmem:", "Private_Hugetlb:"))
    return shared or resident(pid)


def kibibytes(path: str, names: Iterable[str]) -> int:
    """Return the sum of these lines of a file, such as `RssAnon:  1024 kB`, in bytes."""
    wanted = tuple(names)
    rows = (line.split() for line in read_text(path).splitlines() if line.startswith(wanted))
    return sum(int(words[1]) << 10 for words in rows if len(words) > 1 and words[1].isdigit())


def rank_of(env: Dict[bytes, bytes]) -> bytes:
    """Return the rank as its starter set it, or b'' for a process that is no rank."""
    return env.get(b"RANK" if AGENT in env else b"OMPI_COMM_WORLD_RANK", b"")


def end_gently(run_id: str) -> None:
    """Ask the ranks here to end. Their relays stay until mpirun ends, so that no rank's end cuts another one short."""
    processes = list(marked(run_id))
    relays = [pid for pid in processes if is_relay(pid)]
    send(relays, HOLD)
    keepers = {pid for pid in relays if any(word.endswith(TORCHRUN) for word in command(pid)[:4])}
    await_stillness({pid for pid in processes if parent(pid) in keepers})
    send(ranks(run_id), signal.SIGTERM)


def await_stillness(pids: Set[int], patience: float = FREEZE_S) -> bool:
    """Wait until these processes are stopped or have ended. Return False if that takes longer than `patience`."""
    end = time.monotonic() + patience
    while any(state(pid) not in STILL for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def send(pids: Iterable[int], sign: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, sign)


def sweep(run_id: str, patience: float = 1.0) -> int:
    """End all that is left of a run here, by TERM and then by KILL. Return how many processes did not end.

    Then remove what killed ranks leave in memory.
    """
    left = _end(run_id, patience)
    readiness.leave(run_id)
    return left


def _end(run_id: str, patience: float) -> int:
    for sign, limit in ((signal.SIGTERM, patience), (signal.SIGTERM, 0.2), (signal.SIGKILL, 3.0)):
        end = time.monotonic() + limit
        left = marked(run_id)
        send(left, sign)
        while left and time.monotonic() < end:
            time.sleep(0.02)
            left = marked(run_id)
        if not left:
            return 0
    return len(marked(run_id))


def read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def child_pipe() -> int:
    """Return a descriptor that is readable whenever a child ends."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    os.set_blocking(read_end, False)
    signal.set_wakeup_fd(write_end)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return read_end


def close_child_pipe(read_end: int) -> None:
    """Close the pipe of `child_pipe`: a run that is retried for weeks has one for each attempt."""
    write_end = signal.set_wakeup_fd(-1)
    for fd in (read_end, write_end):
        if fd >= 0:
            os.close(fd)
