"""One start of mpirun, to its end: processes, pipes and guards. kitrun.decide says what to do."""

import os
import subprocess
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Set, Tuple

from kitrun import (
    by_hand,
    code,
    decide,
    feed,
    frames,
    idle,
    leases,
    limits,
    metrics,
    nodes,
    origin,
    procs,
    rendezvous,
    roles,
    stacks,
    store,
)
from kitrun.launch import Launch
from kitrun.output import Output, now_ms
from kitrun.snapshot import NoCode

if TYPE_CHECKING:
    import socket

TICK_S = 0.1
# Short runs need no guards: a stream to each node would cost more than the run.
GUARD_AFTER_S = 1.0
OPEN_AT_ONCE = 32
# How long a node that only mpirun lost has to answer kit.
DOUBT_S = 3.0
STACKS_S = 10.0
# The bytes of stacks in one report, and those of last lines. kit reads no event of more than 16 MiB.
MOST_STACKS = 8 << 20
MOST_LAST = 1 << 20

# Descriptor -> what reads from it and returns records for the log.
Pipes = Dict[int, Callable[[bytes], bytes]]


class Attempt:
    """`run_began` is when the run's first attempt began (monotonic). `ports` has those of earlier attempts."""

    def __init__(
        self,
        run: store.Run,
        launch: Launch,
        policy: Mapping[str, Any],
        log: store.Log,
        *,
        number: int,
        run_began: float,
        ports: Set[int],
        recorder: metrics.Recorder,
    ) -> None:
        self.run, self.launch, self.policy, self.log, self.number = run, launch, policy, log, number
        self.run_began, self._ports, self._recorder = run_began, ports, recorder
        # Bytes that the ranks of a host may use together, or 0.
        self._memory = int(policy.get("memory") or 0)
        self.nodes = [self._node(place) for place in launch.places]
        if launch.head not in [node.name for node in self.nodes]:
            # The head has no ranks, but mpirun runs there.
            self.nodes.append(nodes.Here(launch.head, run.id, self._memory))
        self.output = Output()
        self.code = 0
        self.stop: Optional[decide.Stop] = None
        self.lost: List[nodes.AnyNode] = []
        # The nodes that the run has given back. Only an elastic run does that.
        self._dropped: FrozenSet[str] = frozenset()
        # How many processes are left on each node that answered the last cleaning.
        self.left: Dict[str, int] = {}
        self.guarded = False
        self._cleaned = False
        # The nodes that were quiet when this attempt ended.
        self._quiet: FrozenSet[str] = frozenset()
        self._signal = 0
        self._began = time.monotonic()
        self._looked = 0.0
        self._stopping = decide.Stopping(0.0, 0.0)
        # The request to stop that counted last.
        self._asked: Optional[store.Record] = None
        held = str(launch.env.get("KIT_HELD_SLOTS", ""))
        self._idle = idle.Watch(policy.get("idle_gpu"), held, [place["node"] for place in launch.places])
        # The ranks left on each node, as nodes count them.
        self._counts: Dict[str, int] = {}
        # The stream on which each node got the word to end its ranks gently, or 0 if it had none.
        self._term_on: Dict[str, int] = {}

    def _node(self, place: Mapping[str, Any]) -> nodes.AnyNode:
        if place["node"] == self.launch.head:
            return nodes.Here(place["node"], self.run.id, self._memory)
        return nodes.Node(place["node"], place["address"], self.run.id, self._memory)

    # Start and loop

    def go(self) -> None:
        """Run mpirun to its end and set `code`."""
        launch = self.launch
        environment = dict(os.environ)
        environment.update(launch.env, KIT_ATTEMPT=str(self.number))
        store.overwrite(self.run.path("hostfile"), roles.hostfile(launch.hostfile, launch.helpers).encode())
        helpers = {"roles": [helper["role"] for helper in launch.helpers]} if launch.helpers else {}
        self.note("attempt", number=self.number, np=launch.np, **helpers)
        if launch.code and not self._seeded():
            return
        holder = None
        try:
            holder = self._hold_port(environment)
            argv = self._argv()
            with limits.as_before():
                process = subprocess.Popen(
                    argv,
                    # Open MPI's own: what kit-mpirun adds is not for runs of kit.
                    executable=by_hand.real(launch.argv[0]),
                    stdin=subprocess.PIPE if launch.stdin or launch.elastic else subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            self.log.write(self.output.complain("%s: %s" % (launch.argv[0], error.strerror)))
            self.code = 127
        else:
            self._watch(process)
        finally:
            if holder is not None:
                holder.close()

    def _hold_port(self, environment: Dict[str, str]) -> "Optional[socket.socket]":
        """Set the variables by which the ranks find each other. Return the holder of their port, or None."""
        launch = self.launch
        if launch.helpers:
            return roles.hold_port(environment, launch.helpers)
        return rendezvous.prepare(environment, launch.places, head=launch.head, used=self._ports)

    @property
    def is_last(self) -> bool:
        """Whether no attempt follows, however this one ends."""
        return self.number > int(self.policy.get("retries") or 0)

    def _argv(self) -> List[str]:
        if not self.launch.code:
            return list(self.launch.argv)
        began = time.time()
        living = tuple(str(record["id"]) for record in leases.living(os.path.dirname(self.run.folder)))
        order = code.Order(began, self.is_last, living)
        return code.with_order(self.launch.argv, self.run.id, self.launch.code, order)

    def _seeded(self) -> bool:
        """Seed the working folder here. On other nodes, the launch agent of mpirun's daemon does it."""
        try:
            code.seed(self.run.id, self.launch.code, time.time(), root=os.path.dirname(self.run.folder))
        except (NoCode, OSError) as error:
            self.log.write(self.output.complain("%s%s: %s" % (code.MARK, self.launch.head, code.why(error))))
            self.code = code.HOST_FAILED
            return False
        return True

    def _watch(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        pipes: Pipes = {process.stdout.fileno(): self.output.standard, process.stderr.fileno(): self.output.errors}
        wake = procs.child_pipe()
        feeder = feed.Feeder(self.run, process.stdin) if self.launch.stdin and process.stdin else None
        while process.poll() is None:
            if feeder is not None:
                feeder.feed()
            streams = {node.fd: node for node in self.nodes if node.fd is not None}
            for fd in nodes.ready([*pipes, *streams, wake], TICK_S):
                if fd in pipes:
                    self._read(fd, pipes)
                elif fd in streams:
                    streams[fd].read()
                else:
                    os.read(wake, 4096)
            self._tick(process)
        if feeder is not None:
            feeder.close()
        self._drain(pipes)
        status = process.returncode
        self._signal = -status if status < 0 else 0
        self.code = status if status >= 0 else 128 - status
        if self.code and self.stop is None and self.outcome.first is None:
            # mpirun may have failed between a person's request and the next look for it.
            self.stop = self.requested()
            if self.stop is not None:
                self.note("stopping", why=self.stop.why)
        process.stdout.close()
        process.stderr.close()
        procs.close_child_pipe(wake)

    def _read(self, fd: int, pipes: Pipes) -> None:
        data = os.read(fd, 262144)
        if not data:
            del pipes[fd]
            return
        known = len(self.output.restarts)
        records = pipes[fd](data)
        if records:
            self.log.write(records)
        # An elastic run notes its own, and no other run has any.
        for number in range(known, len(self.output.restarts) if self.launch.torchrun else 0):
            self._note_restart(number + 1, self.output.restarts[number])

    def _note_restart(self, number: int, first: Optional[decide.RankEnd]) -> None:
        failure = decide.rank_failure(first) if first is not None else {}
        self.note("restart", number=number, failure=failure)

    def _drain(self, pipes: Pipes) -> None:
        """Read what mpirun's pipes still hold, without waiting for other processes that have their far ends."""
        end = time.monotonic() + 1.0
        while pipes and time.monotonic() < end:
            ready = nodes.ready(pipes, 0.05)
            for fd in ready:
                self._read(fd, pipes)
            if not ready:
                break
        records = self.output.end()
        if records:
            self.log.write(records)

    # Stop

    def _tick(self, process: "subprocess.Popen[bytes]") -> None:
        now = time.monotonic()
        if not self.guarded and (now - self._began > GUARD_AFTER_S or self.stop or self._memory):
            self.guard()
        if self.guarded:
            self._tend_guards()
            self._recorder.tick(now, self.nodes, self._dropped)
        for node in self.nodes:
            if node.lost and node not in self.lost:
                self.lost.append(node)
                self.note("lost", host=node.name)
        if self.stop is not None:
            self._continue_stop(process, now)
            return
        self.stop = self._reason_to_stop(now)
        if self.stop is not None:
            self.output.undisturbed = False
            self._begin_stop(self.stop, now)

    def _reason_to_stop(self, now: float) -> Optional[decide.Stop]:
        stop = self._stop_of_lost()
        if stop is not None:
            return stop
        over = next((node for node in self.nodes if node.over), None)
        if over is not None:
            return decide.memory_stop(over.name, over.over, self._memory)
        if now - self._looked < TICK_S:
            return None
        self._looked = now
        stop = self.requested() or (self._idle.tick(now, self.nodes) if self.guarded else None)
        if stop is not None:
            return stop
        up, ranks = self._started()
        progress = decide.Progress(now, self.run_began, self._began, self.output.spoke, up, ranks)
        stop = decide.limit(self.policy, progress)
        if stop is not None:
            self._report(stop.why)
        return stop

    def _started(self) -> Tuple[int, int]:
        """Return how many ranks are up, and how many should be at the end of the start."""
        return len(self.output.up), self.launch.ranks

    def _stop_of_lost(self) -> Optional[decide.Stop]:
        # What a person requested meanwhile counts.
        return (self.requested() or decide.lost_stop(self.lost[0].name)) if self.lost else None

    def requested(self) -> Optional[decide.Stop]:
        return decide.requested(self.policy, self.run.stop_asked, self.run.operator_age)

    def _report(self, why: str) -> None:
        """Write down what each rank is doing, for the person who wants to know why nothing happens."""
        if not self.guarded:
            self.guard()
        answers = nodes.ask(self.nodes, "stacks", "stacks", STACKS_S)
        by_rank = {entry["rank"]: entry for entry in self._numbered(answers)}
        hosts = self._hosts_of_ranks()
        ranks = []
        count = max(1, len(hosts))
        for rank, host in sorted(hosts.items()):
            entry = by_rank.get(rank, {"rank": rank, "host": host})
            role = self.launch.role_of(rank)
            if role:
                entry["role"] = role
            if rank in self.output.ended:
                entry["ended"] = True
            elif rank not in self.output.up:
                entry["waiting"] = True
            if "stack" in entry:
                entry["stack"] = stacks.shortened(str(entry["stack"]), MOST_STACKS // count)
            entry["last"] = frames.shortened((self.output.last_lines(rank) or [""])[-1], MOST_LAST // count)
            ranks.append(entry)
        self.note("hang", why=why, ranks=ranks)

    def _hosts_of_ranks(self) -> Dict[int, str]:
        """Return the host of each rank. A rank says its own: torchrun numbers hosts in another order than mpirun."""
        known = {node.name for node in self.nodes}
        up = {rank: host for rank, host in self.output.up.items() if host in known}
        return {rank: up.get(rank) or self.launch.host_of(rank) for rank in range(self.launch.ranks)}

    def _numbered(self, answers: Mapping[str, Any]) -> List[Dict[str, Any]]:
        """Return what ranks are doing, from what each host answered, with their hosts and numbers."""
        return [
            dict({name: entry[name] for name in entry if name != "local"}, host=host)
            for host, entries in answers.items()
            for entry in entries
        ]

    def _begin_stop(self, stop: decide.Stop, now: float) -> None:
        self.note("stopping", why=stop.why)
        if stop.grace > 0:
            if not self.guarded:
                self.guard()
            for node in self.nodes:
                node.received = []
                self._term(node)
        self._stopping = decide.begin_stop(stop, now)
        self._counts = {}

    def _continue_stop(self, process: "subprocess.Popen[bytes]", now: float) -> None:
        """End the ranks, each in its own time; then mpirun; then kill mpirun."""
        living = [node for node in self.nodes if node not in self.lost]
        ranks_gone = hurry = False
        if not self._stopping.mpirun_ends:
            self._take_counts()
            ranks_gone = all(self._counts.get(node.name) == 0 for node in living)
            request = self.run.stop_asked
            hurry = request is not None and decide.grace_of(request) <= 0
            # The first one, too: another may have replaced it since the stop began.
            if request is not None and request != self._asked:
                self._stopping, self._asked = decide.shortened(self._stopping, request, now), request
        away = {node.name for node in self.lost}
        reported = all(rank in self.output.ended or host in away for rank, host in self.output.up.items())
        step, self._stopping = decide.next_step(
            self._stopping, now, ranks_gone=ranks_gone, reported=reported, hurry=hurry
        )
        if step == "kill":
            process.kill()
        elif step == "end":
            process.terminate()
        elif step == "count":
            for node in living:
                if node.name in self._counts or self._term_on.get(node.name, node.streams) == node.streams:
                    node.send("count")
                else:
                    # Its stream was down, or broke before it answered.
                    self._term(node)

    def _term(self, node: nodes.AnyNode) -> None:
        self._term_on[node.name] = node.streams if node.send("term") else 0

    def _take_counts(self) -> None:
        for node in self.nodes:
            for answer in nodes.take(node):
                if "count" in answer:
                    self._counts[node.name] = answer["count"]

    # Guards, and the end

    def guard(self) -> None:
        """Start the guards, a few at a time. Later ticks open the others."""
        self.guarded = True
        for node in self.nodes[:OPEN_AT_ONCE]:
            node.open()

    def _tend_guards(self) -> None:
        opened = 0
        for node in self.nodes:
            before = node.streams
            node.tend(may_open=opened < OPEN_AT_ONCE)
            opened += node.streams - before

    def clean(self, patience: float) -> None:
        """End what is left on each node. A node that cannot be reached has its own guard, or no ranks."""
        if not self.guarded:
            self.guard()
        self._quiet = frozenset(node.name for node in self.nodes if node.is_quiet)
        missed = self.lost_hosts()
        self.left = nodes.ask([node for node in self.nodes if node.name not in missed], "end", "left", patience)
        # A node that only mpirun lost may answer, but kit does not wait long for it.
        doubtful = [node for node in self.nodes if node.name in missed and node not in self.lost]
        self.left.update(nodes.ask(doubtful, "end", "left", min(patience, DOUBT_S)))
        self._cleaned = True

    def settle(self, patience: float) -> None:
        """Have the other nodes settle the run's working folder (kitrun.settle). The head's is not among them."""
        others = [node for node in self.nodes if isinstance(node, nodes.Node) and node not in self.lost]
        nodes.ask(others, "settle", "settling", patience)

    def leave(self, patience: float) -> None:
        """Have the guards end without ending what the run left on their nodes, as they do when their streams end."""
        others = [node for node in self.nodes if isinstance(node, nodes.Node) and node not in self.lost]
        nodes.ask([node for node in others if self.guarded or node.fd is not None], "leave", "leaving", patience)

    def runs_kept(self, patience: float) -> Dict[str, List[str]]:
        """Return which runs have files on each other node that answers."""
        others = [node for node in self.nodes if isinstance(node, nodes.Node) and node not in self.lost]
        answers = nodes.ask(others, "runs", "runs", patience) if self.guarded else {}
        return {name: runs for name, runs in answers.items() if isinstance(runs, list)}

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    @property
    def outcome(self) -> decide.Outcome:
        silent = [n.name for n in self.nodes if n.name not in self.left and not n.helpless and n not in self.lost]
        outcome = decide.Outcome(
            code=self.code,
            signal=self._signal,
            stop=self.stop,
            first=self.output.first,
            any_up=bool(self.output.up),
            words=tuple(self.output.words),
            lost=tuple(node.name for node in self.lost),
            silent=tuple(silent) if self._cleaned else (),
            quiet=tuple(name for name in silent if name in self._quiet) if self._cleaned else (),
        )
        if self.launch.elastic:
            # It has no mpirun, and goes on without ranks that fail.
            return outcome
        first, output = outcome.first, self.output
        if not self.launch.torchrun:
            # With torchrun, mpirun's numbers are those of torchruns.
            hosts = {rank: self.launch.host_of(rank) for rank in range(self.launch.ranks)}
            first = decide.first_end(outcome, hosts, output.ended)
        if first is not None and outcome.stop is None:
            first = origin.origin(first, output.up, output.ended, output.wrote, output.last_lines)
        return outcome._replace(first=first)

    def lost_hosts(self) -> List[str]:
        return decide.lost_hosts(self.outcome, self.launch.places, self.launch.head)

    def failure(self) -> Optional[Dict[str, Any]]:
        """Return what went wrong first, or None."""
        outcome, output = self.outcome, self.output
        first = outcome.first
        return decide.failure(
            outcome,
            lost=self.lost_hosts(),
            head=self.launch.head,
            role=self.launch.role_of(first.rank) if first and first.rank is not None else "",
            lines=output.last_lines(first.rank) if first and first.rank is not None else [],
            before=origin.ended_before(first, output.ended, output.last_lines) if first else None,
        )

    def note(self, name: str, **fields: Any) -> None:
        self.log.write(frames.event(now_ms(), name, **fields))
