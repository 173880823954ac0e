"""Settles a working folder after its run: what the run made stays there, and what it did not change goes.

Unchanged files are in the store, so nothing is lost. They become the spare for the next run (kitrun.spare).

On the head, the supervisor settles the run. On another node, the launch agent of mpirun's daemon (kitrun.code) leaves a
process behind that waits for the end of the daemon. If another attempt may follow, it does not: the supervisor then
asks the guards at the end. What still remains, for example after a crash, goes at the next run on that node.

A file beside the working folder says that it is not settled yet:

    work.json   {"digest", "began": the head's clock before the daemon was started}. mpirun's daemon holds a lock on it
"""

import contextlib
import fcntl
import os
import time
from typing import Any, Callable, Iterable, List, Optional, Set

from kitrun import procs, spare, store, tree
from kitrun.marks import NOTHING, TOP, Mark, Marks, flat, mark, mark_at, marks_at
from kitrun.snapshot import NoCode, Numbered, Snapshot

WORK, PENDING = "work", "work.json"
# How long to wait for what a run left in the background.
QUIET_S = 300.0
_COMPILED = b"__pycache__"


def begin(run: store.Run, digest: str, began: float) -> None:
    """Write down that the working folder is not settled. Raises OSError."""
    store.write(run.path(PENDING), {"digest": digest, "began": began})


def forget(run: store.Run) -> None:
    """Nothing is left to settle. Remove the run's folder if nothing is in it; the head's has a record."""
    with contextlib.suppress(OSError):
        os.unlink(run.path(PENDING))
    with contextlib.suppress(OSError):
        os.rmdir(run.folder)


def hold(run: store.Run) -> Optional[int]:
    """Return a descriptor that says, as long as any process has it open, that the run lives on this node."""
    try:
        held = os.open(run.path(PENDING), os.O_RDONLY | os.O_NOFOLLOW)
        fcntl.flock(held, fcntl.LOCK_SH)
    except OSError:
        return None
    return held


