"""The keeper of the line: one process on the head that starts waiting runs when it is their turn.

It lives as long as a run waits that may start by itself. kit-launch starts it when the line changes, and the head's
container when it starts, so the line goes on after a restart. kitqueue.order decides.
"""

import contextlib
import fcntl
import os
import time
from typing import Any, Dict, FrozenSet, Mapping, Optional, Sequence, Set

from kitrun import begin, store

from kitqueue import fill, line, order

TICK_S = 1.0
# How long a host that did not answer is left out, and how long it has to answer.
OUT_S, ANSWER_S = 30.0, 3.0


class Keeper:
    """`record` is the path of cluster.json."""

    def __init__(self, root: Optional[str] = None, record: str = line.RECORD) -> None:
        self.root, self.record = root or store.ROOT, record
        self._lock = -1
        # Host -> until when it is left out (monotonic).
        self._out: Dict[str, float] = {}

    def keep(self) -> None:
        """Keep the line until nobody in it can start by itself. Return at once if another keeper lives."""
        if not self._take():
            return
        while True:
            self._reap()
            if self.look():
                time.sleep(TICK_S)
                continue
            # Who adds a run holds this, too: it finds this keeper alive, or gone.
            with line.changing(self.root):
                if not self._hopeful(line.entries(self.root)):
                    os.close(self._lock)
                    return

    def _take(self) -> bool:
        os.makedirs(line.folder(self.root), mode=0o700, exist_ok=True)
        path = os.path.join(line.folder(self.root), ".keeper")
        self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            return False
        return True

    def _reap(self) -> None:
        """Take the exit codes of supervisors that have ended."""
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def look(self) -> bool:
        """Start the runs whose turn it is. Return whether others wait that may start by themselves."""
        entries = line.entries(self.root)
        if not entries:
            line.write_state({}, self.root)
            return False
        known = line.state(self.root)
        ended = self._ended(entries, known.get("ended") or {})
        with store.starting(self.root):
            living = store.living(self.root)
            made = order.decide(
                time.time(),
                self._hosts(entries),
                [holder_of(record) for record in living],
                [waiting_of(entry) for entry in entries],
                ended=ended,
                reserved=reservation_of(known.get("reservation")),
            )
            by_id = {entry["id"]: entry for entry in entries}
            for start in made.starts:
                if not self._answer(start.chosen, by_id[start.id]["nodes"]):
                    # Without the hosts that do not answer, the next look decides again.
                    return True
                self._start(by_id[start.id], start.chosen)
        line.write_state(dict(state_of(made, time.time()), ended=ended), self.root)
        started = {start.id for start in made.starts}
        return self._hopeful([entry for entry in entries if entry["id"] not in started])

    def _hopeful(self, entries: Sequence[line.Entry]) -> bool:
        reasons = line.state(self.root).get("reasons") or {}
        return any((reasons.get(entry["id"]) or {}).get("kind") not in ("held", "never") for entry in entries)

    def _hosts(self, entries: Sequence[line.Entry]) -> Dict[str, FrozenSet[int]]:
        """Return the slots of the hosts on which runs may start now."""
        now = time.monotonic()
        cordoned = line.cordons(self.root)
        record = store.read(self.record) or {}
        deployed = {str(node.get("name")) for node in record.get("nodes") or [] if isinstance(node, dict)}
        slots: Dict[str, int] = {}
        # The newest word on a host wins: its slots may have changed in the hosts file.
        for entry in entries:
            for name, node in entry["nodes"].items():
                slots[name] = int(node["slots"])
        return {
            name: frozenset(range(count))
            for name, count in slots.items()
            if name in deployed and name not in cordoned and self._out.get(name, 0.0) <= now
        }

    def _ended(self, entries: Sequence[line.Entry], known: Mapping[str, Any]) -> Dict[str, bool]:
        """Return how the runs ended for which others wait. A run that was lost did not end well.

        `known` is the last look's result: the folder of a run that ended may be gone by now.
        """
        ended = {}
        for run_id in {str(pair[0]) for entry in entries for pair in entry.get("after") or []}:
            if not store.ID.fullmatch(run_id):
                continue
            if run_id in known:
                ended[run_id] = bool(known[run_id])
                continue
            run = store.Run(run_id, self.root)
            if run.exists and not run.alive:
                ended[run_id] = (run.ending or {}).get("exit_code") == 0
        return ended

    def _answer(self, chosen: order.Chosen, nodes: Mapping[str, Mapping[str, Any]]) -> bool:
        """Return whether the sshd of each host answers. One that does not is left out for a while."""
        # Imported only here: most looks start nothing.
        import socket

        port = (store.read(self.record) or {}).get("ssh_port")
        good = True
        for host, _ in chosen:
            try:
                socket.create_connection((nodes[host]["address"], int(port or 0)), ANSWER_S).close()
            except (OSError, TypeError, ValueError, OverflowError):
                self._out[host] = time.monotonic() + OUT_S
                good = False
        return good

    def _start(self, entry: line.Entry, chosen: order.Chosen) -> None:
        """Start a run, in `store.starting`. It leaves the line only after its folder is there."""
        run = store.Run(entry["id"], self.root)
        request = fill.filled(entry, chosen)
        launch = begin.launch_of(request, self.root)
        if launch is None or run.exists:
            line.remove(entry["id"], self.root)
            return
        record = dict(begin.record_of(run.id, launch), queued=entry.get("queued"))
        begin.begin(
            run,
            record,
            launch,
            before=lambda: line.remove(entry["id"], self.root),
            in_child=lambda: os.close(self._lock),
        )


