"""The line's folder on the head, beside the runs. It is on the VM's disk, so it outlives the container.

ID.json       a run that waits: its shape, its turn, and the request that starts it. Only root reads it, because the
              request has the values of variables. It goes when the run starts
.diffs/ID     how the code of that run differed from its commit; the runs of an array are names of one file
.state.json   what the keeper last decided: why each run waits, and the reservation
.cordons.json the hosts on which nothing new is placed, with the reason
.lock         held while the line changes
.keeper       held by the keeper as long as it lives (kitqueue.keeper)
"""

import contextlib
import fcntl
import json
import os
import time
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from kitrun import store

# What kit deployed: the nodes and sshd's port.
RECORD = "/etc/kit/cluster.json"
# The most runs in line, so that a loop of a script does not fill the disk.
MOST = 10000

Entry = Dict[str, Any]
# How code differed from its commit (kit.plan.run.code_record.diff_fields), and the runs with that code.
Diffs = Sequence[Tuple[Mapping[str, str], Sequence[str]]]
# What was read before: id -> inode, size and time of the file, and the entry.
Cache = Dict[str, Tuple[Tuple[int, int, int], Optional[Entry]]]


class Full(Exception):
    """There are too many runs in line."""


def folder(root: Optional[str] = None) -> str:
    return os.path.join(root or store.ROOT, ".queue")


def _path(name: str, root: Optional[str]) -> str:
    return os.path.join(folder(root), name)


