"""The measuring of kit tune: TCP between the hosts, then mpi_perf with one set of words for mpirun after the other."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kit.errors import HostsFailed, InputError, Interrupted, KitError, NotReadyError, StepError
from kit.events import Event, HostDone, HostStep, OutputLine, Phase, Reporter, Warned
from kit.flows.context import Context
from kit.model.launch import Node, RunPolicy, RunRequest
from kit.model.result import RunResult
from kit.model.tune import Machine, Timing, Tried, Wire
from kit.plan.tune import candidates as rules
from kit.plan.tune import network as networks

WireRates = Callable[..., Mapping[str, float]]
Run = Callable[[Context, RunRequest], RunResult]

# In the second round, what was among the best of the first, and so many of them.
ROUNDS, AGAIN = 2, 3
REPEATS = 4
WIRE_S = 3.0
# What starting and ending a run costs beside what it measures, and how long a run may be at the least.
LAUNCH_S, LEAST_S = 4.0, 30.0
# The same of the first run with the current words: all others are held against it.
FIRST_S = 90.0
TASK = "measure"
HALF_DOWN = 0.5
# Part of the time that networks beside the one in use may take.
NETWORKS_SHARE = 0.4


@dataclass
class _Listener:
    """Keeps the job's own lines; the rest is for whoever watches."""

    reporter: Reporter
    lines: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def report(self, event: Event) -> None:
        if isinstance(event, OutputLine):
            (self.lines if event.stream == "stdout" else self.errors).append(event.text)
        elif not isinstance(event, HostStep):
            self.reporter.report(event)


def wire_rate(context: Context, nodes: Sequence[Node], wire: WireRates) -> float | None:
    """TCP's rate on the slowest link. Not known is told, and no reason to stop: MPI is measured all the same."""
    if len(nodes) < 2:
        return None
    context.reporter.report(Phase(name=TASK))
    try:
        return _slowest(context, nodes, wire, "TCP between the hosts, all links at once")
    except (StepError, HostsFailed) as error:
        first = error.failures[0] if isinstance(error, HostsFailed) else error
        context.reporter.report(Warned(text=str(first), hint=first.hint))
        return None


def _slowest(context: Context, nodes: Sequence[Node], wire: WireRates, told: str) -> float:
    """TCP's rate on the slowest link between these addresses. Raises the hosts' errors."""
    context.reporter.report(HostStep(host=TASK, text=told, fraction=0.0))
    hosts = {node.name: context.host(node.name) for node in nodes}
    return min(wire(nodes, hosts, context.connect, seconds=WIRE_S).values())


def other_wires(
    perf: Perf, machines: Sequence[Machine], nodes: Sequence[Node], now: float | None, wire: WireRates
) -> tuple[float | None, tuple[Wire, ...]]:
    """TCP's rate on the network in use, `now`, and the networks beside it with theirs, over all `nodes` of the cluster.

    One that nobody answers on is told, and no failure. Before one counts as faster, both are measured once more, and
    the better rate of the one in use is held against the worse of the other: containers are made anew for it.
    """
    if now is None:
        return None, ()
    found: list[Wire] = []
    # Most of the time is for MPI.
    end = time.monotonic() + (perf.end - time.monotonic()) * NETWORKS_SHARE
    for each in networks.others(machines):
        if time.monotonic() > end:
            perf.skipped.append(f"TCP over {each.network}: no time left")
            found.append(each)
        else:
            found.append(_measured(perf.context, each, nodes, wire))
    best = networks.faster(now, found)
    if best is not None:
        now = max(now, wire_rate(perf.context, perf.nodes, wire) or 0.0)
        again = _measured(perf.context, best, nodes, wire)
        found[found.index(best)] = min(best, again, key=lambda one: one.rate or 0.0)
    return now, tuple(found)


