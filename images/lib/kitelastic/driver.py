"""Horovod's elastic driver, which here reports each reset, and starts ranks again that ended meanwhile."""

import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from horovod.runner.elastic.discovery import DiscoveredHosts, HostManager
from horovod.runner.elastic.driver import ElasticDriver
from horovod.runner.elastic.registration import FAILURE, READY, SUCCESS, WorkerStateRegistry
from horovod.runner.elastic.worker import HostUpdateResult

from kitelastic import oldest
from kitelastic.crew import BROKEN, END_S, SSH_FAILED, TICK_S, Key, Worker
from kitelastic.meeting import Client

# A host on which a rank failed rests for a time that doubles, from about twice the first number to the second.
COOLDOWN_S = (2, 60)
# How often ranks hear of changed hosts that their world does not have yet.
REMIND_S = 3.0

Tell = Callable[..., None]


class Driver(ElasticDriver):  # type: ignore[misc]
    """`tell(name, **fields)` takes events; `launch(slot)` starts a rank's Worker; `write` takes its output."""

    def __init__(
        self,
        rendezvous: Any,
        discovery: Any,
        least: int,
        most: Optional[int],
        *,
        timeout: float,
        launch: Any,
        write: Any,
        tell: Tell,
    ) -> None:
        self._launch, self._write, self._tell, self._doubt = launch, write, tell, discovery.doubt
        # This thread's rank.
        self._mine = threading.local()
        self.workers: Dict[Key, Worker] = {}
        # The rank that failed first since the last reset: (rank, host, exit code).
        self.first: Optional[Tuple[int, str, int]] = None
        # Whether any rank has used Horovod's elastic state.
        self.has_state = False
        self.refused = False
        # Ranks failed so that the run ended, by Horovod's rule or at the start: how, for people, or "".
        self.everywhere = ""
        # The failure that began the present reset, as `first`.
        self._cause: Optional[Tuple[int, str, int]] = None
        self._formed_at = 0.0
        self._spares = oldest.Spares()
        # Somebody ends the run: no rank starts again.
        self.stopping = False
        # Why the driver stopped, for people, if its ranks cannot say.
        self.why = ""
        self._since: Optional[float] = None
        self._met = 0
        self._before: List[Tuple[str, int]] = []
        self._changing = threading.RLock()
        # Horovod takes new hosts in any order. Ranks are easier to find in that of the hosts file.
        HostManager.order_available_hosts = staticmethod(discovery.ordered)
        super().__init__(rendezvous, discovery, least, most, timeout=int(timeout), cooldown_range=COOLDOWN_S, verbose=0)
        self._trust = discovery.trust
        self._worker_registry = Registry(self, self._host_manager)

    # The ranks

    def begin(self, count: int) -> None:
        """Start the first world, of at least `count` ranks."""
        self.start(count, self._create)
        threading.Thread(target=self._remind, daemon=True).start()

    def _create(self, slot: Any, events: Sequence[Any]) -> Tuple[int, float]:
        key = (slot.hostname, slot.local_rank)
        try:
            worker = self._launch(slot)
        except OSError as error:
            self._write(("kit-elastic: %s: %s\n" % (slot.hostname, error)).encode())
            return BROKEN, time.time()
        self._mine.worker = worker
        with self._changing:
            self.workers[key] = worker
            if self.has_rank_assignment(*key):
                worker.rank = self.get_slot_info(*key).rank
        return worker.run(events, self._write), time.time()

    def _handle_worker_exit(self, slot: Any, exit_code: int, timestamp: float) -> None:
        key = (slot.hostname, slot.local_rank)
        with self._changing:
            worker = getattr(self._mine, "worker", None)
            if worker is not None and self.workers.get(key) is not worker:
                # Another rank runs in this slot by now: this end is an old one.
                return
            self.workers.pop(key, None)
            # A rank that the present world does not have was dropped: its end is no failure.
            has_place = self.has_rank_assignment(*key)
            ends = self.finished() or self.stopping or (worker is not None and worker.ended)
            if exit_code and has_place and not ends:
                self._begin_reset()
                if self.first is None:
                    self.first = (worker.rank if worker else slot.rank, slot.hostname, exit_code)
                self._doubt(slot.hostname)
                if not self.has_state and exit_code != BROKEN:
                    self.refuse(worker)
        super()._handle_worker_exit(slot, exit_code, timestamp)

    def refuse(self, worker: Optional[Worker]) -> None:
        """End a run whose script cannot be reset, or one of whose first ranks did not even start."""
        if worker is None or worker.started:
            self.refused = True
        else:
            self.everywhere = "rank %d did not start on %s" % (worker.rank, worker.key[0])
        self.quit("")

    def quit(self, why: str) -> None:
        """End all ranks. Threads that wait for Horovod's barrier do not hinder it."""
        self.why = self.why or why
        self._shutdown.set()
        with self._wait_hosts_cond:
            self._wait_hosts_cond.notify_all()

    def stop(self, error_message: Optional[str] = None) -> None:
        """End the run, because it is over, or because Horovod has no host left that it trusts."""
        if self.first is not None and not self._worker_registry.count(SUCCESS):
            self.everywhere = self._spares.why()
        super().stop(error_message)

    def spare(self, hosts: Set[str]) -> bool:
        """Return whether the run continues with these hosts, although ranks failed there, too."""
        with self._changing:
            lived = (self._since or time.monotonic()) - self._formed_at
            good = self._spares.another(lived)
        if good:
            for host in hosts:
                self._trust(host)
            # The next look would come too late: the reset that follows counts the slots now.
            with self._wait_hosts_cond:
                self._host_manager.update_available_hosts()
        return good

    def world(self) -> List[str]:
        """Return the hosts of the present world, by number."""
        return list(self._host_assignments)

    # Resets

    def register_worker_server(self, host: str, slot: int, addresses: Any, secret_key: bytes) -> None:
        self.has_state = True
        self._worker_clients[(host, slot)] = Client(addresses, secret_key, self._verbose)

    def _remind(self) -> None:
        """Report changed hosts again. Rank 0 forgets what it hears while a world is built."""
        while not self._shutdown.wait(REMIND_S):
            with self._wait_hosts_cond:
                hosts = self._host_manager.current_hosts
                if self._since is None and hosts.count_available_slots() >= self._min_num_proc:
                    self._notify_workers_host_changes(hosts, HostUpdateResult.mixed)

    def _notify_workers_host_changes(self, current_hosts: Any, _: Any) -> None:
        # If hosts only leave, Horovod lets ranks skip the exchange of their state. But a rank that sees the end of the
        # others' exchange as a failure does not skip it, and then they wait for each other forever.
        super()._notify_workers_host_changes(current_hosts, HostUpdateResult.mixed)

    def record_ready(self, host: str, slot: int) -> None:
        with self._changing:
            self._begin_reset()
        super().record_ready(host, slot)

    def _begin_reset(self) -> None:
        if self._since is None:
            self._since = time.monotonic()

    def resume(self) -> None:
        if self.stopping:
            self.quit("")
            return
        with self._changing:
            self._begin_reset()
            available = self._host_manager.current_hosts.count_available_slots()
        if available < self._min_num_proc:
            self._tell("short", available=available, least=self._min_num_proc, seconds=self._timeout)
        try:
            super().resume()
        except Exception as error:
            self.why = self.why or reason(error, self._min_num_proc, self._timeout)
            raise

    def get_slot_info(self, host: str, slot: int) -> Any:
        """Return the rank's numbers in the present world. End a rank that has none.

        If it heard that, Horovod would abort it, with a message as for a crash.
        """
        worker = self.workers.get((host, slot))
        if worker is not None and not self.has_rank_assignment(host, slot):
            worker.end()
            deadline = time.monotonic() + END_S
            while worker.exit_code is None and time.monotonic() < deadline:
                time.sleep(TICK_S)
        return super().get_slot_info(host, slot)

    def _update_host_assignments(self, current_hosts: Any) -> Any:
        with self._changing:
            self._forget_ended()
            pending = super()._update_host_assignments(current_hosts)
            self._met = 0
            self._cause, self.first = self.first or self._cause, None
            for (host, local_rank), worker in self.workers.items():
                if self.has_rank_assignment(host, local_rank):
                    worker.rank = self._host_assignments[host][local_rank].rank
        return pending

    def _get_host_assignments(self, current_hosts: Any) -> Any:
        """Give rank 0, whose state all ranks take, to a rank that has the training's state."""
        worlds = {key: worker.worlds for key, worker in list(self.workers.items()) if self._lives(key)}
        hosts = current_hosts.host_assignment_order
        lead = oldest.lead(hosts, worlds)
        if lead is None:
            return super()._get_host_assignments(current_hosts)
        first = DiscoveredHosts(current_hosts.host_slots, oldest.first(hosts, lead[0]))
        by_host, slots = super()._get_host_assignments(first)
        own = by_host[lead[0]]
        if lead[1] < len(own):
            own[0].rank, own[lead[1]].rank = own[lead[1]].rank, own[0].rank
        return by_host, sorted(slots, key=lambda slot: slot.rank)

    def _forget_ended(self) -> None:
        """Make Horovod start ranks again that ended while it waited for hosts. It believes that they still run."""
        for host, slots in list(self._host_assignments.items()):
            living = [slot for slot in slots if self._lives((host, slot.local_rank))]
            if living:
                self._host_assignments[host] = living
            else:
                del self._host_assignments[host]

    def _lives(self, key: Key) -> bool:
        worker = self.workers.get(key)
        return worker is not None and not worker.ended and worker.exit_code is None

    def formed(self) -> None:
        """Count a rank that has met the others. When all have, tell who left and who came."""
        with self._changing:
            self._met += 1
            if self._met != self._world_size:
                return
            now = [(host, len(slots)) for host, slots in self._host_assignments.items()]
            slots = sorted((slot for slots in self._host_assignments.values() for slot in slots), key=lambda s: s.rank)
            ranks = [(slot.hostname, slot.local_rank) for slot in slots]
            before, self._before = self._before, now
            since, self._since = self._since, None
            self._formed_at = time.monotonic()
            cause, self._cause = self._cause, None
            for key, worker in self.workers.items():
                worker.worlds += self.has_rank_assignment(*key)
            if before:
                seconds = round(self._formed_at - (since or 0.0), 2)
                self._tell("reset", **change(before, now), ranks=ranks, seconds=seconds, **failed(cause))
            else:
                self._tell("formed", hosts=now, ranks=ranks, np=self._world_size)


