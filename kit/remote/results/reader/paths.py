"""Opens folders and files that ranks can write: a link below the top is never followed."""

import errno
import json
import os
import stat
import sys
from typing import Any

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# It gives a descriptor that names the entry, and opens nothing: no FIFO waits, and no device does anything.
ENTRY = os.O_PATH | os.O_NOFOLLOW


def text(name: bytes) -> str:
    return name.decode("latin-1")


def say(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


def opened(top: str, below: str) -> int:
    """Open the folder TOP/BELOW. Links in BELOW are not followed. Raises OSError."""
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for name in below.split("/") if below else ():
        fd = inner(fd, name)
    return fd


def inner(fd: int, name: Any) -> int:
    """Open a folder in another one, and close that."""
    try:
        return os.open(name, FOLDER, dir_fd=fd)
    finally:
        os.close(fd)


def regular(fd: int, name: Any) -> int:
    """Open a regular file of a folder to read it. Raises OSError for anything else, which is not even opened."""
    entry = os.open(name, ENTRY, dir_fd=fd)
    try:
        if not stat.S_ISREG(os.fstat(entry).st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        return os.open("/proc/self/fd/%d" % entry, os.O_RDONLY | os.O_NONBLOCK)
    finally:
        os.close(entry)


def resolved(path: str) -> str:
    return os.path.realpath(os.fsdecode(path.encode("latin-1")))