def _measured(context: Context, each: Wire, nodes: Sequence[Node], wire: WireRates) -> Wire:
    addresses = dict(each.addresses)
    nodes = [replace(node, address=addresses[node.name]) for node in nodes]
    try:
        rate = _slowest(context, nodes, wire, f"TCP over {each.network}, which is not in use")
    except (StepError, HostsFailed) as error:
        failure = str(error.failures[0] if isinstance(error, HostsFailed) else error)
        return replace(each, rate=None, failure=failure)
    return replace(each, rate=rate)


@dataclass
class Perf:
    """Runs mpi_perf on all slots with words for mpirun, within the time that is left."""

    context: Context
    run: Run
    end: float
    nodes: Sequence[Node]
    planned: int = 1
    done: int = 0
    # Runs behind those of try_all, whose time is kept for them.
    later: int = 1
    # What a run may take, as far as it was foreseen; it is ended after several times that.
    per_run_s: float = 60.0
    skipped: list[str] = field(default_factory=list)

    def measure(
        self, args: Sequence[str], sizes: str, seconds: float, told: str, *, last: bool = False, first: bool = False
    ) -> list[dict[str, Any]]:
        """The rows of an all-reduce. Raises KitError where it fails; InputError and NotReadyError are the caller's.

        The `last` run may take all the time that is left. The `first` one is not given up early.
        """
        left = self.end - time.monotonic()
        self.context.reporter.report(HostStep(host=TASK, text=told, fraction=min(0.99, self.done / self.planned)))
        self.done += 1
        listener = _Listener(self.context.reporter)
        spec = self.context.spec
        changed = replace(
            self.context,
            spec=spec.model_copy(update={"mpi": spec.mpi.model_copy(update={"args": tuple(args)})}),
            reporter=listener,
        )
        command = (
            "mpi_perf",
            "allreduce",
            "--sizes",
            sizes,
            "--repeats",
            str(REPEATS),
            "--seconds",
            f"{seconds:.3f}",
            "--json",
        )
        hosts = ",".join(node.name for node in self.nodes)
        limit = max(FIRST_S if first else LEAST_S, left if last else min(left, 3 * self.per_run_s))
        result = self.run(
            changed, RunRequest(command=command, hosts=hosts, policy=RunPolicy(start_timeout=60.0, timeout=limit))
        )
        if result.interrupted:
            raise Interrupted(f"interrupted; run {result.plan.run_id} had ended by itself")
        if result.stopped:
            raise StepError(f"it did not end within {limit:.0f} s", hint="give it more time: --minutes")
        if result.exit_code == 127:
            raise NotReadyError("the cluster's image has no mpi_perf", hint="run: kit image build && kit deploy")
        if result.exit_code != 0:
            said = next((line for line in listener.errors if line.strip()), f"exit code {result.exit_code}")
            raise StepError(f"mpi_perf failed: {said}", hint=f"kit logs {result.plan.run_id}")
        for line in reversed(listener.lines):
            if line.startswith("{"):
                rows: list[dict[str, Any]] = json.loads(line)["tests"][0]["rows"]
                return rows
        raise StepError("mpi_perf ended well and said nothing", hint=f"kit logs {result.plan.run_id}")