def settle(run: store.Run, stores: str, *, wait: bool = True) -> bool:
    """Settle the run's folder on this node if it has ended here. Return whether it is settled.

    `wait`: wait for the end of the run's daemon, and for processes that it left behind.
    """
    try:
        lock = os.open(run.path(PENDING), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        spare.forget_marks(run.id)
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Somebody may have settled or removed the run in the meantime.
        pending = store.read(run.path(PENDING))
        if pending is None:
            spare.forget_marks(run.id)
            return True
        if not _is_quiet(run.id, QUIET_S if wait else 0.0) or in_use(run.path(WORK)):
            return False
        _settle(run, str(pending.get("digest")), stores)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def settle_others(root: Optional[str], stores: str, *, me: str, living: Iterable[str] = (), began: float = 0.0) -> None:
    """Settle the folders of earlier runs that nobody has settled.

    `living`: the runs that lived on the head at `began`, on the head's clock. A later run is not in it, and stays.
    """
    try:
        names = os.listdir(root or store.ROOT)
    except OSError:
        return
    for name in sorted(set(names).difference([me, *living])):
        if store.ID.fullmatch(name):
            run = store.Run(name, root)
            pending = store.read(run.path(PENDING))
            if pending is not None and _number(pending.get("began")) < began:
                settle(run, stores, wait=False)


def in_background(job: Callable[[], object]) -> None:
    """Do a job in a process that nobody waits for, with the lowest priority and no descriptor of this one's."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    # Not a child of mpirun's daemon, which this process becomes, and not in the session that its end closes.
    os.setsid()
    if os.fork():
        os._exit(0)
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for target in range(3):
            os.dup2(nowhere, target)
        os.closerange(3, 1024)
        os.chdir("/")
        os.nice(19)
        job()
    finally:
        os._exit(0)


def in_use(folder: str) -> bool:
    """Return whether a process of this container has the folder, or a file below it, open."""
    mine = os.fsencode(folder)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        at = b"/proc/%d/" % int(pid)
        links = [at + b"cwd"]
        with contextlib.suppress(OSError):
            links += [at + b"fd/" + name for name in os.listdir(at + b"fd")]
        for link in links:
            with contextlib.suppress(OSError):
                path = os.readlink(link)
                if path == mine or path.startswith(mine + b"/"):
                    return True
        with contextlib.suppress(OSError), open(at + b"maps", "rb") as maps:
            if b" " + mine + b"/" in maps.read():
                return True
    return False


def _is_quiet(run_id: str, patience: float) -> bool:
    """Return whether no process of the run is left here. Wait for that, less and less often."""
    end, pause = time.monotonic() + patience, 0.02
    while procs.marked(run_id):
        if time.monotonic() > end:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 10.0)
    return True


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _settle(run: store.Run, digest: str, stores: str) -> None:
    # Nobody uses a tree that was never finished.
    tree.remove_path(run.path(WORK + ".part"))
    with contextlib.suppress(NoCode, OSError):
        snapshot = Snapshot(digest, stores)
        marks = Marks.read(spare.marks_path(run.id))
        with tree.opened_top(run.path(WORK)) as top:
            if not _is_kept_whole(run, top, marks, digest):
                _empty(top, snapshot, snapshot.in_order(marks) if marks else None, os.path.dirname(run.folder))
    spare.forget_marks(run.id)
    # Succeeds only if the run made nothing.
    with contextlib.suppress(OSError):
        os.rmdir(run.path(WORK))
    forget(run)
    # Last, with nothing open or locked: this may take long, and a run may have taken the spare already.
    spare.remove_old(os.path.dirname(run.folder))


def _is_kept_whole(run: store.Run, top: int, marks: Optional[Marks], digest: str) -> bool:
    """Make the working folder the spare if nothing in it has changed. Return whether it is, or was, unchanged."""
    if marks is None or marks.digest != digest or mark(os.fstat(top)) != marks.top or not tree.is_whole(top, marks):
        return False
    with contextlib.suppress(OSError):
        spare.put_whole(run.path(WORK), digest, spare.marks_path(run.id), os.path.dirname(run.folder))
    return not os.path.lexists(run.path(WORK))


def _empty(top: int, snapshot: Snapshot, marks: Optional[Numbered], root: str) -> None:
    """Take what is unchanged out of the working folder."""
    same = _Same(top, snapshot, marks)
    if marks is not None and same.entries:
        try:
            _make_spare(top, snapshot, marks, same, root)
        except (NoCode, OSError):
            # The disk may be full: then somebody needs the space of these files.
            _remove(top, snapshot, marks, same)
    for folder in reversed(list(snapshot.inside)):
        if folder != TOP:
            above, _, name = folder.rpartition(b"/")
            with contextlib.suppress(OSError), tree.opened(top, above) as at:
                os.rmdir(name, dir_fd=at)


def _make_spare(top: int, snapshot: Snapshot, marks: Numbered, same: "_Same", root: str) -> None:
    """Move what is the same into the spare. Raises OSError and NoCode."""
    with spare.locked(root) as spares:
        part = spare.new_part(spares)
        try:
            tree.make_folder(part)
            with tree.opened_top(part) as new:
                entries = _move(top, new, snapshot, marks, same)
            spare.put(spares, snapshot, entries)
        except BaseException:
            tree.remove_path(part)
            raise


def _remove(top: int, snapshot: Snapshot, marks: Numbered, same: "_Same") -> None:
    for folder, inside in snapshot.inside.items():
        with contextlib.suppress(OSError), tree.opened(top, folder) as at:
            for number in same.entries.intersection(inside):
                if mark_at(at, snapshot.names[number]) == marks.entries[number]:
                    os.unlink(snapshot.names[number], dir_fd=at)


class _Same:
    """What the run has not changed: numbers of `entries`, and `folders` in which nothing at all has changed.

    A file that has lost its mark, or never had one, goes if every byte of it is as in the store.
    """

    def __init__(self, top: int, snapshot: Snapshot, marks: Optional[Numbered]) -> None:
        self.entries: Set[int] = set()
        self.folders: Set[bytes] = set()
        # A folder comes after the one that it is in.
        for number, folder in reversed(list(enumerate(snapshot.inside))):
            with contextlib.suppress(OSError), tree.opened(top, folder) as at:
                whole = marks is not None and mark(os.fstat(at)) == marks.folders[number]
                whole = self._look(at, snapshot, marks, folder) and whole and folder != TOP
                below = (folder + b"/" + name for name in snapshot.below[folder])
                if whole and self.folders.issuperset(below):
                    self.folders.add(folder)

    def _look(self, at: int, snapshot: Snapshot, marks: Optional[Numbered], folder: bytes) -> bool:
        """Compare what is directly in a folder. Return whether all of it is the same."""
        inside = snapshot.inside[folder]
        names = [snapshot.names[number] for number in inside]
        # Compiled files of the snapshot itself go where its other files go.
        cache = snapshot.inside.get(folder + b"/" + _COMPILED if folder else _COMPILED, ())
        kept = {snapshot.names[number] for number in self.entries.intersection(cache)}
        with contextlib.suppress(OSError):
            # Most folders are unchanged, and this is faster than one by one.
            if marks is not None and marks_at(at, names) == flat([marks.entries[number] for number in inside]):
                self.entries.update(inside)
                _forget_compiled(at, set(names), kept)
                return True
        count = 0
        sources: Set[bytes] = set()
        for number, name in zip(inside, names):
            if marks is not None and mark_at(at, name) == marks.entries[number]:
                self.entries.add(number)
                count += 1
            elif tree.is_copy(at, snapshot, number):
                os.unlink(name, dir_fd=at)
            else:
                continue
            sources.add(name)
        _forget_compiled(at, sources, kept)
        return count == len(inside)


def _forget_compiled(at: int, sources: Set[bytes], kept: Set[bytes]) -> None:
    """Remove what Python has compiled from these files, without the files `kept`: it makes that again."""
    with contextlib.suppress(OSError):
        with tree.opened(at, _COMPILED) as inside:
            for name in map(os.fsencode, os.listdir(inside)):
                if name.endswith(b".pyc") and name not in kept and name.split(b".")[0] + b".py" in sources:
                    os.unlink(name, dir_fd=inside)
        os.rmdir(_COMPILED, dir_fd=at)


def _move(top: int, new: int, snapshot: Snapshot, marks: Numbered, same: _Same) -> List[Mark]:
    """Move what is the same into the folder `new`. Return the marks of the entries that are there now."""
    entries = [NOTHING] * len(snapshot.lines)
    moved: Set[bytes] = set()
    for folder, inside in snapshot.inside.items():
        if folder in moved or folder.rpartition(b"/")[0] in moved:
            moved.add(folder)
            # A folder takes what is in it along, and that keeps its marks.
            for number in inside:
                entries[number] = marks.entries[number]
            continue
        with tree.opened(new, folder) as there:
            below = {name: folder + b"/" + name if folder else name for name in snapshot.below[folder]}
            with contextlib.suppress(OSError), tree.opened(top, folder) as at:
                for name, path in below.items():
                    # Some file systems do not rename folders (EXDEV).
                    if path in same.folders:
                        with contextlib.suppress(OSError):
                            os.rename(name, name, src_dir_fd=at, dst_dir_fd=there)
                            moved.add(path)
                for number in same.entries.intersection(inside):
                    name = snapshot.names[number]
                    # One that is gone keeps no other one here.
                    with contextlib.suppress(FileNotFoundError):
                        os.rename(name, name, src_dir_fd=at, dst_dir_fd=there)
                        entries[number] = mark_at(there, name)
            for name, path in below.items():
                if path not in moved:
                    tree.make_folder(name, there)
    return entries
