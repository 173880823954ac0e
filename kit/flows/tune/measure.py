"""kit tune's measurements: TCP between the hosts, then mpi_perf with one set of mpirun arguments after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from kit.errors import HostsFailed, InputError, Interrupted, KitError, NotReadyError, StepError, UnreachableError
from kit.events import Event, HostStep, OutputLine, Phase, Reporter, UnfinishedLine, Warned
from kit.flows.context import Context
from kit.model.answer import OddAnswer, answer_of, decode, within
from kit.model.launch import Node, RunPolicy, RunRequest
from kit.model.result import RunResult
from kit.model.tune import Machine, Timing, Tried, Wire
from kit.model.values import replace
from kit.plan.tune import candidates as rules
from kit.plan.tune import network as networks

WireRates = Callable[..., Mapping[str, float]]
Run = Callable[[Context, RunRequest], RunResult]

# The second round repeats only the AGAIN best candidates of the first.
ROUNDS, AGAIN = 2, 3
REPEATS = 4
WIRE_S = 3.0
# What it costs to start and end a run, and the shortest time limit of a run.
LAUNCH_S, LEAST_S = 4.0, 30.0
# A run that lasts this many times as long as planned counts as one that hangs.
PATIENCE = 3
# The shortest limit of the first run with the current arguments, because all others are compared with it.
FIRST_S = 90.0
TASK = "measure"
HALF_DOWN = 0.5
# No all-reduce is quicker, or lasts longer.
SHORTEST_S, LONGEST_S = 1e-9, 1e6
# Share of the time for networks that are not in use.
NETWORKS_SHARE = 0.4
# Errors of the cluster or the request. They say nothing about a candidate, so they end the tuning.
ENDING = (InputError, NotReadyError, UnreachableError, HostsFailed, Interrupted)


class TimeIsUpError(StepError):
    """A run was stopped because the minutes are over. With more time, it might have ended."""


class _Listener(Struct):
    """Keeps the job's lines and passes every other event on."""

    reporter: Reporter
    lines: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def report(self, event: Event) -> None:
        if isinstance(event, OutputLine):
            (self.lines if event.stream == "stdout" else self.errors).append(event.text)
        elif not isinstance(event, HostStep | UnfinishedLine):
            self.reporter.report(event)


class Row(Struct, frozen=True, kw_only=True):
    """One size of an all-reduce: its times in seconds."""

    bytes: int
    samples: tuple[float, ...]


class _Test(Struct, frozen=True, kw_only=True):
    rows: tuple[Row, ...]


class _Printed(Struct, frozen=True, kw_only=True):
    tests: tuple[_Test, ...]


def rows_of(line: str, sizes: Sequence[int]) -> tuple[Row, ...]:
    """Return the rows in the JSON line of mpi_perf, which must be of these sizes. Raises OddAnswer."""
    printed: _Printed = decode(line, _Printed)
    tests = printed.tests
    rows = tests[0].rows if tests else ()
    if sorted(row.bytes for row in rows) != sorted(sizes) or not all(row.samples for row in rows):
        raise OddAnswer("it does not have a time for each size", line)
    for seconds in (seconds for row in rows for seconds in row.samples):
        within(seconds, SHORTEST_S, LONGEST_S, "a time")
    return rows


def wire_rate(context: Context, nodes: Sequence[Node], wire: WireRates) -> float | None:
    """Return TCP's rate on the slowest link. If it is not known, warn and return None: MPI can still be measured."""
    if len(nodes) < 2:
        return None
    context.reporter.report(Phase(name=TASK))
    try:
        return _slowest(context, nodes, wire, "TCP between the hosts, all links at once")
    except (StepError, HostsFailed) as error:
        first = error.failures[0] if isinstance(error, HostsFailed) else error
        context.reporter.report(Warned(text=str(first), hint=first.hint))
        return None


def _slowest(context: Context, nodes: Sequence[Node], wire: WireRates, text: str) -> float:
    """Return TCP's rate on the slowest link between these addresses. Raises the hosts' errors."""
    context.reporter.report(HostStep(host=TASK, text=text, fraction=0.0))
    hosts = {node.name: context.host(node.name) for node in nodes}
    return min(wire(nodes, hosts, context.connect, seconds=WIRE_S).values())


def other_wires(
    perf: Perf, machines: Sequence[Machine], nodes: Sequence[Node], now: float | None, wire: WireRates
) -> tuple[float | None, tuple[Wire, ...]]:
    """Measure the networks that are not in use, over all `nodes`. Return the rate of the one in use, and the others.

    A network that does not answer is not a failure. A network counts as faster only after a second measurement of
    both, which compares the better rate of the one in use with the worse rate of the other. A change of network
    recreates the containers.
    """
    if now is None:
        return None, ()
    wires: list[Wire] = []
    # Most of the time is for MPI.
    end = time.monotonic() + (perf.end - time.monotonic()) * NETWORKS_SHARE
    for other in networks.others(machines):
        if time.monotonic() > end:
            perf.skipped.append(f"TCP over {other.network}: no time left")
            wires.append(other)
        else:
            wires.append(_measured(perf.context, other, nodes, wire))
    best = networks.faster(now, wires)
    if best is not None:
        now = max(now, wire_rate(perf.context, perf.nodes, wire) or 0.0)
        again = _measured(perf.context, best, nodes, wire)
        wires[wires.index(best)] = min(best, again, key=lambda measured: measured.rate or 0.0)
    return now, tuple(wires)


