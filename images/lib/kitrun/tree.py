"""A snapshot as a folder on this node: made from the store, compared with it, and walked without following any link.

Ranks write into these folders, so a name in them may be a link to anywhere. Every file and folder is reached by its
folder's descriptor, and no folder is opened through a link.

kit notes a mark of each entry and folder that it has made (kitrun.marks). One with the same mark is as kit made it.
"""

import contextlib
import os
import stat
from collections import Counter
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set

from kitrun import fence
from kitrun.marks import NOTHING, TOP, Mark, Marks, mark, mark_at, marks_at
from kitrun.snapshot import FOLDER, LINK, NoCode, Snapshot, place, plain, stored

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 20
# One more process for that many entries is worth its start.
SHARE = 10_000


@contextlib.contextmanager
def opened(top: int, path: bytes) -> Iterator[int]:
    """Open a folder below the open folder `top`. Raises OSError if it, or a folder above it, is a link."""
    at = os.dup(top)
    try:
        for part in path.split(b"/") if path else ():
            onward = os.open(part, _OPEN_FOLDER, dir_fd=at)
            os.close(at)
            at = onward
        yield at
    finally:
        os.close(at)


@contextlib.contextmanager
def opened_top(path: str) -> Iterator[int]:
    top = os.open(path, _OPEN_FOLDER)
    try:
        yield top
    finally:
        os.close(top)


def make(top: int, snapshot: Snapshot, numbers: Optional[Iterable[int]] = None) -> List[Mark]:
    """Make the snapshot's folders that are missing, and these entries (all if None). Return the marks of all entries.

    Entries that it did not make have the mark NOTHING. Raises NoCode if the store lacks a file, and OSError.
    """
    marks = [NOTHING] * len(snapshot.lines)
    wanted = None if numbers is None else set(numbers)
    for folder, inside in snapshot.inside.items():
        here = inside if wanted is None else [number for number in inside if number in wanted]
        with opened(top, folder) as at:
            for number in here:
                marks[number] = make_entry(at, snapshot.names[number], snapshot.lines[number], snapshot.stores)
            for name in snapshot.below[folder]:
                with contextlib.suppress(FileExistsError):
                    make_folder(name, at)
    return marks


def change(top: int, marks: Marks, gone: Sequence[bytes], added: Sequence[bytes], stores: str) -> None:
    """Remove the entries with the lines `gone` from a tree, and make those with the lines `added`. Correct its marks.

    Raises NoCode if the store lacks a file, and OSError.
    """
    changed: Set[bytes] = set()
    for folder, lines in _by_folder(gone).items():
        changed.add(folder)
        if not lines:
            continue
        names = [place(line)[1] for line in lines]
        with opened(top, folder) as at:
            for name in names:
                os.unlink(name, dir_fd=at)
        marks.change(folder, names, [])
    changed |= _remove_empty(top, marks, changed)
    for folder, lines in _by_folder(added).items():
        changed |= _make_folders(top, marks, folder)
        with opened(top, folder) as at:
            made = [(name, make_entry(at, name, line, stores)) for line, (_, name) in zip(lines, map(place, lines))]
        marks.change(folder, [], made)
    for folder in changed.intersection(marks.names):
        with opened(top, folder) as at:
            marks.folders[folder] = mark(os.fstat(at))


def _by_folder(lines: Sequence[bytes]) -> Dict[bytes, List[bytes]]:
    """Return the lines of the files and links in each folder. A folder without entries has none."""
    folders: Dict[bytes, List[bytes]] = {}
    for line in lines:
        folder, name = place(line)
        if line.startswith(FOLDER):
            folders.setdefault(folder + b"/" + name if folder else name, [])
        else:
            folders.setdefault(folder, []).append(line)
    return folders


def _remove_empty(top: int, marks: Marks, folders: Iterable[bytes]) -> Set[bytes]:
    """Remove those of the folders, and of the folders above them, that are empty. Return which ones have changed."""
    count = Counter(folder.rpartition(b"/")[0] for folder in marks.names if folder != TOP)
    ahead = sorted({above for folder in folders for above in _way_to(folder)}, key=len, reverse=True)
    changed = set()
    for folder in ahead:
        if not marks.names[folder] and not count[folder]:
            above, _, name = folder.rpartition(b"/")
            with opened(top, above) as at:
                os.rmdir(name, dir_fd=at)
            marks.forget(folder)
            count[above] -= 1
            changed.add(above)
    return changed


def _make_folders(top: int, marks: Marks, path: bytes) -> Set[bytes]:
    """Make a folder, and those above it, if they are missing. Return which ones have changed."""
    changed = {path}
    for folder in _way_to(path):
        if folder not in marks.names:
            above, _, name = folder.rpartition(b"/")
            with opened(top, above) as at:
                make_folder(name, at)
            marks.put(folder, [], NOTHING)
            changed.update((above, folder))
    return changed


def _way_to(path: bytes) -> List[bytes]:
    """Return the folders on the way from the top to this one, and this one itself."""
    parts = path.split(b"/") if path else []
    return [b"/".join(parts[:length]) for length in range(1, len(parts) + 1)]


def make_folder(path: "bytes | str", at: Optional[int] = None) -> None:
    """Make a folder for the user of the ranks. Raises OSError."""
    os.mkdir(path, 0o755, dir_fd=at)
    ids = fence.user()
    if ids is not None:
        os.chown(path, *ids, dir_fd=at, follow_symlinks=False)