def try_all(
    perf: Perf, machines: Sequence[Machine], current: Tried, *, theirs: Sequence[str], tcp: float | None, ranks: int
) -> tuple[Tried, list[Tried]]:
    """Rounds over the current words and each candidate: whatever disturbs the machine for a minute hurts all alike."""
    known = rules.parameters_of(theirs)
    todo = [current] + [
        Tried(name=each.name, parameters=each.parameters)
        for each in rules.candidates(machines)
        if each.parameters != current.parameters
        and not (known and all(name in known for name, _ in each.parameters))
        and not rules.stalls({**dict(each.parameters), **known})
        and not rules.takes_over(dict(each.parameters), known)
    ]
    perf.planned = len(todo) + 1 + min(AGAIN, len(todo) - 1) + perf.later
    perf.per_run_s = per_run = max(5.0, (perf.end - time.monotonic()) / (perf.planned + 1))
    size = rules.message_bytes(wire=tcp, ranks=ranks, per_run_s=per_run)
    seconds: dict[str, list[float]] = {each.name: [] for each in todo}
    failures: dict[str, str] = {}
    for number in range(ROUNDS):
        for each in todo if number == 0 else _again(todo, seconds):
            if each.name in failures:
                continue
            if number and time.monotonic() + per_run * HALF_DOWN > perf.end:
                perf.skipped.append(f"{each.name}, round {number + 1}: no time left")
                continue
            words = perf.context.spec.mpi.args if each is current else rules.with_parameters(theirs, each.parameters)
            told = f"all-reduce of {size // rules.MIB} MB on {ranks} ranks: {each.name}, round {number + 1} of {ROUNDS}"
            first = each is current and number == 0
            try:
                (row,) = perf.measure(words, str(size), max(1.0, per_run - LAUNCH_S) / 2, told, first=first)
            except (InputError, NotReadyError, Interrupted):
                raise
            except KitError as error:
                if each is current and seconds[each.name]:
                    # What it was a moment ago still holds.
                    perf.skipped.append(f"{told}: {error.message}")
                    continue
                if each is current and not theirs and not current.parameters:
                    raise
                failures[each.name] = error.message
                continue
            seconds[each.name] += [float(value) for value in row["samples"]]
    perf.context.reporter.report(HostDone(host=TASK))
    measured = [
        replace(
            each,
            timing=Timing(bytes=size, ranks=ranks, seconds=tuple(seconds[each.name])) if seconds[each.name] else None,
            failure=failures.get(each.name),
        )
        for each in todo
    ]
    return measured[0], measured[1:]


def _again(todo: Sequence[Tried], seconds: Mapping[str, list[float]]) -> list[Tried]:
    """The current words, and the fastest of the others, in their order."""
    fastest = sorted((each for each in todo[1:] if seconds[each.name]), key=lambda each: min(seconds[each.name]))
    return [each for each in todo if each is todo[0] or each in fastest[:AGAIN]]


def curve_of(perf: Perf, words: Sequence[str], ranks: int, tcp: float | None) -> tuple[float | None, dict[int, Timing]]:
    """One all-reduce of 8 bytes, and the rate over sizes, with the words that were chosen."""
    left = perf.end - time.monotonic()
    size = rules.message_bytes(wire=tcp, ranks=ranks, per_run_s=max(left, 10.0))
    sizes = [8, *(rules.MIB << step for step in range(0, 7, 2) if rules.MIB << step <= size)]
    if left < LEAST_S / 2:
        perf.skipped.append("message sizes: no time left")
        return None, {}
    try:
        seconds = max(0.5, left / len(sizes) / 3)
        rows = perf.measure(words, ",".join(map(str, sizes)), seconds, "message sizes", last=True)
    except (InputError, NotReadyError, Interrupted):
        raise
    except KitError as error:
        perf.skipped.append(f"message sizes: {error.message}")
        return None, {}
    timings = {
        int(row["bytes"]): Timing(bytes=int(row["bytes"]), ranks=ranks, seconds=tuple(row["samples"])) for row in rows
    }
    small = timings.get(8)
    return (small.median if small else None), timings


def halves(perf: Perf, words: Sequence[str], ranks: int, size: int) -> tuple[Timing, Timing] | None:
    """An all-reduce of `size` bytes and one of half of them, with the words that were chosen; None where it failed."""
    left = perf.end - time.monotonic()
    if left < LEAST_S / 2:
        perf.skipped.append("half the bytes, for --fp16: no time left")
        return None
    seconds = max(0.5, (min(left, perf.per_run_s) - LAUNCH_S) / 4)
    try:
        rows = perf.measure(words, f"{size},{size // 2}", seconds, "half the bytes, for --fp16")
    except (InputError, NotReadyError, Interrupted):
        raise
    except KitError as error:
        perf.skipped.append(f"half the bytes, for --fp16: {error.message}")
        return None
    found = {int(row["bytes"]): tuple(row["samples"]) for row in rows}
    whole, half = (Timing(bytes=each, ranks=ranks, seconds=found[each]) for each in (size, size // 2))
    return whole, half
