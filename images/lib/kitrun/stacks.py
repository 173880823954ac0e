"""The stacks of a run's ranks on this node: what each rank is doing now."""

import os
import signal
import time
from typing import Any, Dict, List, Optional, Set

from kitrun import fence, frames, procs

# A rank's Python writes its stack here when it gets STACK_SIGNAL (kit_stacks.py).
STACKS = "/run/kit/stacks"
STACK_SIGNAL = getattr(signal, "SIGRTMAX", 64) - 3
# The beginning of a stack that was too long.
OTHERS = "(other threads are cut)\n"
# Bytes to read of what a rank wrote: Python writes at most 100 threads, and of each at most 100 calls.
MOST_STACK_FILE = 1 << 20
# Bytes of JSON of a rank's stack: a head with many ranks cuts further.
MOST_STACK = 1 << 15


def of_ranks(run_id: str, patience: float = 1.0) -> List[Dict[str, Any]]:
    """Return what each rank here is doing: [{rank, local, pid, state, command, wchan, stack}].

    `local` is what its starter set as LOCAL_RANK, or ''. `stack` is '' for a rank that is not Python.
    """
    first = speakers(procs.ranks(run_id))
    # Another program in the rank's place would be ended by the signal.
    sizes = {pid: size(stack_file(pid)) for pid in first if listens(pid)}
    before = {pid: length for pid, length in sizes.items() if length is not None}
    waiting = list(before)
    deaf = {pid: blocking(pid) for pid in waiting}
    procs.send(waiting, STACK_SIGNAL)
    end = time.monotonic() + patience
    while waiting and time.monotonic() < end:
        time.sleep(0.02)
        # The handler writes in pieces. Its thread accepts the signal again when it has written the last piece.
        waiting = [pid for pid in waiting if (size(stack_file(pid)) or 0) <= before[pid] or blocking(pid) - deaf[pid]]
    # Ranks continue what they did before.
    time.sleep(0.05)
    return [
        {
            "rank": rank,
            "local": procs.environment(pid).get(b"LOCAL_RANK", b"").decode("utf-8", "replace"),
            "pid": pid,
            "state": procs.state(pid),
            "command": " ".join(b" ".join(procs.command(pid)).decode("utf-8", "replace").split())[:120],
            "wchan": read_wchan(pid),
            "stack": shortened(tail_from(stack_file(pid), before[pid]), MOST_STACK) if pid in before else "",
        }
        for pid, rank in sorted(first.items(), key=lambda pair: pair[1])
    ]


def speakers(all_ranks: Dict[int, int]) -> Dict[int, int]:
    """Return {pid: rank} of the one process of each rank whose stack kit shows.

    That is the rank itself: its first process, whose parent is not one of its processes. If that is a shell or a
    similar program, it is the first process below it that writes its stack on a signal.
    """
    # A process that has ended meanwhile has no parent, and does not count.
    alive = [pid for pid in all_ranks if procs.state(pid) not in ("", "X", "Z")]
    top = {pid: top_of(pid, all_ranks) for pid in alive}
    tops = sorted(set(top.values()), key=lambda pid: (not procs.is_relay(procs.parent(pid)), pid))
    first = {}  # type: Dict[int, int]
    for pid in tops:
        # What a rank left in the background may have lost its parent. The rank itself is below its relay.
        first.setdefault(all_ranks[pid], pid)
    for rank, pid in first.items():
        candidates = sorted(other for other in alive if top[other] == pid and other != pid and listens(other))
        if candidates and not listens(pid):
            first[rank] = candidates[0]
    return {pid: rank for rank, pid in first.items()}


def top_of(pid: int, all_ranks: Dict[int, int]) -> int:
    """Return the process above this one, or itself, whose parent is none of the ranks' processes."""
    for _ in range(procs.DEEPEST):
        above = procs.parent(pid)
        if above not in all_ranks:
            break
        pid = above
    return pid


def listens(pid: int) -> bool:
    """Return whether the process handles STACK_SIGNAL."""
    return in_mask("/proc/%d/status" % pid, "SigCgt:")


def blocking(pid: int) -> Set[str]:
    """Return its threads that do not accept STACK_SIGNAL now: those in its handler, and those that never do."""
    try:
        threads = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return set()
    return {thread for thread in threads if in_mask("/proc/%d/task/%s/status" % (pid, thread), "SigBlk:")}


def in_mask(path: str, which: str) -> bool:
    """Return whether STACK_SIGNAL is in this mask of a process or thread."""
    for line in procs.read_text(path).splitlines():
        if line.startswith(which):
            return bool(int(line.split()[1], 16) >> (STACK_SIGNAL - 1) & 1)
    return False


def stack_file(pid: int) -> str:
    return os.path.join(STACKS, str(pid))


def size(path: str) -> Optional[int]:
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def read_wchan(pid: int) -> str:
    """Return the kernel function in which the process waits, or what the kernel prints instead."""
    with fence.as_user():
        return procs.read_text("/proc/%d/wchan" % pid)[:64]


def tail_from(path: str, offset: int) -> str:
    """Return what a rank wrote there. Follows no link, and waits for nobody: the rank can replace the file."""
    try:
        with fence.as_user(), open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            file.seek(offset)
            return file.read(MOST_STACK_FILE).decode("utf-8", "replace")
    except OSError:
        return ""


def shortened(stack: str, room: int) -> str:
    """Return what `of_ranks` says of a rank, in at most `room` bytes of JSON.

    A rank writes the stack of its main thread last, and of each thread the innermost calls first. Of a longer text,
    the main thread stays, and of that the innermost calls.
    """
    whole = frames.shortened(stack, room)
    main = stack.rstrip().rfind("\n\n") + 2
    return whole if whole == stack or main < 2 else frames.shortened(OTHERS + stack[main:], room)
