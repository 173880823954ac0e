"""The leases of slots on the head: which runs hold which slots, and the one start at a time.

Leases have no file: a living run holds the slots in its record, and a lost one for a while. Only ranks that somebody
started with mpirun in the head's shell have one: .by-hand/ID, a record that mpirun keeps locked (kitrun.by_hand).
"""

import contextlib
import fcntl
import os
import time
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from kitrun import store

# How long after the start of the head's VM its lost runs may still have ranks on other nodes. If the power was cut, the
# guards there see nothing of that, and wait (kitrun.guard.LOST_S). Then they end the ranks.
RANKS_S = 60.0
# The same after the start of its container alone: the guards see that their streams end (kitrun.guard.ENDED_S).
CONTAINER_RANKS_S = 30.0
# In the record of a lost run that nobody can read: it may have ranks on any slot.
EVERYWHERE = "everywhere"
# Containers see that of their VM, and their own process 1.
BOOT, FIRST = "/proc/sys/kernel/random/boot_id", "/proc/1/stat"
# time.CLOCK_BOOTTIME, which Python 3.6 does not know: the clock of the times in /proc/1/stat.
BOOTTIME = 7


def held(root: Optional[str] = None) -> List[store.Record]:
    """Return the records of the runs that hold slots: living ones, and lost ones that may have ranks on other nodes.

    Those of lost runs come last, and have "lost": true. They hold slots, but nobody can stop or change them.
    """
    records = living(root)
    up_s = head_up_s()
    # This clock begins with the VM.
    limit = RANKS_S if time.monotonic() < RANKS_S else CONTAINER_RANKS_S
    if up_s < limit:
        began = float(round(time.time() - up_s))
        records += filter(None, [lost(run, began, limit) for run in _recent(store.runs(root))])
    return records


def head_up_s() -> float:
    """Return for how many seconds the head has been up: its container, or its VM if that is younger."""
    up_s, began = time.monotonic(), container_began()
    if began is None:
        return up_s
    # /proc/uptime has hundredths of a second: who holds slots would seem to change from one look to the next.
    return min(up_s, max(0.0, time.clock_gettime(BOOTTIME) - began / os.sysconf("SC_CLK_TCK")))


def container_began() -> Optional[int]:
    """Return when the container's process 1 started, in clock ticks since the VM did. None if the system hides it."""
    try:
        with open(FIRST, "rb") as file:
            # The name before it may have blanks and parentheses.
            return int(file.read(4096).rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _recent(runs: Sequence[store.Run]) -> List[store.Run]:
    """Return those of the runs that may have been alive when the head's container or VM went down last.

    Lost runs keep their records for days, or for good. After the start of a later run in another boot, which is not
    this one either, the head has gone down once more. So the ranks of the lost run have ended long ago.
    """
    this, recent = boot(), []
    boots: Set[str] = set()
    for run in reversed(runs):
        name = (run.record or {}).get("boot")
        if isinstance(name, str) and name not in ("", this):
            boots.add(name)
        # If nobody knows the run's own boot, it may be one of two others.
        if len(boots) > 1:
            break
        recent.append(run)
    return recent[::-1]


def boot() -> str:
    """Return a name for this start of the container in this boot of the VM, or '' if the system does not say it."""
    try:
        with open(BOOT, encoding="ascii") as file:
            name = file.read(64).strip()
    except (OSError, ValueError):
        return ""
    began = container_began()
    return name if began is None else "%s/%d" % (name, began)


def lost(run: store.Run, began: float, limit: float) -> Optional[store.Record]:
    """Return a record for a run of which nobody noted the end, and that has no supervisor. None for another run.

    `began` is when the head's container or VM started. Its ranks end `limit` seconds later, and not with the run's own
    limit.
    """
    record = run.record
    if run.watched or run.ending is not None:
        return None
    if record is None:
        # The power was cut before the record was on the disk.
        record = {"id": run.id, "places": [], EVERYWHERE: True}
    return dict(record, started=began, monotonic=None, limit=limit, lost=True)


def living(root: Optional[str] = None) -> List[store.Record]:
    """Return the records of the runs that still run, those that somebody started by hand last."""
    records = [run.record for run in store.runs(root) if run.alive]
    return [record for record in (*records, *by_hand(root)) if record]


def by_hand(root: Optional[str] = None) -> List[Optional[store.Record]]:
    """Return the records of mpiruns that somebody started in the head's shell and that still run."""
    folder = hand_folder(root)
    try:
        paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    except OSError:
        return []
    return [store.read(path) for path in paths if store.locked(path)]


def hand_folder(root: Optional[str] = None) -> str:
    return os.path.join(root or store.ROOT, ".by-hand")


@contextlib.contextmanager
def starting(root: Optional[str] = None) -> Iterator[None]:
    """Allow one start at a time. In here all leases are visible, and no other run takes slots."""
    os.makedirs(root or store.ROOT, mode=0o700, exist_ok=True)
    gate = os.open(os.path.join(root or store.ROOT, ".starting"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(gate, fcntl.LOCK_EX)
        yield
    finally:
        # Closing the descriptor is not enough: a supervisor that was forked meanwhile has it, too.
        fcntl.flock(gate, fcntl.LOCK_UN)
        os.close(gate)


def slots_of(places: Sequence[Mapping[str, Any]]) -> Iterator[Tuple[str, int]]:
    return ((place["node"], slot) for place in places for slot in place["slots"])


def holders(places: Sequence[Mapping[str, Any]], root: Optional[str] = None) -> List[store.Record]:
    """Return the records of the runs that hold a slot that `places` need.

    Also of those that hold slots of another division of a node, because slots= of the hosts file has changed.
    """
    wanted, divisions = set(slots_of(places)), divisions_of(places)
    return [
        record
        for record in held(root)
        if (wanted and record.get(EVERYWHERE))
        or not wanted.isdisjoint(slots_of(record["places"]))
        or any(divisions.get(node, of) != of for node, of in divisions_of(record["places"]).items())
    ]


def divisions_of(places: Sequence[Mapping[str, Any]]) -> Dict[str, int]:
    """Return by node how many slots it had when these places were chosen, where they hold slots and that is known."""
    return {place["node"]: place["of"] for place in places if place["slots"] and place.get("of")}
