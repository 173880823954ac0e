"""What Horovod's ranks on this node count: how long their tensors wait for other ranks, and how long operations take.

kit's Horovod (images/horovod/kit_watch.h, which has the layout) maps a file of 128 bytes for each rank, RANK.PID, in
the folder that KIT_READINESS names. kit-rank sets it, so each run has its own folder. Ranks own it, so no link in it
is followed.
"""

import contextlib
import os
import stat
import struct
from typing import Dict, Iterator, NamedTuple, Tuple

VARIABLE = "KIT_READINESS"
LENGTH = 128
_LAYOUT = struct.Struct("<8siiii13q")
_MAGIC, _VERSION = b"KITREADY", 1
# A rank of an elastic run begins a new file with each world. More files than this are nobody's ranks.
_MOST = 4096
NONE, WRITING, WRITTEN, REFUSED, FAILED = range(5)


class File(NamedTuple):
    """What a rank's file has. Moments (`opened_ns`, `last_ns`, `enqueued_ns`) are in ns since 1970, or 0 for never.

    `size` is the number of ranks of its world. `operations` and `tensors` are those that began; one operation may fuse
    several tensors. `wait_ns` is the time from enqueue to the begin of the operation, summed over tensors;
    `operation_ns` is that of operations. `enqueued` counts tensors that the script gave: those that did not begin wait.
    `tail_ns` is the part of the waits that a step ends with: from the last enqueue to the begin that leaves no tensor
    waiting. `steps` counts how often the same tensor came again.
    `timeline_state` is that of the timeline `timeline_id`: NONE, WRITING, WRITTEN, REFUSED or FAILED.
    """

    rank: int
    size: int
    pid: int
    opened_ns: int
    operations: int
    tensors: int
    wait_ns: int
    operation_ns: int
    bytes: int
    last_ns: int
    enqueued: int
    enqueued_ns: int
    timeline_id: int
    timeline_state: int
    tail_ns: int
    steps: int


def folder_of(run_id: str) -> str:
    """Return the folder of a run's ranks in the node's container. The same as in images/bin/kit-rank."""
    return "/dev/shm/kit-readiness-%s" % run_id  # noqa: S108  (no link in it is followed)


def timeline_folder_of(run_id: str) -> str:
    """Return the folder in which a run's ranks on this node write timelines. On disk: they may be large."""
    return "/tmp/kit-timeline-%s" % run_id  # noqa: S108  (no link in it is followed)


def read(folder: str) -> Dict[int, Dict[str, int]]:
    """Return {rank: counters} of the ranks here, empty if no rank counts.

    "count" is the number of operations so far, "tensors" that of their tensors, "wait_ns" the sum over tensors of the
    time between enqueue and begin of the operation, "op_ns" the sum of the time of operations, "bytes" that of their
    tensors, "tail_ns" and "steps" as in File, and "last_ns" the moment of the last end (ns since 1970). "pending"
    tensors wait for other ranks now, the last one since "enqueued_ns". Two looks give rates. Counters start again when
    "opened_ns" differs.
    """
    return {file.rank: counters(file) for file in files(folder).values()}


def counters(file: File) -> Dict[str, int]:
    """Return the counters of one rank, by the names of `read`."""
    return {
        "count": file.operations,
        "tensors": file.tensors,
        "wait_ns": file.wait_ns,
        "op_ns": file.operation_ns,
        "bytes": file.bytes,
        "tail_ns": file.tail_ns,
        "steps": file.steps,
        "last_ns": file.last_ns,
        "pending": max(0, file.enqueued - file.tensors),
        "enqueued_ns": file.enqueued_ns,
        "opened_ns": file.opened_ns,
        "size": file.size,
    }


def files(folder: str) -> Dict[int, File]:
    """Return the newest file of each rank here. A rank that was killed leaves its file until its run ends here."""
    newest = {}  # type: Dict[int, File]
    with contextlib.suppress(OSError):
        for _, data in _contents(folder):
            file = parse(data)
            if file is not None and (file.rank not in newest or newest[file.rank].opened_ns < file.opened_ns):
                newest[file.rank] = file
    if newest:
        # A smaller world came after a larger one (elastic Horovod).
        size = max(newest.values(), key=lambda file: file.opened_ns).size
        newest = {rank: file for rank, file in newest.items() if rank < size}
    return newest


def parse(data: bytes) -> "File | None":
    """Return the counters, or None if a rank has not filled in its file yet, or it is none of kit's."""
    if len(data) != LENGTH:
        return None
    magic, version, *values = _LAYOUT.unpack(data)
    if magic != _MAGIC or version != _VERSION or min(values) < 0:
        return None
    return File(*values)


def leave(run_id: str) -> None:
    """Remove the counters and timelines of a run that has ended here."""
    for folder in (folder_of(run_id), timeline_folder_of(run_id)):
        remove(folder)


def remove(folder: str) -> None:
    """Remove a folder and its files. Root does this in a folder of the ranks' user."""
    with contextlib.suppress(OSError):
        at = open_folder(folder)
        try:
            for name in os.listdir(at):
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=at)
        finally:
            os.close(at)
        os.rmdir(folder)


def _contents(folder: str) -> Iterator[Tuple[str, bytes]]:
    at = open_folder(folder)
    try:
        for name in sorted(os.listdir(at))[:_MOST]:
            rank, _, pid = name.partition(".")
            if rank.isdigit() and pid.isdigit():
                # A rank that ends removes its file.
                with contextlib.suppress(OSError):
                    yield name, _bytes(name, at)
    finally:
        os.close(at)


def _bytes(name: str, at: int) -> bytes:
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    try:
        return os.read(file, LENGTH + 1) if stat.S_ISREG(os.fstat(file).st_mode) else b""
    finally:
        os.close(file)


def open_folder(folder: str) -> int:
    """Return a descriptor of the folder, which is no link. Raises OSError."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
