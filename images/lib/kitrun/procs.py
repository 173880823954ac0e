"""The processes of a run on this node, by its mark: KIT_RUN in the environment of each. Nothing else can match."""

import contextlib
import os
import signal
import time

RELAY = b"kit-rank"
# As images/bin/kit-rank knows it.
HOLD = signal.SIGURG
# As long as a process may take to become another program, on a machine that is busy.
BECOMING_S = 0.5
# What a rank's Python writes its stack to when it gets STACK_SIGNAL (kit_stacks.py).
STACKS = "/run/kit/stacks"
STACK_SIGNAL = getattr(signal, "SIGRTMAX", 64) - 3


def environment(pid):
    """{name: value} in bytes; empty for what has ended, a zombie too."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            data = file.read()
    except OSError:
        return {}
    return dict(item.split(b"=", 1) for item in data.split(b"\0") if b"=" in item)


def marked(run_id):
    """{pid: environment} of the processes of a run. This process is none, whoever started it."""
    wanted = b"KIT_RUN=" + run_id.encode()
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        pid = int(name)
        data = settled(pid)
        if wanted in data.split(b"\0") and state(pid) not in ("Z", "X", ""):
            found[pid] = dict(item.split(b"=", 1) for item in data.split(b"\0") if b"=" in item)
    return found


def settled(pid):
    """The environment of a process as bytes. One that is just becoming another program shows none for a moment."""
    end = time.monotonic() + BECOMING_S
    whole = False
    while True:
        try:
            with open("/proc/%d/environ" % pid, "rb") as file:
                data = file.read()
        except OSError:
            return b""
        # Kernel threads and zombies have no memory. A program without any variable has its words nevertheless.
        if data or whole or not memory(pid) or time.monotonic() > end:
            return data
        whole = any(command(pid))
        if not whole:
            time.sleep(0.002)


def memory(pid):
    """Bytes of its address space."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[20])
    except (OSError, IndexError):
        return 0


def state(pid):
    """R, S, D, T, Z …; '' when it is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""


def command(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def is_relay(pid):
    return any(word.endswith(RELAY) for word in command(pid)[:4])


def ranks(run_id):
    """{pid: rank} of the ranks and their children, without the relays that stand between them and mpirun."""
    return {
        pid: int(env[b"OMPI_COMM_WORLD_RANK"])
        for pid, env in marked(run_id).items()
        if env.get(b"OMPI_COMM_WORLD_RANK", b"").isdigit() and not is_relay(pid)
    }


def end_gently(run_id):
    """Ask the ranks here to end. Their relays stay until mpirun goes, so that no rank's end cuts another's short."""
    relays = [pid for pid in marked(run_id) if is_relay(pid)]
    tell(relays, HOLD)
    tell(ranks(run_id), signal.SIGTERM)


def tell(pids, sign):
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, sign)


def sweep(run_id, patience=1.0):
    """End all that is left of a run here, by TERM and then by KILL. Returns how many would not end."""
    for sign, limit in ((signal.SIGTERM, patience), (signal.SIGTERM, 0.2), (signal.SIGKILL, 3.0)):
        end = time.monotonic() + limit
        left = marked(run_id)
        tell(left, sign)
        while left and time.monotonic() < end:
            time.sleep(0.02)
            left = marked(run_id)
        if not left:
            return 0
    return len(marked(run_id))


def stacks(run_id, patience=1.0):
    """What each rank here is doing: [{rank, pid, state, command, wchan, stack}]. `stack` is '' for what is no Python."""
    found = ranks(run_id)
    mine = set(found)
    # The rank itself: the first of its processes, whose parent is none of them; or, where that is a shell or the like,
    # the first below it that can tell where it stands.
    # One that has gone meanwhile has no parent any more, and is none.
    first = {pid: rank for pid, rank in found.items() if parent(pid) not in mine and state(pid) not in ("", "X", "Z")}
    for pid, rank in sorted(first.items()):
        below = sorted(other for other, whose in found.items() if whose == rank and other != pid and listens(other))
        if below and not listens(pid):
            first[below[0]] = first.pop(pid)
    # Another program in the rank's place would be ended by the signal.
    before = {pid: size(stack_file(pid)) if listens(pid) else None for pid in first}
    waiting = [pid for pid, length in before.items() if length is not None]
    deaf = {pid: blocking(pid) for pid in waiting}
    tell(waiting, STACK_SIGNAL)
    end = time.monotonic() + patience
    while waiting and time.monotonic() < end:
        time.sleep(0.02)
        # The handler writes in pieces, and its thread takes the signal again when it has written the last.
        waiting = [pid for pid in waiting if (size(stack_file(pid)) or 0) <= before[pid] or blocking(pid) - deaf[pid]]
    # Back to what they did before.
    time.sleep(0.05)
    told = []
    for pid, rank in sorted(first.items(), key=lambda pair: pair[1]):
        told.append(
            {
                "rank": rank,
                "pid": pid,
                "state": state(pid),
                "command": " ".join(b" ".join(command(pid)).decode("utf-8", "replace").split())[:120],
                "wchan": read_text("/proc/%d/wchan" % pid)[:64],
                "stack": tail_from(stack_file(pid), before[pid]) if before[pid] is not None else "",
            }
        )
    return told


def listens(pid):
    """Whether the process takes STACK_SIGNAL."""
    return in_mask("/proc/%d/status" % pid, "SigCgt:")


def blocking(pid):
    """Its threads that do not take STACK_SIGNAL now: those in its handler, and those that never do."""
    try:
        threads = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return set()
    return {thread for thread in threads if in_mask("/proc/%d/task/%s/status" % (pid, thread), "SigBlk:")}


def in_mask(path, which):
    """Whether STACK_SIGNAL is in this mask of a process or thread."""
    for line in read_text(path).splitlines():
        if line.startswith(which):
            return bool(int(line.split()[1], 16) >> (STACK_SIGNAL - 1) & 1)
    return False


def parent(pid):
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def stack_file(pid):
    return os.path.join(STACKS, str(pid))


def size(path):
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def read_text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def tail_from(path, offset):
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(32768).decode("utf-8", "replace")
    except OSError:
        return ""
