"""The keeper of the line: one process on the head that starts waiting runs when it is their turn.

It lives as long as a run waits that may start by itself. kit-launch starts it when the line changes, and the head's
container when it starts, so the line goes on after a restart. kitqueue.order decides.
"""

import contextlib
import fcntl
import os
import time
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from kitrun import begin, leases, store

from kitqueue import fill, forecast, line, order, probe, state, words

TICK_S = 1.0
# How long a host that did not answer is left out.
OUT_S = 30.0
# What people may see is written this often, even if nothing changes.
WRITE_S = 10.0

# Why a host takes no run.
CORDONED, GONE, SILENT = "cordoned", "gone", "silent"


class View(NamedTuple):
    """What the keeper sees before it decides. `broken`: runs that cannot start, and why.

    `nodes` has the hosts of all runs in line as they are now: all runs see one address and one number of slots.
    """

    entries: Mapping[str, line.Entry]
    nodes: fill.Nodes
    hosts: order.Slots
    # The hosts of the cluster that take no run now, and why no run starts on a host.
    out: order.Slots
    why_out: Mapping[str, str]
    waiting: Sequence[order.Waiting]
    broken: Mapping[str, str]
    # What the last deploy recorded (cluster.json), and when that was.
    deployed: Mapping[str, Any] = {}
    since: float = 0.0


