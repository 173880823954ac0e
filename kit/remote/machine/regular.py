"""Reads a regular file of this machine. A named pipe would make kit wait, and a device has no end."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES = 8 * 1024 * 1024


def read_regular(path: Path, *, most: int = MOST_BYTES) -> bytes:
    """Return the bytes of a file. Raises OSError if it is not a regular file, or has more than `most` bytes."""
    # Without O_NONBLOCK, opening a named pipe waits for somebody to write into it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123  (a descriptor)
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
            raise OSError(number, "it is not a regular file", str(path))
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most >> 20} MiB", str(path))
    return data
