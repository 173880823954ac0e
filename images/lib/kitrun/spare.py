"""The spare: one working folder on each node that is ready for the next run with code. It saves a copy of every file.

    spare/tree        a whole snapshot. The next run takes it by a rename, and changes only what differs
    spare/tree.part   the next spare, while it is put together from what a run has not changed (kitrun.settle)
    spare/old.*       trees that somebody is removing, without the lock: a run may wait for that
    spare/lock        held by the process that takes or puts the spare

The marks of its entries (kitrun.marks) are in the container's own files, and not beside it. So a new container, which
has no marks, does not use a spare that the container before it left. A run takes a spare only if each entry still has
its mark. Otherwise it copies every file.
"""

import contextlib
import fcntl
import os
from typing import Iterator, List, Optional, Tuple

from kitrun import store, tree
from kitrun.marks import NOTHING, Mark, Marks, digest_in, mark_of
from kitrun.snapshot import FOLDER, NoCode, Snapshot

MARKS = "/run/kit/code"
_FOLDER, _NAME, _OLD = "spare", "spare", "old."
_AT_ONCE = 4


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


def take(path: str, snapshot: Snapshot, root: Optional[str], marks_file: str) -> Optional[Marks]:
    """Make `path` the snapshot's tree by means of the spare, and return its marks. None if the spare does not help.

    The spare's marks become the file `marks_file`, which fits as long as the tree is still the spare's.
    """
    try:
        with locked(root) as spares:
            wanted = _difference(snapshot)
            if wanted is None:
                return None
            marks = Marks.read(os.path.join(MARKS, _NAME))
            if marks is None or mark_of(os.path.join(spares, "tree")) != marks.top:
                return None
            os.rename(os.path.join(spares, "tree"), path)
            os.rename(os.path.join(MARKS, _NAME), marks_file)
        with tree.opened_top(path) as top:
            # The run waits, and a host has more than one core.
            if tree.is_whole(top, marks, min(_AT_ONCE, len(os.sched_getaffinity(0)))):
                if any(wanted):
                    tree.change(top, marks, *wanted, snapshot.stores)
                    marks.digest = snapshot.digest
                return marks
    except (OSError, NoCode):
        pass
    tree.remove_path(path)
    with contextlib.suppress(OSError):
        os.unlink(marks_file)
    return None


def new_part(spares: str) -> str:
    """Return the path of tree.part, where nothing is now. The caller holds the lock. Raises OSError."""
    part = os.path.join(spares, "tree.part")
    _set_aside(spares, part)
    return part


def put(spares: str, snapshot: Snapshot, entries: List[Mark]) -> None:
    """Make `spares`/tree.part the spare, with these marks of its entries.

    The caller holds the lock, and calls `remove_old` afterwards. Raises OSError and NoCode, for example if the disk is
    full.
    """
    part = os.path.join(spares, "tree.part")
    if _is_spare(spares, snapshot.digest):
        _set_aside(spares, part)
        return
    with tree.opened_top(part) as top:
        # What the run has changed or removed.
        missing = [
            number
            for number, mark in enumerate(entries)
            if mark == NOTHING and not snapshot.lines[number].startswith(FOLDER)
        ]
        made = tree.make(top, snapshot, missing)
        now = [new if new != NOTHING else mark for mark, new in zip(entries, made)]
        marks = snapshot.marks(now, tree.folder_marks(top, snapshot))
    os.makedirs(MARKS, mode=0o700, exist_ok=True)
    with _replaced(spares):
        marks.write(os.path.join(MARKS, _NAME))


def put_whole(work: str, digest: str, marks_file: str, root: Optional[str]) -> None:
    """Make a run's whole working folder the spare. Raises OSError; then the folder may be gone.

    The folder is the snapshot `digest`, and its marks are in `marks_file`. The caller calls `remove_old` afterwards.
    """
    with locked(root) as spares:
        part = new_part(spares)
        os.rename(work, part)
        try:
            if not _is_spare(spares, digest):
                with _replaced(spares):
                    os.rename(marks_file, os.path.join(MARKS, _NAME))
        finally:
            # If it has not become the spare.
            _set_aside(spares, part)


def remove_old(root: Optional[str]) -> None:
    """Remove the trees that were set aside, also by a process that was killed. The caller has no lock and no folder."""
    path = folder(root)
    with contextlib.suppress(OSError):
        for name in os.listdir(path):
            if name.startswith(_OLD):
                tree.remove_path(os.path.join(path, name))


@contextlib.contextmanager
def _replaced(spares: str) -> Iterator[None]:
    """Make tree.part the spare, after the caller has put its marks there, and set the old one aside."""
    tree_path = os.path.join(spares, "tree")
    _set_aside(spares, tree_path)
    yield
    os.rename(os.path.join(spares, "tree.part"), tree_path)
    Marks.write_top(os.path.join(MARKS, _NAME), mark_of(tree_path))


def _set_aside(spares: str, path: str) -> None:
    """Give a tree, if it is there, a path that no other one has. Raises OSError."""
    if os.path.lexists(path):
        os.rename(path, os.path.join(spares, _OLD + os.urandom(8).hex()))


def _is_spare(spares: str, digest: str) -> bool:
    return digest_in(os.path.join(MARKS, _NAME)) == digest and os.path.isdir(os.path.join(spares, "tree"))


def _difference(wanted: Snapshot) -> Optional[Tuple[List[bytes], List[bytes]]]:
    """Return the lines that the spare has beyond the snapshot, and those that it lacks. None if it does not help.

    It does not if the store has forgotten its snapshot, or if it has less than half of what the run needs.
    """
    digest = digest_in(os.path.join(MARKS, _NAME))
    if digest == wanted.digest:
        return [], []
    try:
        gone, added = Snapshot(digest, wanted.stores).difference(wanted)
    except NoCode:
        return None
    return None if 2 * len(added) >= wanted.count else (gone, added)
