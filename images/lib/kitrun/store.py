"""The folder of runs on the head, with one folder for each run. Files do not say whether a run is alive; a lock does.

    record.json   what was started: command, places, names of variables. Only places change, of a run that lives
    code.diff     how the code differed from its commit; missing if it did not
    lock          held by the supervisor as long as it lives
    log           all that the run printed, as records (kitrun.frames)
    log.marks     where records of the log begin, about one in each MARK_EVERY bytes; missing for a short log
    metrics.jsonl what it used of its hosts, in lines of JSON (kitrun.metrics); missing for a short run
    operator      touched while an operator waits for the run in the foreground; or, when the operator's stream has
                  ended, how many seconds of the wait for the operator are over already
    stop          a request to end the run: JSON {"why", "grace", "by"}
    stdin         what kit's standard input has sent for rank 0 so far; stdin.end: nothing more comes;
                  stdin.cut: the rest found no room on the disk. Empty files find room also on a full disk
    hostfile      of the current attempt. Ranks can read this file, and no other
    end.json      how it ended

The start reserves disk space for the files that come later. A disk that fills up can lose lines of the log, but neither
the run's ending nor a request to stop. Without that space, the run does not start.
"""

import base64
import contextlib
import errno
import fcntl
import json
import os
import re
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

ROOT = "/var/lib/kit/runs"
VERSION = 1
RESERVED = 65536
RESERVED_STOP = 4096
MARK_EVERY = 1 << 20
# A line of log.marks. A full disk may cut one, which then has another length.
MARK = b"%020d\n"
# In a run's folder: what its ranks made. And what is kept with that when the log goes.
MADE = ("work", "output", "checkpoints")
KEPT = (*MADE, "record.json", "code.diff", "end.json", "lock")
ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}")

Record = Dict[str, Any]