def check(entry: Mapping[str, Any], root: str) -> None:
    """Raise KeyError, TypeError or ValueError for an entry with which a run cannot start."""
    need = waiting_of(dict(entry, place=0)).need
    chosen = tuple((host, tuple(range(count))) for host, count in zip(need.hosts, need.counts))
    if len(chosen) < len(need.counts) or begin.launch_of(fill.filled(entry, chosen), root) is None:
        raise ValueError("no run can start with this")


def holder_of(record: Mapping[str, Any]) -> order.Holder:
    slots: Dict[str, Set[int]] = {}
    for host, slot in store.slots_of(record["places"]):
        slots.setdefault(host, set()).add(slot)
    limit = record.get("limit")
    ends = record["started"] + limit if isinstance(limit, (int, float)) else None
    return order.Holder(str(record["id"]), {host: frozenset(numbers) for host, numbers in slots.items()}, ends)


def waiting_of(entry: Mapping[str, Any]) -> order.Waiting:
    need = entry["need"]
    return order.Waiting(
        entry["id"],
        entry["place"],
        order.Need(tuple(need["counts"]), tuple(need["hosts"])),
        int(entry.get("priority") or 0),
        entry.get("limit"),
        tuple((str(pair[0]), str(pair[1])) for pair in entry.get("after") or []),
        bool(entry.get("held")),
    )


def reservation_of(value: object) -> Optional[order.Reservation]:
    """Read what `state_of` wrote; None for anything else."""
    if not isinstance(value, dict):
        return None
    try:
        slots = {host: frozenset(numbers) for host, numbers in value["slots"].items()}
        return order.Reservation(value["id"], slots, value["at"], tuple(value["holders"]))
    except (AttributeError, KeyError, TypeError):
        return None


def state_of(made: order.Decision, now: float) -> Dict[str, Any]:
    first = made.reservation
    reserved = first and {
        "id": first.id,
        "slots": {host: sorted(numbers) for host, numbers in first.slots.items()},
        "at": first.at,
        "holders": list(first.holders),
    }
    reasons = {
        run_id: {"kind": reason.kind, "ids": list(reason.ids), "at": reason.at}
        for run_id, reason in made.reasons.items()
    }
    return {"looked": now, "reservation": reserved, "reasons": reasons}
