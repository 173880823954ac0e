"""A snapshot as a folder on this node: made from the store, compared with it, and walked without following any link.

Ranks write into these folders, so a name in them may be a link to anywhere. Every file and folder is reached by its
folder's descriptor, and no folder is opened through a link.

A rank can write into a file and set its old times again. It cannot set an inode's change time (ctime), which the kernel
sets at every write, rename, link and change of mode or times. So kit notes the inode and the ctime of each entry that
it has made. An entry with the same two numbers is as kit made it.
"""

import contextlib
import hashlib
import os
import stat
from array import array
from typing import Dict, Iterable, Iterator, List, Optional, Tuple

from kitrun import fence

FILE, LINK, FOLDER = b"f", b"l", b"d"
TOP = b""
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ESCAPES = ((b"\\t", b"\t"), (b"\\n", b"\n"), (b"\\r", b"\r"))
_CHUNK = 1 << 20

# The inode and the ctime in nanoseconds.
Mark = Tuple[int, int]


class NoCode(Exception):
    """The working folder cannot be seeded here."""


class Snapshot:
    """The entries of a snapshot. Names and paths are bytes.

    `lines` are the entries, in the manifest's order. `names` has the last part of each entry's path. `inside` maps each
    folder to the numbers of its files and links, and `below` to the names of its folders. A folder comes after the one
    that it is in.
    """

    def __init__(self, digest: str, stores: str) -> None:
        self.digest, self.stores = digest, stores
        self.lines: List[bytes] = _manifest(digest, stores).split(b"\n")[1:-1]
        self.names: List[bytes] = []
        self.inside: Dict[bytes, List[int]] = {}
        self.below: Dict[bytes, List[bytes]] = {}
        self._add_folder(TOP)
        # There may be 50,000 lines, and a run waits for this loop.
        before, here = TOP, self.inside[TOP]
        for number, line in enumerate(self.lines):
            kind, _, _, _, path = line.split(b"\t", 5)[:5]
            folder, _, name = (plain(path) if b"\\" in path else path).rpartition(b"/")
            self.names.append(name)
            if folder != before:
                if folder not in self.inside:
                    self._add_folder(folder)
                before, here = folder, self.inside[folder]
            if kind == FOLDER:
                self._add_folder(folder + b"/" + name if folder else name)
            else:
                here.append(number)

    def _add_folder(self, path: bytes) -> None:
        parts = path.split(b"/") if path else []
        for length in range(len(parts) + 1):
            folder = b"/".join(parts[:length])
            if folder not in self.inside:
                self.inside[folder], self.below[folder] = [], []
                if length:
                    self.below[b"/".join(parts[: length - 1])].append(parts[length - 1])

    def names_in(self, folder: bytes) -> "set[bytes]":
        """Return the names of all that the snapshot has in this folder."""
        return {self.names[number] for number in self.inside[folder]}.union(self.below[folder])

    def source(self, number: int) -> Tuple[str, int, int]:
        """Return the path of a file's object in the store, its size and its mode."""
        _, mode, name, size, _ = self.lines[number].split(b"\t", 4)
        digest = name.decode("ascii")
        return os.path.join(self.stores, "objects", digest[:2], digest), int(size), int(mode, 8)


class Marks:
    """The mark of each entry and folder of a tree, as kit made it. (0, 0) fits nothing.

    `entries` are in the order of the snapshot's lines, `folders` in the order of its `inside`.
    """

    def __init__(self, entries: List[Mark], folders: List[Mark]) -> None:
        self.entries, self.folders = entries, folders

    def write(self, path: str, digest: str) -> None:
        """Write them to a file that appears as a whole. Raises OSError."""
        numbers = array("Q", [number for mark in (*self.entries, *self.folders) for number in mark])
        try:
            with open(path + ".new", "wb") as file:
                file.write(digest.encode("ascii") + b"\n" + numbers.tobytes())
            os.rename(path + ".new", path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(path + ".new")
            raise

    @staticmethod
    def read(path: str, snapshot: Snapshot) -> "Optional[Marks]":
        """Return the marks that were written for this snapshot, or None."""
        numbers = array("Q")
        try:
            with open(path, "rb") as file:
                if file.readline(80).strip() != snapshot.digest.encode("ascii"):
                    return None
                numbers.frombytes(file.read())
        except (OSError, ValueError):
            return None
        marks = list(zip(numbers[::2], numbers[1::2]))
        count = len(snapshot.lines)
        if len(marks) != count + len(snapshot.inside):
            return None
        return Marks(marks[:count], marks[count:])


def mark(status: os.stat_result) -> Mark:
    return status.st_ino, status.st_ctime_ns


def mark_at(at: int, name: bytes) -> Mark:
    """Return the mark of what is here under this name, or (0, 0)."""
    try:
        return mark(os.stat(name, dir_fd=at, follow_symlinks=False))
    except OSError:
        return 0, 0


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

    The marks of entries that it did not make are (0, 0). Raises NoCode if the store lacks a file, and OSError.
    """
    marks = [(0, 0)] * len(snapshot.lines)
    wanted = None if numbers is None else set(numbers)
    for folder, inside in snapshot.inside.items():
        here = inside if wanted is None else [number for number in inside if number in wanted]
        with opened(top, folder) as at:
            for number in here:
                marks[number] = _make_entry(at, snapshot, number)
            for name in snapshot.below[folder]:
                with contextlib.suppress(FileExistsError):
                    make_folder(name, at)
    return marks


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


def is_whole(top: int, snapshot: Snapshot, marks: Marks) -> bool:
    """Return whether the tree has every entry and folder as kit made it, and nothing else.

    A new name in a folder changes the folder's mark. The top was renamed, so its names are compared.
    """
    try:
        for number_of_folder, (folder, inside) in enumerate(snapshot.inside.items()):
            with opened(top, folder) as at:
                if folder == TOP:
                    if set(map(os.fsencode, os.listdir(at))) != snapshot.names_in(folder):
                        return False
                elif mark(os.fstat(at)) != marks.folders[number_of_folder]:
                    return False
                for number in inside:
                    now = os.stat(snapshot.names[number], dir_fd=at, follow_symlinks=False)
                    if (now.st_ino, now.st_ctime_ns) != marks.entries[number]:
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
        source, size, mode = snapshot.source(number)
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


def plain(text: bytes) -> bytes:
    """Return a path of a manifest's line without its escapes."""
    if b"\\" not in text:
        return text
    return b"\\".join(_unescaped(part) for part in text.split(b"\\\\"))


def _unescaped(text: bytes) -> bytes:
    for escape, letter in _ESCAPES:
        text = text.replace(escape, letter)
    return text


def _manifest(digest: str, stores: str) -> bytes:
    try:
        with open(os.path.join(stores, "manifests", digest), "rb") as file:
            data = file.read()
    except OSError as error:
        raise NoCode("the snapshot %s of the code is not here (%s)" % (digest[:12], error.strerror)) from error
    if hashlib.sha256(data).hexdigest() != digest:
        raise NoCode("the snapshot %s of the code is damaged here" % digest[:12])
    return data


def _make_entry(at: int, snapshot: Snapshot, number: int) -> Mark:
    name = snapshot.names[number]
    line = snapshot.lines[number]
    ids = fence.user()
    if line.startswith(LINK):
        os.symlink(plain(line.split(b"\t", 5)[5]), name, dir_fd=at)
        if ids is not None:
            os.chown(name, *ids, dir_fd=at, follow_symlinks=False)
        return mark_at(at, name)
    source, size, mode = snapshot.source(number)
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
