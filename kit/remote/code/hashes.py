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
from collections.abc import Callable, Iterable
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from kit.remote.machine.cache import cache, keep_latest, write

Row = tuple[int, int, int, int, int]
# What never equals the numbers of a file.
UNKNOWN: Row = (0, 0, 0, 0, 0)
# How many numbers a row has, and which of them are the size and the mode.
WIDTH, SIZE, MODE = 5, 3, 4
_HEAD = b"kit-hashes 1 "
_FOLDERS = 20


# Returns the numbers that change when a file does, from its status.
row: Callable[[os.stat_result], Row] = attrgetter("st_ino", "st_mtime_ns", "st_ctime_ns", "st_size", "st_mode")


class Kept(NamedTuple):
    """What the cache has of a folder: `numbers` has five for each path, `paths` ends each with NUL, `lines` with LF."""

    numbers: array[int]
    paths: bytes
    lines: bytes

    def entries(self) -> dict[bytes, tuple[Row, bytes]]:
        """Return the numbers and the manifest's line of each path."""
        numbers = iter(self.numbers)
        rows = zip(numbers, numbers, numbers, numbers, numbers, strict=True)
        return dict(zip(self.paths.split(b"\0"), zip(rows, self.lines.split(b"\n"), strict=False), strict=False))

    @staticmethod
    def of(entries: dict[bytes, tuple[Row, bytes]]) -> Kept:
        """Raise OverflowError for a file system with numbers that no array can have."""
        lines = b"".join([line + b"\n" for _, line in entries.values()])
        return Kept(flat([known for known, _ in entries.values()]), ended(entries), lines)


def flat(rows: Iterable[Row]) -> array[int]:
    """Return the numbers of these rows. Raises OverflowError."""
    return array("q", chain.from_iterable(rows))


def ended(paths: Iterable[bytes]) -> bytes:
    """Return the paths, each with NUL at its end."""
    return b"".join([path + b"\0" for path in paths])


def differing(before: array[int], now: array[int]) -> list[int]:
    """Return the positions of the rows that differ. Both arrays are equally long, and mostly the same."""
    positions: list[int] = []
    ahead = [(0, len(now) // WIDTH)]
    while ahead:
        start, end = ahead.pop()
        if before[start * WIDTH : end * WIDTH] == now[start * WIDTH : end * WIDTH]:
            continue
        if end - start == 1:
            positions.append(start)
        else:
            middle = (start + end) // 2
            ahead += [(middle, end), (start, middle)]
    return positions


def load(folder: Path) -> Kept | None:
    """Return what `save` has kept, or None if the cache is missing or broken."""
    file = _file(folder)
    try:
        content = file.read_bytes() if file else b""
        head, _, rest = content.partition(b"\n")
        if not head.startswith(_HEAD) or int(head[len(_HEAD) :], 16) != zlib.crc32(rest):
            return None
        count, length = int.from_bytes(rest[:8], "little"), int.from_bytes(rest[8:16], "little")
        end = 16 + count * WIDTH * 8
        kept = Kept(array("q", rest[16:end]), rest[end : end + length], rest[end + length :])
        whole = len(kept.numbers) == WIDTH * count == WIDTH * kept.paths.count(b"\0") == WIDTH * kept.lines.count(b"\n")
    except (OSError, ValueError):
        return None
    return kept if whole else None


def save(folder: Path, kept: Kept) -> None:
    """Keep what `load` returns next time."""
    file = _file(folder)
    if file is None:
        return
    counts = kept.paths.count(b"\0").to_bytes(8, "little") + len(kept.paths).to_bytes(8, "little")
    rest = counts + kept.numbers.tobytes() + kept.paths + kept.lines
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
