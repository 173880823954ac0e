"""Whether a run lives, by its files and its lock."""

import fcntl
import os
import stat
from typing import Optional

from .paths import regular


def file_size(fd: int, name: str) -> int:
    """Return the size of a file, or 0 for anything else. A run that lives removes files."""
    try:
        at = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return 0
    return at.st_size if stat.S_ISREG(at.st_mode) else 0


def changed(fd: int, name: str) -> Optional[int]:
    """Return when a file changed, in ns since 1970; None if there is no such file."""
    try:
        at = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return None
    return at.st_mtime_ns if stat.S_ISREG(at.st_mode) else None


def has(fd: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return False
    return True


def lives(run: int) -> bool:
    """Return whether the run has not ended and its supervisor holds the lock."""
    if not file_size(run, "record.json") or has(run, "end.json"):
        return False
    try:
        lock = regular(run, "lock")
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False