def folder_marks(top: int, snapshot: Snapshot) -> List[Mark]:
    """Return the marks of the snapshot's folders. Raises OSError."""
    marks = []
    for folder in snapshot.inside:
        with opened(top, folder) as at:
            marks.append(mark(os.fstat(at)))
    return marks


def is_whole(top: int, marks: Marks, at_once: int = 1) -> bool:
    """Return whether every entry and folder below the top is as kit made it, and nothing else is there.

    A new name in a folder changes the folder's mark. A rename changes that of the top, so the caller compares it.
    `at_once`: how many processes look, if there are many entries. Most of the time goes to the kernel.
    """
    first, *others = shares({folder: len(names) for folder, names in marks.names.items()}, at_once)
    children = [_begun(top, marks, share) for share in others]
    whole = _fits(top, marks, first)
    # Wait for each of them, whatever the others say.
    return all([whole, *map(_ended_well, children)])


def shares(sizes: Mapping[bytes, int], most: int) -> List[List[bytes]]:
    """Deal out the folders to `most` processes or fewer. `sizes` has the number of entries of each folder."""
    count = max(1, min(most, sum(sizes.values()) // SHARE))
    parts: List[List[bytes]] = [[] for _ in range(count)]
    room = -(-sum(sizes.values()) // count)
    number, used = 0, 0
    for folder, size in sizes.items():
        if used >= room and number < count - 1:
            number, used = number + 1, 0
        parts[number].append(folder)
        used += size
    return list(filter(None, parts))


def _begun(top: int, marks: Marks, folders: Sequence[bytes]) -> int:
    """Look at these folders in another process, and return its PID. It exits with 0 if they are as kit made them."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        code = 0 if _fits(top, marks, folders) else 1
    finally:
        os._exit(code)


def _ended_well(child: int) -> bool:
    return os.waitpid(child, 0)[1] == 0


def _fits(top: int, marks: Marks, folders: Sequence[bytes]) -> bool:
    try:
        for folder in folders:
            with opened(top, folder) as at:
                if folder != TOP and mark(os.fstat(at)) != marks.folders[folder]:
                    return False
                if marks_at(at, marks.names[folder]) != marks.entries[folder]:
                    return False
    except OSError:
        return False
    return True


def is_copy(at: int, snapshot: Snapshot, number: int) -> bool:
    """Return whether this is the snapshot's file, by every byte, or its link. A file with other times is not."""
    name = snapshot.names[number]
    line = snapshot.lines[number]
    try:
        if line.startswith(LINK):
            return os.readlink(name, dir_fd=at) == plain(line.split(b"\t", 5)[5])
        source, size, mode = stored(line, snapshot.stores)
        with open(source, "rb") as given, open(os.open(name, _OPEN_FILE, dir_fd=at), "rb") as file:
            times, now = os.fstat(given.fileno()), os.fstat(file.fileno())
            if not stat.S_ISREG(now.st_mode) or now.st_size != size or now.st_mtime_ns != times.st_mtime_ns:
                return False
            if (now.st_mode ^ mode) & stat.S_IXUSR:
                return False
            while True:
                data = given.read(_CHUNK)
                if data != file.read(_CHUNK):
                    return False
                if not data:
                    return True
    except OSError:
        return False


def remove(parent: int, name: bytes) -> None:
    """Remove a file, or a folder with all that is in it. Follows no link. What cannot be removed stays."""
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=parent)
        return
    # RecursionError: a rank can nest folders deeper than Python calls.
    with contextlib.suppress(OSError, RecursionError):
        at = os.open(name, _OPEN_FOLDER, dir_fd=parent)
        try:
            for inside in os.listdir(at):
                remove(at, os.fsencode(inside))
        finally:
            os.close(at)
        os.rmdir(name, dir_fd=parent)


def remove_path(path: str) -> None:
    """Remove what is here, as `remove` does. Nobody but kit writes into the folder that has it."""
    folder, name = os.path.split(path)
    with contextlib.suppress(OSError), opened_top(folder) as parent:
        remove(parent, os.fsencode(name))


def make_entry(at: int, name: bytes, line: bytes, stores: str) -> Mark:
    """Make the file or link of a line, under this name in an open folder. Raises NoCode and OSError."""
    ids = fence.user()
    if line.startswith(LINK):
        os.symlink(plain(line.split(b"\t", 5)[5]), name, dir_fd=at)
        if ids is not None:
            os.chown(name, *ids, dir_fd=at, follow_symlinks=False)
        return mark_at(at, name)
    source, size, mode = stored(line, stores)
    try:
        given = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise NoCode("a file of the code is not here: %s (%s)" % (_shown(name), error.strerror)) from error
    try:
        times = os.fstat(given)
        if times.st_size != size:
            raise NoCode("a file of the code is damaged here: %s" % _shown(name))
        out = os.open(name, _NEW_FILE, mode, dir_fd=at)
        try:
            while size:
                data = os.read(given, min(size, _CHUNK))
                if not data:
                    raise NoCode("a file of the code is damaged here: %s" % _shown(name))
                size -= len(data)
                view = memoryview(data)
                while view:
                    view = view[os.write(out, view) :]
            if ids is not None:
                os.fchown(out, *ids)
            # With the object's own time, `is_copy` sees a file that a rank has only touched.
            os.utime(out, ns=(times.st_mtime_ns, times.st_mtime_ns))
            return mark(os.fstat(out))
        finally:
            os.close(out)
    finally:
        os.close(given)


def _shown(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
