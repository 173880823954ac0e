"""Marks: how kit knows the files, links and folders again that it has made in a tree.

A rank can write into a file and set its old times again. It cannot set an inode's change time (ctime), which the kernel
sets at every write, rename, link and change of mode or times. So a mark is the inode and the ctime. An entry with the
same mark is as kit made it.
"""

import contextlib
import os
from array import array
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

TOP = b""
# The inode and the ctime in nanoseconds.
Mark = Tuple[int, int]
# The mark that nothing has.
NOTHING: Mark = (0, 0)
_DIGEST = 64
# Bytes of a number.
_WIDE = 8

mark: Callable[[os.stat_result], Mark] = attrgetter("st_ino", "st_ctime_ns")


class Marks:
    """The marks of a whole tree, which is the snapshot `digest`.

    `names` maps each folder to the names of its files and links, sorted. `entries` maps it to their marks, two numbers
    each, and `folders` to its own mark. A folder comes after the one that it is in. `top` is the mark of the top after
    its last rename.
    """

    def __init__(self, digest: str) -> None:
        self.digest = digest
        self.top = NOTHING
        self.names: Dict[bytes, List[bytes]] = {}
        self.entries: Dict[bytes, array[int]] = {}
        self.folders: Dict[bytes, Mark] = {}

    def put(self, folder: bytes, entries: Sequence[Tuple[bytes, Mark]], own: Mark) -> None:
        """Set what is known of a folder: the names and marks of its entries, and its own mark."""
        self.names[folder] = [name for name, _ in entries]
        self.entries[folder] = flat([one for _, one in entries])
        self.folders[folder] = own

    def change(self, folder: bytes, gone: Sequence[bytes], made: Sequence[Tuple[bytes, Mark]]) -> None:
        """Forget entries of a folder, and add others."""
        known = dict(zip(self.names[folder], self.pairs(folder)))
        for name in gone:
            del known[name]
        known.update(made)
        self.put(folder, sorted(known.items()), self.folders[folder])

    def forget(self, folder: bytes) -> None:
        del self.names[folder], self.entries[folder], self.folders[folder]

    def pairs(self, folder: bytes) -> Iterator[Mark]:
        """Return the marks of a folder's entries, one after the other."""
        numbers = iter(self.entries[folder])
        return zip(numbers, numbers)

    def write(self, path: str) -> None:
        """Write them to a file that appears as a whole. Raises OSError."""
        counts = map(len, self.names.values())
        texts = [b"\0".join(self.names), b"\0".join(chain.from_iterable(self.names.values()))]
        numbers = array("Q", [*self.top, len(self.names), len(texts[0]), *counts, *chain(*self.folders.values())])
        entries = [some.tobytes() for some in self.entries.values()]
        parts = [self.digest.encode("ascii"), numbers.tobytes(), *entries, *texts]
        try:
            with open(path + ".new", "wb") as file:
                file.write(b"".join(parts))
            os.rename(path + ".new", path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(path + ".new")
            raise

    @staticmethod
    def write_top(path: str, top: Mark) -> None:
        """Correct the mark of the top in a file that `write` has written. Raises OSError."""
        with open(path, "r+b") as file:
            file.seek(_DIGEST)
            file.write(array("Q", top).tobytes())

    @staticmethod
    def read(path: str) -> "Optional[Marks]":
        """Return the marks in a file, or None if it is missing or broken."""
        try:
            with open(path, "rb") as file:
                data = file.read()
            return _decoded(data)
        except (OSError, ValueError):
            return None


def digest_in(path: str) -> str:
    """Return the digest in a file of marks, or '' if it has no digest."""
    try:
        with open(path, "rb") as file:
            return file.read(_DIGEST).decode("ascii", "replace")
    except OSError:
        return ""


def _decoded(data: bytes) -> Marks:
    """Return what `write` has written. Raises ValueError."""
    view = memoryview(data)
    at = _DIGEST

    def numbers(count: int) -> "array[int]":
        nonlocal at
        if len(view) - at < count * _WIDE:
            raise ValueError("the marks end too early")
        some = array("Q", view[at : at + count * _WIDE].tobytes())
        at += count * _WIDE
        return some

    marks = Marks(data[:_DIGEST].decode("ascii"))
    inode, ctime, count, length = numbers(4)
    marks.top = (inode, ctime)
    counts, own = numbers(count), iter(numbers(2 * count))
    total = sum(counts)
    entries = numbers(2 * total)
    paths = data[at : at + length].split(b"\0")
    names = data[at + length :].split(b"\0") if total else []
    if len(paths) != count or len(names) != total:
        raise ValueError("the marks have too few names")
    marks.folders = dict(zip(paths, zip(own, own)))
    start = 0
    for path, size in zip(paths, counts):
        marks.names[path] = names[start : start + size]
        marks.entries[path] = entries[2 * start : 2 * (start + size)]
        start += size
    return marks


def mark_at(at: int, name: bytes) -> Mark:
    """Return the mark of what is here under this name, or NOTHING."""
    try:
        return mark(os.stat(name, dir_fd=at, follow_symlinks=False))
    except OSError:
        return NOTHING


def marks_at(at: int, names: Sequence[bytes]) -> "array[int]":
    """Return the marks of what is here under these names, two numbers each. Raises OSError if one is missing."""
    # A run waits for these, so the loop is one of C.
    look = partial(os.stat, dir_fd=at, follow_symlinks=False)
    return flat(map(mark, map(look, names)))


def flat(marks: Iterable[Mark]) -> "array[int]":
    """Return the numbers of these marks."""
    return array("Q", chain.from_iterable(marks))


def mark_of(path: str) -> Mark:
    """Return the mark of what is at this path, or NOTHING."""
    try:
        return mark(os.stat(path, follow_symlinks=False))
    except OSError:
        return NOTHING
