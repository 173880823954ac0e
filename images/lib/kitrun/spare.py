"""The spare: one working folder on each node that is ready for the next run with code. It saves a copy of every file.

    spare/tree        a whole snapshot. The next run takes it by a rename, and changes only what differs
    spare/tree.part   the next spare, while it is put together from what a run has not changed (kitrun.settle)
    spare/lock        held by the process that takes or puts the spare

The marks of its entries (kitrun.tree) are in the container's own files, and not beside it. So a new container, which
has no marks, does not use a spare that the container before it left. A run takes a spare only if each entry still has
its mark. Otherwise it copies every file.
"""

import contextlib
import fcntl
import os
from typing import Iterator, List, Optional

from kitrun import store, tree

MARKS = "/run/kit/code"
_FOLDER, _NAME = "spare", "spare"


def folder(root: Optional[str]) -> str:
    return os.path.join(os.path.dirname(root or store.ROOT), _FOLDER)


def marks_path(name: str) -> str:
    """Return where the marks of a run's working folder are. Makes the folder for them, or does not if it cannot."""
    with contextlib.suppress(OSError):
        os.makedirs(MARKS, mode=0o700, exist_ok=True)
    # A run's name cannot have this sign, so it is never the spare's.
    return os.path.join(MARKS, name + "~")


def forget_marks(name: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(marks_path(name))


@contextlib.contextmanager
def locked(root: Optional[str]) -> Iterator[str]:
    """Hold the spare alone, and yield its folder. Raises OSError."""
    path = folder(root)
    os.makedirs(path, mode=0o700, exist_ok=True)
    lock = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield path
    finally:
        os.close(lock)


def take(path: str, snapshot: tree.Snapshot, root: Optional[str]) -> Optional[tree.Marks]:
    """Make `path` the snapshot's tree by means of the spare, and return its marks. None if the spare does not help."""
    try:
        with locked(root) as spares:
            found = _found(snapshot)
            if found is None or not _helps(found, snapshot):
                return None
            marks = tree.Marks.read(os.path.join(MARKS, _NAME), found)
            if marks is None:
                return None
            os.rename(os.path.join(spares, "tree"), path)
            _forget()
        with tree.opened_top(path) as top:
            if tree.is_whole(top, found, marks):
                return marks if found is snapshot else _changed(top, found, marks, snapshot)
    except OSError:
        pass
    tree.remove_path(path)
    return None


def put(spares: str, snapshot: tree.Snapshot, entries: List[tree.Mark]) -> str:
    """Make `spares`/tree.part the spare, with these marks of its entries. Return what to remove when the lock is free.

    The caller holds the lock. Raises OSError and NoCode, for example if the disk is full.
    """
    part, old, tree_path = (os.path.join(spares, name) for name in ("tree.part", "tree.old", "tree"))
    found = _found_digest()
    if found == snapshot.digest and os.path.isdir(tree_path):
        return part
    with tree.opened_top(part) as top:
        # What the run has changed or removed.
        missing = [
            number
            for number, mark in enumerate(entries)
            if mark == (0, 0) and not snapshot.lines[number].startswith(tree.FOLDER)
        ]
        made = tree.make(top, snapshot, missing)
        marks = tree.Marks([new if new != (0, 0) else mark for mark, new in zip(entries, made)], [])
        marks.folders = tree.folder_marks(top, snapshot)
    tree.remove_path(old)
    with contextlib.suppress(FileNotFoundError):
        os.rename(tree_path, old)
    os.makedirs(MARKS, mode=0o700, exist_ok=True)
    marks.write(os.path.join(MARKS, _NAME), snapshot.digest)
    os.rename(part, tree_path)
    return old


def _forget() -> None:
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(MARKS, _NAME))


def _found_digest() -> str:
    """Return the digest of the spare's snapshot, or '' if there is no spare."""
    try:
        with open(os.path.join(MARKS, _NAME), "rb") as file:
            return file.readline(80).strip().decode("ascii", "replace")
    except OSError:
        return ""


def _found(wanted: tree.Snapshot) -> Optional[tree.Snapshot]:
    """Return the spare's snapshot, or None if there is no spare, or if the store has forgotten its snapshot."""
    digest = _found_digest()
    try:
        return wanted if digest == wanted.digest else tree.Snapshot(digest, wanted.stores)
    except tree.NoCode:
        return None


def _helps(found: tree.Snapshot, snapshot: tree.Snapshot) -> bool:
    """Return whether most of the snapshot is in the spare."""
    return found is snapshot or 2 * len(set(found.lines).intersection(snapshot.lines)) > len(snapshot.lines)


def _changed(top: int, found: tree.Snapshot, marks: tree.Marks, snapshot: tree.Snapshot) -> Optional[tree.Marks]:
    """Turn the tree of one snapshot into that of another. Raises OSError. Return None if the store lacks a file."""
    entries = dict(zip(found.lines, marks.entries))
    gone = set(found.lines).difference(snapshot.lines)
    for path, inside in found.inside.items() if gone else ():
        numbers = [number for number in inside if found.lines[number] in gone]
        if numbers:
            with tree.opened(top, path) as at:
                for number in numbers:
                    os.unlink(found.names[number], dir_fd=at)
    for path in reversed(list(found.inside)):
        if path not in snapshot.inside:
            above, _, name = path.rpartition(b"/")
            with tree.opened(top, above) as at:
                os.rmdir(name, dir_fd=at)
    added = [number for number, line in enumerate(snapshot.lines) if line not in entries]
    try:
        made = tree.make(top, snapshot, added)
    except tree.NoCode:
        return None
    return tree.Marks(
        [entries.get(line, new) for line, new in zip(snapshot.lines, made)], tree.folder_marks(top, snapshot)
    )
