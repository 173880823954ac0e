"""Asks a question once for all ranks of a run on a node: nvidia-smi takes seconds, and longer if all ranks ask at once.

The first rank asks, and the others wait for its answer in a file. Ranks that Open MPI's daemon started together have
the same parent, so an answer is never one of an earlier attempt, when the node may have had other GPUs.
"""

import fcntl
import json
import os
import re
import stat
from typing import IO, Callable, Tuple

FOLDER = "/dev/shm"  # noqa: S108  (only files that are this user's own count)
Answer = Tuple[str, str]


def once(question: str, size: int, ask: "Callable[[], Answer]") -> Answer:
    """Return the answer of `ask`, which one of the `size` processes with this parent calls.

    The last one removes the file. If the file cannot be used, each process asks by itself.
    """
    if size < 2:
        return ask()
    name = "kit-once-%d-%s" % (os.getppid(), re.sub(r"[^a-z0-9]+", "-", question.lower()))
    path = os.path.join(FOLDER, name[:200])
    try:
        file = opened(path)
    except OSError:
        return ask()
    with file:
        # Ends with this process, also if that is killed.
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            text, error, readers = json.loads(file.read().decode())
        except (TypeError, ValueError):
            (text, error), readers = ask(), 0
        try:
            if readers + 1 >= size:
                os.unlink(path)
            else:
                file.seek(0)
                file.truncate()
                file.write(json.dumps([text, error, readers + 1]).encode())
        except OSError:
            pass
    return str(text), str(error)


def opened(path: str) -> "IO[bytes]":
    """Open a file that only this user can read. Raises OSError, also if another user has put something there."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.fdopen(os.open(path, flags, 0o600), "r+b")
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink > 1:
        file.close()
        raise PermissionError(path)
    return file
