"""Opens what ranks can change, as root on a VM. kit.remote.scripts puts this before observe.py and runs.py.

A rank can put a link, a FIFO or a device where kit expects a file, and can use any name. So this follows no link, opens
only regular files, creates nothing, and reads only names that kit gives. Python 3.6, standard library only.
"""

import errno
import fcntl
import os

MYPY = False
if MYPY:
    from collections.abc import Callable, Iterator

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# Finds out what a name is without opening it: to open a device can already have an effect.
PLACE = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW
# A folder of runs with more names is not kit's.
MOST_NAMES = 100000
DIGITS = frozenset("0123456789")
HEX_DIGITS = frozenset("0123456789abcdef")


def open_folder(top: str, below: str) -> int:
    """Open the folder `below` in `top`, which only root can change. Raises OSError, also for a link in `below`."""
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for name in below.split("/"):
        above = fd
        try:
            fd = os.open(name, FOLDER, dir_fd=above)
        finally:
            os.close(above)
    return fd


def open_file(folder: int, name: str) -> int:
    """Open a regular file in a folder, to read it. Raises OSError for a link, a FIFO, a device or a folder."""
    place = os.open(name, PLACE, dir_fd=folder)
    try:
        if not is_file(os.fstat(place)):
            raise OSError(errno.EINVAL, "not a regular file", name)
        # The descriptor is this file, whatever has its name by now. A lease on the file must not stop this program.
        return os.open("/proc/self/fd/%d" % place, os.O_RDONLY | os.O_NONBLOCK)
    finally:
        os.close(place)


def is_file(status: os.stat_result) -> bool:
    return status.st_mode & 0o170000 == 0o100000


def read_file(folder: int, name: str, most: int) -> bytes:
    """Return a file in a folder, or nothing if it is missing, larger than `most` bytes, or not a regular file."""
    try:
        file = open_file(folder, name)
    except OSError:
        return b""
    data = b""
    try:
        size = os.fstat(file).st_size
        while len(data) < size <= most:
            piece = os.read(file, size - len(data))
            if not piece:
                break
            data += piece
    except OSError:
        return b""
    finally:
        os.close(file)
    return data


def file_size(folder: int, name: str) -> int:
    """Return the size of a regular file in a folder, or 0 for anything else."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return 0
    return status.st_size if is_file(status) else 0


def exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def locked(folder: int, name: str) -> bool:
    """Return whether a process holds the lock on this file."""
    try:
        file = open_file(folder, name)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def is_run(name: str) -> bool:
    """Return whether this is the id of a run, such as 20261121-101500-3fa2. kit.model.run.RUN_ID is the same."""
    parts = name.split("-")
    return (
        [len(part) for part in parts] == [8, 6, 4]
        and DIGITS.issuperset(parts[0] + parts[1])
        and HEX_DIGITS.issuperset(parts[2])
    )


def is_by_hand(name: str) -> bool:
    """Return whether this is the mark of ranks that a person started. kit.model.run.BY_HAND is the same."""
    number = name[8:]
    return name[:8] == "by-hand-" and 0 < len(number) <= 10 and DIGITS.issuperset(number)


def names_in(folder: int, fits: "Callable[[str], bool]") -> "list[str]":
    """Return the names in a folder that fit, sorted. Of a folder with too many names, return some."""
    names = []
    # Python 3.6 cannot scan a descriptor, and a list of all names may not fit into memory.
    with os.scandir("/proc/self/fd/%d" % folder) as entries:
        for count, entry in enumerate(entries):
            if count == MOST_NAMES:
                break
            if fits(entry.name):
                names.append(entry.name)
    return sorted(names)


def run_folders(runs: int) -> "Iterator[tuple[str, int]]":
    """Yield the id and the open folder of each run, the latest first."""
    for name in reversed(names_in(runs, is_run)):
        try:
            run = os.open(name, FOLDER, dir_fd=runs)
        except OSError:
            continue
        try:
            yield name, run
        finally:
            os.close(run)


def lives(run: int) -> bool:
    """Return whether a run has not ended and its supervisor holds the lock."""
    return file_size(run, "record.json") > 0 and not exists(run, "end.json") and locked(run, "lock")


def living(top: str, below: str) -> "list[str]":
    """Return the active runs, then the marks of active ranks that somebody started in the head's shell."""
    try:
        runs = open_folder(top, below)
    except OSError:
        return []
    alive = sorted(name for name, run in run_folders(runs) if lives(run))
    try:
        by_hand = os.open(".by-hand", FOLDER, dir_fd=runs)
    except OSError:
        return alive
    finally:
        os.close(runs)
    try:
        return alive + [name for name in names_in(by_hand, is_by_hand) if locked(by_hand, name)]
    finally:
        os.close(by_hand)


def waiting(top: str, below: str) -> "list[str]":
    """Return the runs that wait in line (images/lib/kitqueue/line.py)."""
    try:
        line = open_folder(top, below + "/.queue")
    except OSError:
        return []
    try:
        return [name[:-5] for name in names_in(line, lambda name: name[-5:] == ".json" and is_run(name[:-5]))]
    finally:
        os.close(line)


def cordoned(top: str, below: str) -> "list[str]":
    """Return `yes` if hosts are cordoned. Without any, the file is missing or has `{}`."""
    try:
        line = open_folder(top, below + "/.queue")
    except OSError:
        return []
    try:
        return ["yes"] if file_size(line, ".cordons.json") > len("{}") else []
    finally:
        os.close(line)
