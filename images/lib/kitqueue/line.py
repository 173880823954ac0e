"""The line's folder on the head, beside the runs. It is on the VM's disk, so it outlives the container.

ID.json       a run that waits: its shape, its turn, and the request that starts it. Only root reads it, because the
              request has the values of variables. It goes when the run starts
.state.json   what the keeper last decided: why each run waits, and the reservation
.cordons.json the hosts on which nothing new is placed, with the reason
.lock         held while the line changes
.keeper       held by the keeper as long as it lives (kitqueue.keeper)
"""

import contextlib
import fcntl
import os
import time
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set

from kitrun import store

# What kit deployed: the nodes and sshd's port.
RECORD = "/etc/kit/cluster.json"
# The most runs in line, so that a loop of a script does not fill the disk.
MOST = 10000

Entry = Dict[str, Any]


class Full(Exception):
    """There are too many runs in line."""


def folder(root: Optional[str] = None) -> str:
    return os.path.join(root or store.ROOT, ".queue")


def _path(name: str, root: Optional[str]) -> str:
    return os.path.join(folder(root), name)


@contextlib.contextmanager
def changing(root: Optional[str] = None) -> Iterator[None]:
    """Allow one change of the line at a time."""
    os.makedirs(folder(root), mode=0o700, exist_ok=True)
    lock = os.open(_path(".lock", root), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def entries(root: Optional[str] = None) -> List[Entry]:
    """Return the runs in line by their arrival."""
    try:
        names = os.listdir(folder(root))
    except OSError:
        return []
    found = [store.read(_path(name, root)) for name in names if not name.startswith(".") and name.endswith(".json")]
    return sorted((entry for entry in found if entry and _is_entry(entry)), key=lambda entry: entry["place"])


def _is_entry(entry: Mapping[str, Any]) -> bool:
    return (
        isinstance(entry.get("id"), str)
        and bool(store.ID.fullmatch(entry["id"]))
        and "place" in entry
        and isinstance(entry.get("request"), dict)
    )


def code(waiting: Iterable[Entry]) -> Set[str]:
    """Return the digests of the snapshots of code that these runs need."""
    return {entry["request"]["code"] for entry in waiting if entry["request"].get("code")}


def add(new: Sequence[Entry], root: Optional[str] = None) -> int:
    """Put runs at the end of the line, and return the first one's place. In `changing`. Raises OSError and Full."""
    there = entries(root)
    if len(there) + len(new) > MOST:
        raise Full("there are %d runs in line, and the most is %d" % (len(there), MOST))
    place = there[-1]["place"] + 1 if there else 1
    done = []
    try:
        for number, entry in enumerate(new):
            done.append(entry["id"])
            write(dict(entry, place=place + number, queued=time.time()), root)
    except OSError:
        for name in done:
            remove(name, root)
        raise
    return int(place)


def write(entry: Entry, root: Optional[str] = None) -> None:
    """Write an entry so that only root ever reads it. Raises OSError."""
    path = _path(entry["id"] + ".json", root)
    before = os.umask(0o077)
    try:
        store.write(path, entry)
    finally:
        os.umask(before)


def remove(run_id: str, root: Optional[str] = None) -> bool:
    """Take a run out of the line. Return whether it was there."""
    try:
        os.unlink(_path(run_id + ".json", root))
    except OSError:
        return False
    return True


def find(word: str, root: Optional[str] = None) -> Optional[Entry]:
    """Return the run in line with this id, or the only one whose id begins with it."""
    there = entries(root)
    matches = [entry for entry in there if entry["id"] == word] or [
        entry for entry in there if word and entry["id"].startswith(word)
    ]
    return matches[0] if len(matches) == 1 else None


def state(root: Optional[str] = None) -> Dict[str, Any]:
    return store.read(_path(".state.json", root)) or {}


def reason(run_id: str, root: Optional[str] = None) -> Optional[Dict[str, Any]]:
    """Return why a run waits, as the keeper saw it last; None before its first look."""
    reasons = state(root).get("reasons")
    found = reasons.get(run_id) if isinstance(reasons, dict) else None
    return found if isinstance(found, dict) else None


def write_state(value: Mapping[str, Any], root: Optional[str] = None) -> None:
    # On a full disk, people see an older state, and the keeper continues.
    with contextlib.suppress(OSError):
        store.write(_path(".state.json", root), value)


def cordons(root: Optional[str] = None) -> Dict[str, Any]:
    """Return the cordoned hosts, each with {"why", "by", "at"}."""
    return store.read(_path(".cordons.json", root)) or {}


def write_cordons(value: Mapping[str, Any], root: Optional[str] = None) -> None:
    """Raises OSError."""
    store.write(_path(".cordons.json", root), value)