@contextlib.contextmanager
def changing(root: Optional[str] = None) -> Iterator[None]:
    """Allow one change of the line at a time. Who also needs `leases.starting` takes that one first."""
    os.makedirs(folder(root), mode=0o700, exist_ok=True)
    lock = os.open(_path(".lock", root), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        # Closing the descriptor is not enough: a supervisor that was forked meanwhile has it, too.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def keeper_lock(root: Optional[str] = None) -> str:
    return _path(".keeper", root)


def _ids(root: Optional[str]) -> List[str]:
    """Return the ids that have a file."""
    try:
        names = os.listdir(folder(root))
    except OSError:
        return []
    ids = [name[: -len(".json")] for name in names if name.endswith(".json")]
    return [name for name in ids if store.ID.fullmatch(name)]


def entries(root: Optional[str] = None, cache: Optional[Cache] = None) -> List[Entry]:
    """Return the runs in line by their arrival. With a cache, only files that changed are read."""
    ids = _ids(root)
    records = [read(name, root) if cache is None else _cached(name, root, cache) for name in ids]
    for name in set(cache or ()).difference(ids):
        (cache or {}).pop(name)
    return sorted((entry for entry in records if entry), key=lambda entry: entry["place"])


def read(run_id: str, root: Optional[str] = None) -> Optional[Entry]:
    """Return the run in line with this id; None if it is not in line, or if its file is damaged."""
    entry = store.read(_path(run_id + ".json", root))
    good = entry and entry.get("id") == run_id and isinstance(entry.get("place"), int)
    return entry if good and entry and isinstance(entry.get("request"), dict) else None


def _cached(run_id: str, root: Optional[str], cache: Cache) -> Optional[Entry]:
    try:
        status = os.stat(_path(run_id + ".json", root))
    except OSError:
        return None
    # Each change makes a new file.
    version = (status.st_ino, status.st_size, status.st_mtime_ns)
    if run_id not in cache or cache[run_id][0] != version:
        cache[run_id] = (version, read(run_id, root))
    return cache[run_id][1]


def torn(root: Optional[str] = None) -> List[str]:
    """Return the runs in line whose files are damaged. They never start."""
    return sorted(name for name in _ids(root) if read(name, root) is None and has(name, root))


def has(run_id: str, root: Optional[str] = None) -> bool:
    """Return whether there is a file of a run with this id, which may be damaged."""
    return os.path.exists(_path(run_id + ".json", root))


def ended_well(run_id: str, root: Optional[str] = None) -> Optional[bool]:
    """Return whether a run ended well, or None if it has not ended. A run that was lost did not end well."""
    run = store.Run(run_id, root)
    # If the head went down during its start, a run in line starts again.
    if not run.exists or run.alive or (run.cut and has(run_id, root)):
        return None
    return (run.ending or {}).get("exit_code") == 0


def code(waiting: Iterable[Entry]) -> Set[str]:
    """Return the digests of the snapshots of code that these runs need."""
    return {entry["request"]["code"] for entry in waiting if entry["request"].get("code")}


def add(new: Sequence[Entry], root: Optional[str] = None, diffs: Diffs = ()) -> int:
    """Put runs at the end of the line. Return how many were there before. In `changing`. Raises OSError and Full."""
    there = entries(root)
    if len(there) + len(new) > MOST:
        raise Full("there are %d runs in line, and the most is %d" % (len(there), MOST))
    place = there[-1]["place"] + 1 if there else 1
    ids = [entry["id"] for entry in new]
    try:
        for diff, owners in diffs:
            _write_diff(diff, [name for name in owners if name in ids], root)
        for number, entry in enumerate(new):
            # One from another head keeps the time since which it waits.
            write(dict(entry, place=place + number, queued=entry.get("queued") or time.time()), root)
    except OSError:
        for name in ids:
            remove(name, root)
        raise
    return len(there)


def diff(run_id: str, root: Optional[str] = None) -> Dict[str, Any]:
    """Return how the code of a run in line differed from its commit, as fields of its record. Empty if it did not."""
    return store.read(_diff_path(run_id, root)) or {}


def _diff_path(run_id: str, root: Optional[str]) -> str:
    return os.path.join(_path(".diffs", root), run_id)


def _write_diff(diff: Mapping[str, str], ids: Sequence[str], root: Optional[str]) -> None:
    """Write a difference once for all of these runs. It may have a megabyte, and an array 1,000 runs."""
    os.makedirs(_path(".diffs", root), mode=0o700, exist_ok=True)
    for name in ids:
        path = _diff_path(name, root)
        try:
            os.link(_diff_path(ids[0], root), path)
        except OSError:
            # The first one, or the file system has no links.
            _write_for_good(path, diff)


def write(entry: Entry, root: Optional[str] = None) -> None:
    """Write an entry so that only root ever reads it. Raises OSError."""
    _write_for_good(_path(entry["id"] + ".json", root), entry)


def _write_for_good(path: str, value: object) -> None:
    """Write a file completely or not at all, so that it outlives a power cut. Raises OSError."""
    new = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(new, "w", encoding="utf-8") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(path + ".new", path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path + ".new")
        raise
    store.to_disk(os.path.dirname(path))


def remove(run_id: str, root: Optional[str] = None) -> bool:
    """Take a run out of the line. Return whether it was there."""
    there = True
    try:
        os.unlink(_path(run_id + ".json", root))
    except OSError:
        there = False
    with contextlib.suppress(OSError):
        os.unlink(_diff_path(run_id, root))
    return there


def state(root: Optional[str] = None) -> Dict[str, Any]:
    return store.read(_path(".state.json", root)) or {}


def reason(run_id: str, root: Optional[str] = None) -> Optional[Dict[str, Any]]:
    """Return why a run waits, as the keeper saw it last; None before its first look."""
    reasons = state(root).get("reasons")
    cause = reasons.get(run_id) if isinstance(reasons, dict) else None
    return cause if isinstance(cause, dict) else None


def hopeful(waiting: Iterable[Entry], known: Mapping[str, Any]) -> bool:
    """Return whether one of these runs may start by itself, by what the keeper last decided (`known`)."""
    reasons = known.get("reasons") or {}
    return any(
        not entry.get("held") and (reasons.get(entry["id"]) or {}).get("kind") not in ("never", "broken")
        for entry in waiting
    )


def write_state(value: Mapping[str, Any], root: Optional[str] = None) -> None:
    """Write what the keeper decided. It does not need this file, so a full disk does not stop it."""
    path = _path(".state.json", root)
    try:
        store.write(path, value)
    except OSError:
        # Into the space that the file already has.
        with contextlib.suppress(OSError):
            store.overwrite(path, json.dumps(value).encode())


def cordons(root: Optional[str] = None) -> Dict[str, Any]:
    """Return the cordoned hosts, each with {"why", "by", "at"}."""
    return store.read(_path(".cordons.json", root)) or {}


def write_cordons(value: Mapping[str, Any], root: Optional[str] = None) -> None:
    """Write the cordons. Without any, remove the file, which needs no space on the disk. Raises OSError."""
    path = _path(".cordons.json", root)
    if value:
        _write_for_good(path, value)
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    store.to_disk(os.path.dirname(path))