def _measured(context: Context, other: Wire, nodes: Sequence[Node], wire: WireRates) -> Wire:
    addresses = dict(other.addresses)
    nodes = [replace(node, address=addresses[node.name]) for node in nodes]
    try:
        rate = _slowest(context, nodes, wire, f"TCP over {other.network}, which is not in use")
    except (StepError, HostsFailed) as error:
        failure = str(error.failures[0] if isinstance(error, HostsFailed) else error)
        return replace(other, rate=None, failure=failure)
    return replace(other, rate=rate)


class Perf(Struct):
    """Runs mpi_perf on all slots with given mpirun arguments, within the remaining time."""

    context: Context
    run: Run
    start: float
    minutes: float
    nodes: Sequence[Node]
    planned: int = 1
    done: int = 0
    # The seconds before the runs of try_all, for TCP.
    spent_s: float = 0.0
    # Runs after those of try_all, which leaves time for them.
    later: int = 1
    # The planned time of a run. kit ends it after several times that.
    per_run_s: float = 60.0
    # Take slots that are reserved for a run in line.
    now: bool = False
    skipped: list[str] = field(default_factory=list)
    # The failure of a run with the chosen arguments, after they were chosen.
    broken: str | None = None

    @property
    def end(self) -> float:
        return self.start + self.minutes * 60

    def measure(
        self, args: Sequence[str], sizes: str, seconds: float, text: str, *, last: bool = False, first: bool = False
    ) -> tuple[Row, ...]:
        """Return the rows of an all-reduce, one for each of `sizes`.

        Raises one of ENDING for an error of the cluster, TimeIsUpError, or another KitError if these `args` fail.

        The `last` run may take all the remaining time. The `first` one does not end early.
        """
        left = self.end - time.monotonic()
        self.context.reporter.report(HostStep(host=TASK, text=text, fraction=min(0.99, self.done / self.planned)))
        self.done += 1
        listener = _Listener(self.context.reporter)
        spec = self.context.spec
        changed = replace(
            self.context,
            spec=replace(spec, mpi=replace(spec.mpi, args=tuple(args)), code=None),
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
        limit = max(FIRST_S if first else LEAST_S, left if last else min(left, PATIENCE * self.per_run_s))
        result = self.run(
            changed,
            # Some of what kit tune has written into kit.yaml may not be deployed yet.
            RunRequest(
                command=command,
                hosts=hosts,
                policy=RunPolicy(start_timeout=60.0, timeout=limit),
                as_deployed=True,
                gpus_per_rank=0,
                ignore_busy_gpus=True,
                now=self.now,
            ),
        )
        if result.interrupted:
            raise Interrupted(f"interrupted; run {result.plan.run_id} had already ended")
        if result.stopped:
            kind = TimeIsUpError if last or limit < PATIENCE * self.per_run_s else StepError
            raise kind(f"it did not end within {limit:.0f} s", hint="give it more time: --minutes")
        if result.failure is not None and result.failure.kind == "host":
            raise UnreachableError(
                "the host was lost while kit tune measured, so kit wrote nothing",
                hint=f"see why: kit logs {result.plan.run_id}; then: kit doctor",
                host=result.failure.host,
            )
        if result.exit_code == 127:
            raise NotReadyError("the cluster's image has no mpi_perf", hint="run: kit deploy")
        if result.exit_code != 0:
            cause = next((line for line in listener.errors if line.strip()), f"exit code {result.exit_code}")
            raise StepError(f"mpi_perf failed: {cause}", hint=f"kit logs {result.plan.run_id}")
        for line in reversed(listener.lines):
            if line.startswith("{"):
                with answer_of(self.nodes[0].name, "what mpi_perf printed"):
                    return rows_of(line, [int(size) for size in sizes.split(",")])
        raise StepError("mpi_perf succeeded but printed no result", hint=f"kit logs {result.plan.run_id}")

    def failed_with_chosen(self, error: KitError, text: str) -> None:
        """Note that a measurement with the chosen arguments failed. They are to blame unless the time was over."""
        self.skipped.append(f"{text}: {error.message}")
        if not isinstance(error, TimeIsUpError):
            self.broken = error.message


def try_all(
    perf: Perf, machines: Sequence[Machine], current: Tried, *, theirs: Sequence[str], tcp: float | None, ranks: int
) -> tuple[Tried, list[Tried]]:
    """Measure the current arguments and each candidate in rounds, so that a disturbance affects all of them alike."""
    known = rules.parameters_of(theirs)
    trials = [current] + [
        Tried(name=candidate.name, parameters=candidate.parameters)
        for candidate in rules.candidates(machines, allreduce=perf.context.spec.mpi.allreduce)
        if {**dict(candidate.parameters), **known} != dict(current.parameters)
        and not (candidate.parameters and all(name in known for name, _ in candidate.parameters))
        and not rules.stalls({**dict(candidate.parameters), **known})
        and not rules.takes_over(dict(candidate.parameters), known)
    ]
    perf.planned = len(trials) + 1 + min(AGAIN, len(trials) - 1) + perf.later
    perf.spent_s = time.monotonic() - perf.start
    perf.per_run_s = per_run = max(5.0, (perf.end - time.monotonic()) / (perf.planned + 1))
    size = rules.message_bytes(wire=tcp, ranks=ranks, per_run_s=per_run)
    seconds: dict[str, list[float]] = {trial.name: [] for trial in trials}
    failures: dict[str, KitError] = {}
    for number in range(ROUNDS):
        for trial in trials if number == 0 else _again(trials, seconds):
            if trial.name in failures:
                continue
            # All others are compared with the current arguments, so these get their first run in any case.
            first = trial is current and number == 0
            if not first and time.monotonic() + per_run * HALF_DOWN > perf.end:
                perf.skipped.append(f"{trial.name}, round {number + 1}: no time left")
                continue
            args = perf.context.spec.mpi.args if trial is current else rules.with_parameters(theirs, trial.parameters)
            step = (
                f"all-reduce of {size // rules.MIB} MB on {ranks} ranks: {trial.name}, round {number + 1} of {ROUNDS}"
            )
            try:
                (row,) = perf.measure(args, str(size), max(1.0, per_run - LAUNCH_S) / 2, step, first=first)
            except ENDING:
                raise
            except KitError as error:
                if seconds[trial.name] and (trial is current or isinstance(error, TimeIsUpError)):
                    # The timing of the previous round still holds.
                    perf.skipped.append(f"{step}: {error.message}")
                    continue
                if trial is current and not theirs and not current.parameters:
                    raise
                failures[trial.name] = error
                # Settings that work only sometimes must not be chosen, however fast they are.
                seconds[trial.name].clear()
                continue
            seconds[trial.name] += row.samples
    if not any(seconds.values()):
        raise failures[current.name]
    measured = [
        replace(
            trial,
            timing=Timing(bytes=size, ranks=ranks, seconds=tuple(seconds[trial.name])) if seconds[trial.name] else None,
            failure=failures[trial.name].message if trial.name in failures else None,
        )
        for trial in trials
    ]
    return measured[0], measured[1:]


def _again(trials: Sequence[Tried], seconds: Mapping[str, list[float]]) -> list[Tried]:
    """Return the current arguments and the fastest of the others, in their order."""
    fastest = sorted((trial for trial in trials[1:] if seconds[trial.name]), key=lambda trial: min(seconds[trial.name]))
    return [trial for trial in trials if trial is trials[0] or trial in fastest[:AGAIN]]


def curve_of(perf: Perf, words: Sequence[str], ranks: int, tcp: float | None) -> tuple[float | None, dict[int, Timing]]:
    """Return the time of an 8-byte all-reduce and timings by size, with the chosen arguments."""
    left = perf.end - time.monotonic()
    size = rules.message_bytes(wire=tcp, ranks=ranks, per_run_s=max(left, 10.0))
    sizes = [8, *(rules.MIB << step for step in range(0, 7, 2) if rules.MIB << step <= size)]
    if left < LEAST_S / 2:
        perf.skipped.append("message sizes: no time left")
        return None, {}
    try:
        seconds = max(0.5, left / len(sizes) / 3)
        rows = perf.measure(words, ",".join(map(str, sizes)), seconds, "message sizes", last=True)
    except ENDING:
        raise
    except KitError as error:
        perf.failed_with_chosen(error, "message sizes")
        return None, {}
    timings = {row.bytes: Timing(bytes=row.bytes, ranks=ranks, seconds=row.samples) for row in rows}
    small = timings.get(8)
    return (small.median if small else None), timings


def halves(perf: Perf, words: Sequence[str], ranks: int, size: int) -> tuple[Timing, Timing] | None:
    """Return the timings of all-reduces of `size` and `size` / 2 bytes, or None if the measurement failed."""
    left = perf.end - time.monotonic()
    if left < LEAST_S / 2:
        perf.skipped.append("half the bytes, for --fp16: no time left")
        return None
    seconds = max(0.5, (min(left, perf.per_run_s) - LAUNCH_S) / 4)
    try:
        rows = perf.measure(words, f"{size},{size // 2}", seconds, "half the bytes, for --fp16")
    except ENDING:
        raise
    except KitError as error:
        perf.failed_with_chosen(error, "half the bytes, for --fp16")
        return None
    samples = {row.bytes: row.samples for row in rows}
    whole, half = (Timing(bytes=count, ranks=ranks, seconds=samples[count]) for count in (size, size // 2))
    return whole, half