class Run:
    """One run's folder."""

    def __init__(self, run_id: str, root: Optional[str] = None) -> None:
        if not ID.fullmatch(run_id):
            raise ValueError("this is not the id of a run: %r" % run_id[:80])
        self.id, self.root = run_id, root or ROOT
        self.folder = os.path.join(root or ROOT, run_id)
        # The operator's file as it was last seen, and since when it has been like that (monotonic).
        self._operator: Tuple[Tuple[int, str], float] = ((0, ""), 0.0)

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    @property
    def exists(self) -> bool:
        return os.path.exists(self.path("record.json"))

    @property
    def cut(self) -> bool:
        """Whether its start, if any, ended in the middle, perhaps with the machine: there is no record to read."""
        return self.record is None and self.ending is None and not self.watched

    def create(self, record: Record, hostfile: str = "") -> int:
        """Make the folder and write the record. Return the lock's descriptor; closing it releases the lock.

        The difference of the code, which may be long, gets a file: every connection reads the records of living runs.
        Raises OSError, and leaves nothing, if the disk is full. The caller holds `leases.starting`.
        """
        # A run in line tries again with the same id.
        os.makedirs(self.folder, mode=0o700, exist_ok=self.cut)
        lock = os.open(self.path("lock"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            reserve(self.path("end.reserved"), RESERVED)
            reserve(self.path("stop.reserved"), RESERVED_STOP)
            # Ranks may read this one: kit-role, which is a rank's user, names the hosts of missing ranks by it.
            with open(self.path("hostfile"), "w", encoding="utf-8") as file:
                file.write(hostfile)
            with open(self.path("log"), "wb", opener=private):
                pass
            code = dict(record.get("code") or {})
            # JSON has no bytes: a difference that is no text comes as base64.
            text, packed = code.pop("diff", ""), code.pop("diff64", "")
            diff = base64.b64decode(packed) if packed else text.encode("utf-8", "backslashreplace")
            if diff:
                with open(self.path("code.diff"), "wb", opener=private) as file:
                    file.write(diff)
                record = dict(record, code=code)
            write(self.path("record.json"), record)
        except OSError:
            os.close(lock)
            remove_folder(self.folder)
            raise
        return lock

    def mark(self, offset: int) -> int:
        """Return where a record of the log begins, at this byte or not much before it."""
        try:
            with open(self.path("log.marks"), "rb") as file:
                marks = [int(line) for line in file if len(line) == len(MARK % 0)]
        except (OSError, ValueError):
            return 0
        return max((mark for mark in marks if mark <= offset), default=0)

    @property
    def record(self) -> Optional[Record]:
        return read(self.path("record.json"))

    def change_places(self, places: Sequence[Mapping[str, Any]]) -> Optional[Record]:
        """Write other places into the record, and return it. In `starting`: the places are the run's leases.

        "most_np" then has the most ranks that the run had. The file keeps its time, by which runs are sorted.
        """
        path, record = self.path("record.json"), self.record
        if record is None:
            return None
        counts = [
            # Hosts of an elastic run that are `out` have none of its ranks now.
            sum(int(place["ranks"]) for place in those if not place.get("out"))
            for those in (record["places"], places)
        ]
        record["most_np"] = max(int(record.get("most_np") or 0), *counts)
        record["places"] = list(places)
        write(path, record, at=os.stat(path).st_mtime_ns)
        return record

    @property
    def ending(self) -> Optional[Record]:
        """How it ended, or None while it runs."""
        return read(self.path("end.json"))

    def finish(self, ending: Record) -> None:
        """Write how it ended, into the reserved space."""
        with contextlib.suppress(OSError):
            overwrite(self.path("end.reserved"), json.dumps(ending).encode())
            os.rename(self.path("end.reserved"), self.path("end.json"))
        with contextlib.suppress(OSError):
            os.unlink(self.path("stop.reserved"))

    def to_disk(self) -> None:
        """Let its record, and how it ended, outlive a power cut. This may take long: older bytes go first."""
        for name in ("record.json", "end.json", "."):
            with contextlib.suppress(OSError):
                to_disk(self.path(name))

    @property
    def watched(self) -> bool:
        """Whether its supervisor lives."""
        return locked(self.path("lock"))

    @property
    def alive(self) -> bool:
        """Whether it still runs, and so holds its slots."""
        return not os.path.exists(self.path("end.json")) and self.watched

    def ask_to_stop(self, why: object, grace: object, by: object) -> None:
        """Request its end, also on a full disk. A later request, with less grace, replaces the first."""
        request = {"why": why, "grace": float(grace) if isinstance(grace, (int, float)) else 10.0, "by": by}
        reserved = self.path("stop.reserved")
        try:
            write(self.path("stop"), request)
        except OSError:
            if os.path.exists(reserved):
                overwrite(reserved, json.dumps(request).encode())
                os.rename(reserved, self.path("stop"))
            else:
                overwrite(self.path("stop"), json.dumps(request).encode())

    @property
    def stop_asked(self) -> Optional[Record]:
        return read(self.path("stop"))

    @property
    def made(self) -> bool:
        """Whether its ranks made something on the head."""
        return any(os.path.exists(self.path(name)) for name in MADE)

    def forget(self) -> None:
        remove_folder(self.folder)

    def forget_log(self) -> None:
        """Remove its log and what is beside it. What it made stays, with its record."""
        for name in os.listdir(self.folder):
            if name not in KEPT:
                with contextlib.suppress(OSError):
                    os.unlink(self.path(name))

    def open_stdin(self) -> None:
        """Make the file for standard input. Each attempt reads it from its beginning."""
        with open(self.path("stdin"), "wb", opener=private):
            pass

    def take_stdin(self, data: bytes) -> None:
        """Append to standard input. A run that was started without it, or has ended, ignores it. Raises OSError."""
        if os.path.exists(self.path("stdin")):
            with open(self.path("stdin"), "ab", opener=private) as file:
                file.write(data)

    def cut_stdin(self) -> None:
        """End standard input, of which a part could not be kept."""
        if os.path.exists(self.path("stdin")):
            with contextlib.suppress(OSError), open(self.path("stdin.cut"), "wb", opener=private):
                pass
        self.end_stdin()

    @property
    def stdin_cut(self) -> bool:
        """Whether rank 0 could get only a part of its standard input."""
        return os.path.exists(self.path("stdin.cut"))

    def end_stdin(self) -> None:
        if os.path.exists(self.path("stdin")):
            with contextlib.suppress(OSError), open(self.path("stdin.end"), "wb", opener=private):
                pass

    def forget_stdin(self) -> None:
        for name in ("stdin", "stdin.cut", "stdin.end"):
            with contextlib.suppress(OSError):
                os.unlink(self.path(name))

    def touch_operator(self, over: float = 0.0) -> None:
        """Note that an operator is here, or that the stream of one has ended, so that much of the wait is over."""
        path = self.path("operator")
        with contextlib.suppress(OSError), open(path, "w", encoding="ascii", opener=private) as file:
            file.write("%g" % over if over else "")
            file.flush()
            os.utime(path, None)

    @property
    def operator_age(self) -> Optional[float]:
        """Seconds since an operator last sent a beat; None if there never was an operator.

        As long as somebody looks often: the times of files would change with the clock of the head, which may be set.
        """
        try:
            with open(self.path("operator"), encoding="ascii", errors="replace") as file:
                seen = (os.fstat(file.fileno()).st_mtime_ns, file.read(32))
        except OSError:
            return None
        now = time.monotonic()
        if seen != self._operator[0]:
            self._operator = (seen, now)
        try:
            over = float(seen[1] or 0)
        except ValueError:
            over = 0.0
        return now - self._operator[1] + over


class Log:
    """The run's log. A full disk loses lines, but neither the order of records nor the run."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._good = self._marked = os.fstat(self._fd).st_size
        self._marks = path + ".marks"
        self.lost = 0

    def write(self, data: bytes) -> None:
        if self._good - self._marked >= MARK_EVERY:
            self._mark()
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._fd, view) :]
            self._good += len(data)
        except OSError:
            self.lost += len(data)
            try:
                os.ftruncate(self._fd, self._good)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                    raise

    def _mark(self) -> None:
        """Note where the next record begins. A full disk loses the mark."""
        self._marked = self._good
        with contextlib.suppress(OSError), open(self._marks, "ab", opener=private) as file:
            file.write(MARK % os.fstat(self._fd).st_size)


def private(path: str, flags: int) -> int:
    """Open a file for `open`, so that a new one is its owner's alone. Raises OSError.

    With `user:` in kit.yaml, ranks pass through the folder of a run. A umask would not do: ranks inherit it.
    """
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def remove_folder(path: str) -> None:
    # Imported only here: it is slow to import, and a run starts without it.
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def reserve(path: str, size: int) -> None:
    """Make a file of this size, with space on the disk. Raises OSError if the disk is full."""
    with open(path, "wb", opener=private) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            # Other errors come from file systems without reservations.
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise


def overwrite(path: str, data: bytes) -> None:
    """Write into the space that a file already has."""
    with open(path, "r+b" if os.path.exists(path) else "wb", opener=private) as file:
        file.write(data)
        file.truncate()


def write(path: str, value: object, *, at: Optional[int] = None) -> None:
    """Write a file completely or not at all. `at` is its time, in nanoseconds; by default now."""
    with open(path + ".new", "w", encoding="utf-8", opener=private) as file:
        json.dump(value, file)
    if at is not None:
        os.utime(path + ".new", ns=(at, at))
    os.rename(path + ".new", path)


def to_disk(path: str) -> None:
    """Let the bytes of a file, or the names in a folder, outlive a power cut. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def read(path: str) -> Optional[Record]:
    """Return the JSON object in a file, or None if there is no such file or object."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def runs(root: Optional[str] = None) -> List[Run]:
    """Return all runs, the oldest first.

    An id begins with its second. Several runs may start in one second, so the time of the record's file decides.
    """
    try:
        names = os.listdir(root or ROOT)
    except OSError:
        return []
    by_time = []
    for run in (Run(name, root) for name in names if ID.fullmatch(name)):
        with contextlib.suppress(OSError):
            by_time.append((os.stat(run.path("record.json")).st_mtime_ns, run.id, run))
    return [run for _, _, run in sorted(by_time, key=lambda entry: entry[:2])]


def find(word: str, root: Optional[str] = None) -> Optional[Run]:
    """Return the run with this id, or the only one whose id begins with it. None if no run matches.

    An empty word means the latest run that lives, or else the latest run.
    """
    known = runs(root)
    if word:
        matches = [run for run in known if run.id == word] or [run for run in known if run.id.startswith(word)]
        return matches[0] if len(matches) == 1 else None
    latest = [run for run in known if run.alive] or known
    return latest[-1] if latest else None


def locked(path: str) -> bool:
    """Return whether a process holds the lock of this file."""
    try:
        lock = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
    finally:
        os.close(lock)
    return False


def folders(root: Optional[str] = None) -> List[str]:
    """Return the ids of the runs that have a folder on this node."""
    try:
        return sorted(name for name in os.listdir(root or ROOT) if ID.fullmatch(name))
    except OSError:
        return []
