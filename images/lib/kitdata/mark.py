"""The mark of a finished staging: no file or folder of it changed since, as long as none has a later change time.

The kernel sets the change time (ctime) of a file or folder with every change of its bytes, names or rights, and no
program can set it. So one look at all times says as much as a comparison with the list, and `find` looks faster than
Python. A clock that was set back hides what changes before it is right again; `kit data verify` compares the bytes.
"""

import contextlib
import os
import subprocess
import time
from typing import Optional

NAME = "unchanged-since"
_NEW = NAME + ".new"
# A file system whose times are coarser than this gets no mark.
_PATIENCE_S = 3.0


def begin(folder: str) -> Optional[str]:
    """Return a new mark, later than all changes so far; `keep` makes it the folder's. None if there can be none.

    The file has the time just before its own: what changes from now on has a later one, also in the same tick of the
    kernel's clock.
    """
    path = os.path.join(folder, _NEW)
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644))
        first, end = _touch(path), time.monotonic() + _PATIENCE_S
        now = first
        while now <= first:
            if time.monotonic() > end:
                os.unlink(path)
                return None
            time.sleep(0.001)
            now = _touch(path)
        os.utime(path, ns=(now - 1, now - 1))
        return path
    except OSError:
        return None


def _touch(path: str) -> int:
    os.utime(path)
    return os.stat(path).st_mtime_ns


def keep(folder: str, mark: Optional[str]) -> None:
    """Make this mark the folder's, if there is one."""
    if mark is not None:
        with contextlib.suppress(OSError):
            os.rename(mark, os.path.join(folder, NAME))


def drop(folder: str) -> None:
    """Remove the mark, also one that was begun and not kept. Raises OSError."""
    for name in (NAME, _NEW):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, name))


def holds(folder: str, files: str) -> bool:
    """Return whether nothing in the folder `files` has changed since the mark. Without a mark or `find`, False."""
    mark = os.path.join(folder, NAME)
    if not os.path.exists(mark):
        return False
    try:
        argv = ["find", files, "-cnewer", mark, "-print", "-quit"]
        # It also fails for what it cannot look into.
        looked = subprocess.run(
            argv, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        return False
    return looked.returncode == 0 and not looked.stdout
