"""The hashes of a folder's files, kept in your cache, so that an unchanged file is not read again.

A file of the cache belongs to one folder. It has a line with a checksum, then five numbers for each entry (inode,
mtime, ctime, size, mode), then their paths, then their lines of the manifest. An entry counts only while all five
numbers are those of the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from array import array
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path

from kit.remote.machine.cache import cache, keep_latest, write

Row = tuple[int, int, int, int, int]
# What never equals the numbers of a file.
UNKNOWN: Row = (0, 0, 0, 0, 0)
_HEAD = b"kit-hashes 1 "
_FOLDERS = 20


# Returns the numbers that change when a file does, from its status.
row: Callable[[os.stat_result], Row] = attrgetter("st_ino", "st_mtime_ns", "st_ctime_ns", "st_size", "st_mode")


def load(folder: Path) -> dict[bytes, tuple[Row, bytes]]:
    """Return the numbers and the manifest's line of each path. Empty if the cache is missing or broken."""
    file = _file(folder)
    try:
        content = file.read_bytes() if file else b""
        head, _, rest = content.partition(b"\n")
        if not head.startswith(_HEAD) or int(head[len(_HEAD) :], 16) != zlib.crc32(rest):
            return {}
        count, length = int.from_bytes(rest[:8], "little"), int.from_bytes(rest[8:16], "little")
        end = 16 + count * 40
        numbers = iter(array("q", rest[16:end]))
        paths = rest[end : end + length].split(b"\0")[:-1]
        lines = rest[end + length :].split(b"\n")[:-1]
        rows = zip(numbers, numbers, numbers, numbers, numbers, strict=True)
        return dict(zip(paths, zip(rows, lines, strict=True), strict=True))
    except (OSError, ValueError):
        return {}


def save(folder: Path, entries: dict[bytes, tuple[Row, bytes]]) -> None:
    """Keep what `load` returns next time."""
    file = _file(folder)
    if file is None:
        return
    numbers = array("q")
    try:
        for known, _ in entries.values():
            numbers.extend(known)
    except OverflowError:
        # A file system with such inodes has no cache.
        return
    paths = b"".join([path + b"\0" for path in entries])
    lines = b"".join([line + b"\n" for _, line in entries.values()])
    counts = len(entries).to_bytes(8, "little") + len(paths).to_bytes(8, "little")
    rest = counts + numbers.tobytes() + paths + lines
    write(file, [_HEAD, b"%08x\n" % zlib.crc32(rest), rest])
    keep_latest(file.parent, _FOLDERS)


def forget(folder: Path) -> None:
    """Remove the folder's hashes, because one of them is wrong."""
    file = _file(folder)
    if file:
        with contextlib.suppress(OSError):
            file.unlink()


def _file(folder: Path) -> Path | None:
    root = cache(os.environ)
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return root / "code" / "hashes" / name if root else None