class Keeper:
    """`record` is the path of cluster.json."""

    def __init__(self, root: Optional[str] = None, record: str = line.RECORD) -> None:
        self.root, self.record = root or store.ROOT, record
        self._lock = -1
        # Host -> until when it is left out (monotonic).
        self._silent: Dict[str, float] = {}
        # The last decision, as people may see it.
        self._known = line.state(self.root)
        self._written = 0.0
        self._forecast = forecast.Kept()
        self._cache: line.Cache = {}
        # Why runs could not start when it was their turn: for now, or for good.
        self._failures: Dict[str, str] = {}
        self._broken: Dict[str, str] = {}

    def keep(self) -> None:
        """Keep the line until nobody in it can start by itself. Return at once if another keeper lives."""
        if not self._take():
            return
        while True:
            self._reap()
            if self.look():
                time.sleep(TICK_S)
                continue
            # A process that adds a run holds this, too: it finds this keeper alive, or gone.
            with line.changing(self.root):
                if not line.hopeful(line.entries(self.root), self._known):
                    os.close(self._lock)
                    return

    def _take(self) -> bool:
        os.makedirs(line.folder(self.root), mode=0o700, exist_ok=True)
        self._lock = os.open(line.keeper_lock(self.root), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
        view = self._view()
        made = self._decided(view, leases.held(self.root))
        planned = made.starts
        if not self._answer(planned, view):
            # Without the hosts that do not answer, the next look decides again.
            return True
        begun: Set[str] = set()
        if planned:
            with leases.starting(self.root):
                # Other runs may have taken the slots meanwhile, and people may have changed the line.
                view = self._view()
                made = self._decided(view, leases.held(self.root))
                begun = {start.id for start in made.starts if start in planned and self._start(start, view)}
        self._tell(made, view)
        return line.hopeful([entry for run_id, entry in view.entries.items() if run_id not in begun], self._known)

    def _view(self) -> View:
        entries = {entry["id"]: entry for entry in line.entries(self.root, self._cache)}
        record, since = self._deployed()
        deployed = nodes_of(record)
        waiting: List[order.Waiting] = []
        broken = {run_id: why for run_id, why in self._broken.items() if run_id in entries}
        nodes: Dict[str, Dict[str, Any]] = {}
        sharing: Set[str] = set()
        # The newest run first, wherever people have moved it in line: its word on a host's slots wins.
        for entry in sorted(entries.values(), key=words.arrival, reverse=True):
            if entry["id"] in broken:
                continue
            try:
                run, shares = waiting_of(entry), fill.shares_gpus(entry)
                new = fill.nodes_now(entry, deployed, since, nodes)
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                broken[entry["id"]] = "%s: %s" % (type(error).__name__, error)
                continue
            waiting.append(run)
            nodes.update(new)
            sharing |= {run.id} if shares else set()
        waiting = [with_a_slot_for_each_gpu(run, nodes) if run.id in sharing else run for run in waiting]
        slots = {name: node["slots"] for name, node in nodes.items()}
        why_out = self._why_out(slots, deployed)
        every = {name: frozenset(range(count)) for name, count in slots.items() if why_out.get(name) != GONE}
        return View(
            entries=entries,
            nodes=nodes,
            hosts={name: numbers for name, numbers in every.items() if name not in why_out},
            out={name: numbers for name, numbers in every.items() if name in why_out},
            why_out=why_out,
            waiting=waiting,
            broken=broken,
            deployed=record,
            since=since,
        )

    def _deployed(self) -> Tuple[Mapping[str, Any], float]:
        """Return the cluster as the last deploy recorded it, and when that was."""
        record = store.read(self.record) or {}
        try:
            return record, os.stat(self.record).st_mtime
        except OSError:
            return record, 0.0

    def _why_out(self, names: Iterable[str], deployed: Mapping[str, Any]) -> Dict[str, str]:
        """Return why some of these hosts take no run now."""
        now = time.monotonic()
        cordoned = line.cordons(self.root)
        out = {}
        for name in names:
            if name not in deployed:
                out[name] = GONE
            elif name in cordoned:
                out[name] = CORDONED
            elif self._silent.get(name, 0.0) > now:
                out[name] = SILENT
        return out

    def _decided(self, view: View, living: Sequence[store.Record]) -> order.Decision:
        ended = dict(_brought(view.entries.values()), **self._ended(view.waiting))
        made = order.decide(
            time.time(),
            view.hosts,
            [holder_of(record, view) for record in living],
            view.waiting,
            ended=ended,
            out=view.out,
            reserved=state.reservation_of(self._known.get("reservation")),
        )
        self._known = dict(self._known, ended=ended)
        return made

    def _ended(self, waiting: Iterable[order.Waiting]) -> Dict[str, bool]:
        """Return how the runs ended for which others wait."""
        # The folder of a run that ended may be gone by now.
        known = self._known.get("ended") or {}
        ended = {}
        for run_id in {run_id for run in waiting for ids, _ in run.after for run_id in ids}:
            if run_id in known:
                ended[run_id] = bool(known[run_id])
                continue
            well = line.ended_well(run_id, self.root)
            if well is not None:
                ended[run_id] = well
        return ended

    def _answer(self, starts: Iterable[order.Start], view: View) -> bool:
        """Return whether the sshd of each chosen host answers. One that does not is left out for a while."""
        addresses = {host: str(view.nodes[host]["address"]) for start in starts for host, _ in start.chosen}
        silent = probe.silent(addresses, (store.read(self.record) or {}).get("ssh_port"))
        self._silent.update({host: time.monotonic() + OUT_S for host in silent})
        return not silent

    def _start(self, start: order.Start, view: View) -> bool:
        """Start a run, in `leases.starting`. It leaves the line only after it has its supervisor."""
        entry = view.entries[start.id]
        run = store.Run(start.id, self.root)
        with line.changing(self.root):
            if line.read(start.id, self.root) != entry:
                # Somebody has held or removed it. The next look decides again.
                return False
            self._failures.pop(start.id, None)
            try:
                # If it was started, a keeper was killed between the two steps.
                if run.cut:
                    self._begin(run, dict(entry, nodes=view.nodes), start.chosen, view)
                # A power cut must not take the entry and leave an empty record: then nobody would know the run.
                for path in (run.path("record.json"), run.folder, str(self.root)):
                    store.to_disk(path)
            except OSError as error:
                # The next look tries again.
                self._failures[start.id] = str(error)
                return False
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                self._broken[start.id] = "%s: %s" % (type(error).__name__, error)
                return False
            line.remove(start.id, self.root)
        return True

    def _begin(self, run: store.Run, entry: line.Entry, chosen: order.Chosen, view: View) -> None:
        launch = launch_of(entry, chosen, self.root, fill.networks_now(entry, view.deployed, view.since))
        diff = line.diff(run.id, self.root)
        if diff:
            launch["info"] = dict(launch["info"], code=dict(launch["info"]["code"], **diff))
        record = dict(begin.record_of(run.id, launch), queued=entry.get("queued"))
        if words.array_of(entry):
            record["array"] = entry["array"]
        # A deploy may have come since the run joined the line.
        if view.deployed.get("image"):
            record["image"] = view.deployed["image"]
        begin.begin(run, record, launch)

    def _tell(self, made: order.Decision, view: View) -> None:
        """Write what people may see."""
        new = state.state_of(made, view.why_out, {entry.id: entry.need.hosts for entry in view.waiting})
        reasons = new["reasons"]
        living = [holder_of(record, view) for record in leases.held(self.root)]
        fixed = {"ended": self._known.get("ended") or {}, "reserved": made.reservation}
        for run_id, at in self._forecast.about(time.time(), view.hosts, living, view.waiting, **fixed).items():
            if run_id in reasons:
                reasons[run_id]["about"] = at
        # A run that is about to start has no other reason to wait.
        reasons.update({run_id: {"kind": "error", "why": why} for run_id, why in self._failures.items()})
        reasons.update({run_id: {"kind": "broken", "why": why} for run_id, why in view.broken.items()})
        now = time.time()
        changed = any(self._known.get(name) != value for name, value in new.items())
        self._known = dict(new, ended=self._known.get("ended") or {}, looked=now)
        if changed or abs(now - self._written) > WRITE_S:
            line.write_state(self._known, self.root)
            self._written = now


def with_a_slot_for_each_gpu(run: order.Waiting, nodes: fill.Nodes) -> order.Waiting:
    """Return the run with those of its hosts that have as many slots as GPUs (kit.plan.queue.entry.check_nodes)."""
    hosts = [host for host in run.need.hosts if host in nodes and nodes[host].get("gpus") == nodes[host]["slots"]]
    return run._replace(need=run.need._replace(hosts=tuple(hosts)))


def _brought(entries: Iterable[line.Entry]) -> Dict[str, bool]:
    """Return how runs ended of which another head has the records (kitqueue.moving)."""
    return {run_id: bool(good) for entry in entries for run_id, good in (entry.get("ended") or {}).items()}


def nodes_of(record: Mapping[str, Any]) -> Dict[str, Dict[str, Any]]:
    """Return the nodes in the record of a deploy, by name."""
    return {str(node.get("name")): node for node in record.get("nodes") or [] if isinstance(node, dict)}


def launch_of(
    entry: Mapping[str, Any], chosen: order.Chosen, root: str, networks: Mapping[str, str] = fill.NO_NETWORKS
) -> begin.Request:
    """Return what starts a waiting run on these slots. Raises KeyError, TypeError or ValueError if nothing can."""
    launch = begin.launch_of(fill.filled(entry, chosen, networks), root)
    if launch is None:
        raise ValueError("no run can start with this")
    return launch


def check(entry: Mapping[str, Any], root: str) -> None:
    """Raise KeyError, TypeError or ValueError for an entry with which a run cannot start."""
    need = waiting_of(dict(entry, place=0)).need
    chosen = tuple((host, tuple(range(count))) for host, count in zip(need.hosts, need.counts))
    if len(chosen) < len(need.counts):
        raise ValueError("it needs more hosts than it may have")
    launch_of(entry, chosen, root)


def holder_of(record: Mapping[str, Any], view: View) -> order.Holder:
    slots: Dict[str, Set[int]] = {}
    if record.get(leases.EVERYWHERE):
        slots = {host: set(numbers) for host, numbers in (*view.hosts.items(), *view.out.items())}
    for host, slot in leases.slots_of(record["places"]):
        slots.setdefault(host, set()).add(slot)
    for host, count in leases.divisions_of(record["places"]).items():
        numbers = view.hosts.get(host) or view.out.get(host) or frozenset()
        if len(numbers) != count:
            # slots= has changed: what the run holds is not a number of today's slots.
            slots[host].update(numbers)
    ends = end_of(record, time.time(), time.monotonic())
    return order.Holder(str(record["id"]), {host: frozenset(numbers) for host, numbers in slots.items()}, ends)


def end_of(record: Mapping[str, Any], now: float, monotonic: float) -> Optional[float]:
    """Return when its limit ends a living run, in the seconds of `now`, or None. `monotonic` is that clock's `now`.

    The supervisor counts by the monotonic clock. If somebody has set the other one since the start, the end moves, too.
    """
    limit, began = record.get("limit"), record.get("monotonic")
    if not isinstance(limit, (int, float)):
        return None
    ends = float(record["started"] + limit)
    if isinstance(began, (int, float)):
        # Whole seconds: the two reads of the clocks are not at once, and what the line plans must not change each time.
        ends += round((now - monotonic) - (record["started"] - began))
    return ends


def waiting_of(entry: Mapping[str, Any]) -> order.Waiting:
    need = entry["need"]
    limit = entry.get("limit")
    return order.Waiting(
        entry["id"],
        int(entry["place"]),
        order.Need(tuple(int(count) for count in need["counts"]), tuple(need["hosts"])),
        int(entry.get("priority") or 0),
        None if limit is None else float(limit),
        tuple((tuple(ids), str(how)) for _, how, ids in entry.get("after") or []),
        bool(entry.get("held")),
    )
