"""Sends the content of files."""

import errno
import hashlib
import json
import os
import sys

from .frames import frame, note
from .paths import inner, opened, regular

CHUNK = 1 << 18
# The most that is read of a file without a size, such as those of /proc.
MOST_UNSIZED = 1 << 20


def send(top: str, below: str) -> None:
    requests = json.loads(sys.stdin.buffer.read().decode())
    root = opened(top, below)
    for path, at, time, most in requests:
        try:
            file = open_file(root, path.encode("latin-1"))
        except OSError as error:
            note(b"H", error=error.strerror)
            continue
        try:
            send_file(file, at, time, most)
        finally:
            os.close(file)
        sys.stdout.flush()


def open_file(root: int, path: bytes) -> int:
    names = path.split(b"/")
    if b".." in names or b"" in names:
        raise OSError(errno.EINVAL, "this is not a path in the folder")
    fd = os.dup(root)
    for name in names[:-1]:
        fd = inner(fd, name)
    try:
        return regular(fd, names[-1])
    finally:
        os.close(fd)


def send_file(file: int, at: int, time: int, most: int) -> None:
    before = os.fstat(file)
    if not before.st_size:
        if sent_unsized(file, before):
            return
        # A program has begun to write it just now.
        before = os.fstat(file)
    if before.st_size > most:
        note(b"H", error="it became much larger after it was listed")
        return
    if before.st_mtime_ns != time or at > before.st_size:
        # What kit has is another version.
        at = 0
    note(b"H", at=at, size=before.st_size, time=before.st_mtime_ns, mode=before.st_mode & 0o777)
    digest = hashlib.sha256()
    count = 0
    try:
        while count < before.st_size:
            data = os.read(file, min(CHUNK, at - count if count < at else before.st_size - count))
            if not data:
                break
            digest.update(data)
            if count >= at:
                frame(b"D", data)
            count += len(data)
    except OSError as error:
        note(b"E", error=error.strerror)
        return
    after = os.fstat(file)
    changed = count != before.st_size or (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns)
    note(b"E", sha256=digest.hexdigest(), changed=changed)


def sent_unsized(file: int, before: os.stat_result) -> bool:
    """Send a file that says that it is empty. The kernel makes those of /proc only when they are read.

    Return False, and send nothing, if it has a size by now.
    """
    data = b""
    try:
        while len(data) <= MOST_UNSIZED:
            more = os.read(file, CHUNK)
            if not more:
                break
            data += more
    except OSError as error:
        note(b"H", error=error.strerror)
        return True
    if os.fstat(file).st_size:
        os.lseek(file, 0, os.SEEK_SET)
        return False
    if len(data) > MOST_UNSIZED:
        note(b"H", error="it has no size, and more than %d bytes" % MOST_UNSIZED)
        return True
    note(b"H", at=0, size=len(data), time=before.st_mtime_ns, mode=before.st_mode & 0o777)
    for start in range(0, len(data), CHUNK):
        frame(b"D", data[start : start + CHUNK])
    note(b"E", sha256=hashlib.sha256(data).hexdigest(), changed=False)
    return True