class Registry(WorkerStateRegistry):  # type: ignore[misc]
    """Horovod's, which ends a run when ranks failed on every host, even if others there have the training's state."""

    def _on_workers_recorded(self) -> None:
        failures = self.get(FAILURE)
        spared = set() if self.count(SUCCESS) else oldest.spared(failures, self.get(READY))
        if spared and self._driver.spare(spared):
            self._workers[FAILURE] = {key for key in failures if key[0] not in spared}
        super()._on_workers_recorded()


def failed(cause: Optional[Tuple[int, str, int]]) -> Dict[str, Any]:
    """Return what an event says about the failure that began a reset: nothing if hosts only came or left."""
    if cause is None:
        return {}
    reported = cause[2] != BROKEN
    code = cause[2] if reported else SSH_FAILED
    return {"failed": {"rank": cause[0], "host": cause[1], "exit_code": code, "reported": reported}}


def change(before: Sequence[Tuple[str, int]], now: Sequence[Tuple[str, int]]) -> Dict[str, Any]:
    """Return what a reset changed. Both are (host, number of ranks) by rank."""
    earlier, later = dict(before), dict(now)
    return {
        "hosts": [list(pair) for pair in now],
        "joined": [host for host, _ in now if host not in earlier],
        "left": [host for host, _ in before if host not in later],
        "np_before": sum(earlier.values()),
        "np": sum(later.values()),
    }


def reason(error: Exception, least: int, seconds: float) -> str:
    """Return why Horovod cannot build another world, for people."""
    text = str(error)
    if "No hosts from previous set" in text:
        return "every host that had the training's state is lost"
    if "Timed out" in text:
        return "fewer than %d slots were left for %g s (--min-np)" % (least, seconds)
    return text
