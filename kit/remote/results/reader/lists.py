"""Lists files: of a folder, of a path that a person named, and of a folder that several runs share."""

import json
import os
import stat
import sys
from time import time as clock
from typing import Any, Iterable, Iterator, List, Optional, Tuple

from .living import has, lives
from .mounts import mount_of
from .paths import FOLDER, opened, resolved, say, text

# Deeper folders are not read: each level holds a descriptor.
DEEPEST = 100
# The most bytes of a list, which is less than kit reads.
MOST = 200 << 20
# A shared folder may have very many files of other runs: the most that this program looks at.
MOST_SEEN = 1000000
TOO_MANY = "the list ends here: it has too many files"

Entry = List[Any]
# An entry with what the system says about it; None if it could not be read.
Seen = Tuple[Entry, Optional[os.stat_result]]


def entries(fd: int, path: bytes, depth: int, names: Optional[List[bytes]] = None) -> Iterator[Seen]:
    """Yield what is in a folder: f (file), d (folder), l (link), s (device, socket …), e (not readable)."""
    if names is None:
        names = [os.fsencode(name) for name in os.listdir(fd)]
    for name in sorted(names):
        below = path + b"/" + name if path else name
        try:
            at = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISDIR(at.st_mode):
                yield ["d", text(below), at.st_mode & 0o777], at
                yield from folder(fd, name, below, depth)
            elif stat.S_ISREG(at.st_mode):
                yield ["f", text(below), at.st_size, at.st_mtime_ns, bool(at.st_mode & 0o100)], at
            elif stat.S_ISLNK(at.st_mode):
                yield ["l", text(below), text(os.fsencode(os.readlink(name, dir_fd=fd)))], at
            else:
                yield ["s", text(below)], at
        except FileNotFoundError:
            # A run that lives removes files.
            continue
        except OSError as error:
            yield ["e", text(below), error.strerror], None


def folder(fd: int, name: bytes, path: bytes, depth: int) -> Iterator[Seen]:
    if depth == DEEPEST:
        yield ["e", text(path), "more than %d folders deep" % DEEPEST], None
        return
    own = os.open(name, FOLDER, dir_fd=fd)
    try:
        yield from entries(own, path, depth + 1)
    finally:
        os.close(own)


def list_files(top: str, below: str, *names: str) -> None:
    """Print a line with the top, one for each entry, and one that says that the list is complete."""
    fd = _opened(top, below)
    say({"top": top, "live": fd >= 0 and lives(fd), "unsettled": fd >= 0 and has(fd, "work.json")})
    if fd >= 0:
        every = entries(fd, b"", 0, [os.fsencode(name) for name in names] or None)
        _print(entry for entry, _ in every)
    say({"end": True})


def shared(path: str, first: str, last: str) -> None:
    """Print the files, links and other entries that changed between two times, and how many files changed before or
    after. A file has its inode, or 0 where each host has its own numbers.
    """
    real = resolved(path)
    fd = _opened(real, "")
    kind, store = mount_of(os.fsencode(real))
    say({"top": real, "there": fd >= 0, "store": store})
    others = size = 0

    def changed() -> Iterator[Entry]:
        nonlocal others, size
        for seen, (entry, at) in enumerate(entries(fd, b"", 0)):
            if seen == MOST_SEEN:
                yield ["e", entry[1], TOO_MANY]
                return
            if at is not None and entry[0] == "d":
                continue
            if at is None or int(first) <= at.st_mtime_ns <= int(last):
                if at is not None and entry[0] == "f":
                    entry.append(0 if kind.startswith(b"fuse") else at.st_ino)
                yield entry
            elif entry[0] == "f":
                others += 1
                size += at.st_size

    if fd >= 0:
        _print(changed())
    say({"others": others, "size": size})
    say({"end": True})


def _opened(top: str, below: str) -> int:
    """Return the folder, or -1 if it is missing."""
    try:
        return opened(top, below)
    except (FileNotFoundError, NotADirectoryError):
        return -1


def _print(listed: Iterable[Entry]) -> None:
    """Print a line for each entry, and an entry that says so where they are too many."""
    room = MOST
    for entry in listed:
        line = json.dumps(entry)
        room -= len(line)
        if room < 0:
            say(["e", entry[1], TOO_MANY])
            break
        sys.stdout.write(line + "\n")


def find(path: str) -> None:
    real = resolved(path)
    if not os.path.exists(real):
        sys.exit("no such file: %s" % path)
    top, name = os.path.split(real)
    if name:
        list_files(top, "", name)
    else:
        list_files(real, "")


def now() -> None:
    say({"now": int(clock() * 1e9)})
    say({"end": True})
