"""The folder of runs on the head, one folder a run. No file there is the truth about a living run: a lock is.

    record.json   what was started: command, places, names of variables; written once
    lock          held by the supervisor as long as it lives
    log           all that the run printed, as records (kitrun.frames)
    operator      touched while an operator waits for the run in the foreground
    stop          somebody wants the run to end: JSON {"why", "grace", "by"}
    hostfile      of the attempt that goes on
    end.json      how it ended

What is written after the start has its room reserved by then: a disk that is full by now can lose lines of the log, but
neither how a run ended nor the wish that it end. A start for which there is no room is none.

A lease of slots is no file of its own: a run that lives holds the slots in its record.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import time

ROOT = "/var/lib/kit/runs"
VERSION = 1
RESERVED = 65536
RESERVED_STOP = 4096
ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}")


class Run:
    """One run's folder."""

    def __init__(self, run_id, root=None):
        if not ID.fullmatch(run_id):
            raise ValueError("this is not the id of a run: %r" % run_id[:80])
        self.id = run_id
        self.folder = os.path.join(root or ROOT, run_id)

    def path(self, name):
        return os.path.join(self.folder, name)

    @property
    def exists(self):
        return os.path.exists(self.path("record.json"))

    def create(self, record, hostfile=""):
        """Make the folder and write the record. Returns the lock, held; it goes with its descriptor.

        Raises OSError, and leaves nothing, where the disk has no room for it.
        """
        os.makedirs(self.folder, mode=0o700)
        lock = os.open(self.path("lock"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            reserve(self.path("end.reserved"), RESERVED)
            reserve(self.path("stop.reserved"), RESERVED_STOP)
            with open(self.path("hostfile"), "w", encoding="utf-8") as file:
                file.write(hostfile)
            with open(self.path("log"), "wb"):
                pass
            write(self.path("record.json"), record)
        except OSError:
            os.close(lock)
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        return lock

    @property
    def record(self):
        return read(self.path("record.json"))

    @property
    def ending(self):
        """How it ended, None as long as it did not."""
        return read(self.path("end.json"))

    def finish(self, ending):
        """Write how it ended, into room that was reserved."""
        with contextlib.suppress(OSError):
            overwrite(self.path("end.reserved"), json.dumps(ending).encode())
            os.rename(self.path("end.reserved"), self.path("end.json"))
        with contextlib.suppress(OSError):
            os.unlink(self.path("stop.reserved"))

    @property
    def watched(self):
        """Whether a supervisor lives that watches over it."""
        try:
            lock = os.open(self.path("lock"), os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
        finally:
            os.close(lock)
        return False

    @property
    def alive(self):
        """Whether it goes on, and so holds its slots."""
        return not os.path.exists(self.path("end.json")) and self.watched

    def ask_to_stop(self, why, grace, by):
        """Say that it end. Whoever asks again, with less patience, is heard; on a full disk, too."""
        wish = {"why": why, "grace": float(grace) if isinstance(grace, (int, float)) else 10.0, "by": by}
        room = self.path("stop.reserved")
        try:
            write(self.path("stop"), wish)
        except OSError:
            if os.path.exists(room):
                overwrite(room, json.dumps(wish).encode())
                os.rename(room, self.path("stop"))
            else:
                overwrite(self.path("stop"), json.dumps(wish).encode())

    @property
    def stop_asked(self):
        return read(self.path("stop"))

    def touch_operator(self):
        with contextlib.suppress(OSError):
            with open(self.path("operator"), "a"):
                os.utime(self.path("operator"), None)

    @property
    def operator_age(self):
        """Seconds since an operator last showed; None where none ever did."""
        try:
            return max(0.0, time.time() - os.stat(self.path("operator")).st_mtime)
        except OSError:
            return None


def reserve(path, size):
    """A file of this size, with room on the disk. Raises OSError where there is none."""
    with open(path, "wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            # A file system that knows no reservation, and not one that is full.
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise


def overwrite(path, data):
    """Write into the room that a file has already."""
    with open(path, "r+b" if os.path.exists(path) else "wb") as file:
        file.write(data)
        file.truncate()


def write(path, value):
    """Whole or not at all."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.rename(path + ".new", path)


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def runs(root=None):
    """All runs, the oldest first. An id begins with its second, and there may be more in one: the record's file tells."""
    try:
        names = os.listdir(root or ROOT)
    except OSError:
        return []
    found = []
    for run in (Run(name, root) for name in names if ID.fullmatch(name)):
        with contextlib.suppress(OSError):
            found.append((os.stat(run.path("record.json")).st_mtime_ns, run.id, run))
    return [run for _, _, run in sorted(found, key=lambda each: each[:2])]


def find(word, root=None):
    """The run of this id, or of the one id that begins so; for '' the latest that lives, or else the latest. Or None."""
    there = runs(root)
    if word:
        fitting = [run for run in there if run.id == word] or [run for run in there if run.id.startswith(word)]
        return fitting[0] if len(fitting) == 1 else None
    return ([run for run in there if run.alive] or there or [None])[-1]


def living(root=None):
    """The records of the runs that go on."""
    found = ((run, run.record) for run in runs(root) if run.alive)
    return [record for _, record in found if record]


@contextlib.contextmanager
def starting(root=None):
    """One start at a time: whoever is in here sees all leases, and none is taken meanwhile."""
    os.makedirs(root or ROOT, mode=0o700, exist_ok=True)
    gate = os.open(os.path.join(root or ROOT, ".starting"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(gate, fcntl.LOCK_EX)
        yield
    finally:
        # Said, and not left to the end of the descriptor: a supervisor that was forked meanwhile has it, too.
        fcntl.flock(gate, fcntl.LOCK_UN)
        os.close(gate)


def holders(places, root=None):
    """The records of living runs that hold a slot that `places` need."""
    wanted = {(place["node"], slot) for place in places for slot in place["slots"]}
    return [
        record
        for record in living(root)
        if any((place["node"], slot) in wanted for place in record["places"] for slot in place["slots"])
    ]


def prune(keep_s, keep_n, root=None):
    """Remove runs that ended more than `keep_s` seconds ago, and all but the newest `keep_n` of the ended."""
    ended = [run for run in runs(root) if not run.alive]
    now = time.time()
    for index, run in enumerate(reversed(ended)):
        try:
            age = now - os.stat(run.path("log")).st_mtime
        except OSError:
            age = 0.0
        if index >= keep_n or age > keep_s:
            shutil.rmtree(run.folder, ignore_errors=True)
