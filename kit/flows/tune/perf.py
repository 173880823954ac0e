"""One run of mpi_perf for kit tune: the times of an all-reduce on all slots, with given arguments of mpirun."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec import Struct, field

from kit.errors import HostsFailed, InputError, Interrupted, KitError, NotReadyError, StepError, UnreachableError
from kit.events import Event, HostStep, OutputLine, Reporter, UnfinishedLine
from kit.flows.context import Context
from kit.model.answer import OddAnswer, answer_of, decode, within
from kit.model.launch import Node, RunPolicy, RunRequest
from kit.model.result import RunResult
from kit.model.values import replace

Run = Callable[[Context, RunRequest], RunResult]

REPEATS = 4
# The shortest time limit of a run.
LEAST_S = 30.0
# A run that lasts this many times as long as planned counts as one that hangs.
PATIENCE = 3
# The shortest limit of the first run with the current arguments, because all others are compared with it.
FIRST_S = 90.0
# The exit code of a run that a person stopped, and a part of why kit ended one whose ranks did not all start
# (images/lib/kitrun/decide.py).
STOPPED, UNSTARTED = 143, "ranks were up after"
# Where progress of measurements is shown, in place of a host.
TASK = "measure"
# No all-reduce is quicker, or lasts longer.
SHORTEST_S, LONGEST_S = 1e-9, 1e6
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
        self.context.reporter.report(HostStep(host=TASK, text=text, fraction=min(0.99, self.done / self.planned)))
        self.done += 1
        left = self.end - time.monotonic()
        limit = max(FIRST_S if first else LEAST_S, left if last else min(left, PATIENCE * self.per_run_s))
        words = ("--sizes", sizes, "--repeats", str(REPEATS), "--seconds", f"{seconds:.3f}", "--json")
        result, printed = self._launch(args, ("mpi_perf", "allreduce", *words), limit)
        if result.stopped:
            raise _ended(result, limit, final=last or limit < PATIENCE * self.per_run_s)
        _check(result, printed.errors)
        for line in reversed(printed.lines):
            if line.startswith("{"):
                with answer_of(self.nodes[0].name, "what mpi_perf printed"):
                    return rows_of(line, [int(size) for size in sizes.split(",")])
        raise StepError("mpi_perf succeeded but printed no result", hint=f"kit logs {result.plan.run_id}")

    def _launch(self, args: Sequence[str], command: tuple[str, ...], limit: float) -> tuple[RunResult, _Listener]:
        """Run the command on all slots with these arguments of mpirun. Return how it ended, and what it printed."""
        listener = _Listener(self.context.reporter)
        spec = self.context.spec
        changed = replace(
            self.context,
            spec=replace(spec, mpi=replace(spec.mpi, args=tuple(args)), code=None),
            reporter=listener,
        )
        result = self.run(
            changed,
            # Some of what kit tune has written into kit.yaml may not be deployed yet.
            RunRequest(
                command=command,
                hosts=",".join(node.name for node in self.nodes),
                policy=RunPolicy(start_timeout=60.0, timeout=limit),
                as_deployed=True,
                gpus_per_rank=0,
                ignore_busy_gpus=True,
                now=self.now,
            ),
        )
        if result.interrupted:
            raise Interrupted(f"interrupted; run {result.plan.run_id} had already ended")
        return result, listener

    def failed_with_chosen(self, error: KitError, text: str) -> None:
        """Note that a measurement with the chosen arguments failed. They are to blame unless the time was over."""
        self.skipped.append(f"{text}: {error.message}")
        if not isinstance(error, TimeIsUpError):
            self.broken = error.message


def _ended(result: RunResult, limit: float, *, final: bool) -> KitError:
    """Return the error for a run that was ended. `final`: it had less time than a run needs that does not hang."""
    if result.exit_code == STOPPED:
        return NotReadyError(
            f"kit tune ended early, and wrote nothing: its run {result.plan.run_id} was ended ({result.stopped})",
            hint="start again: kit tune",
        )
    if UNSTARTED in result.stopped:
        return StepError(result.stopped, hint=f"see why: kit logs {result.plan.run_id}; then: kit doctor")
    kind = TimeIsUpError if final else StepError
    return kind(f"it did not end within {limit:.0f} s", hint="give it more time: --minutes")


def _check(result: RunResult, errors: Sequence[str]) -> None:
    """Raise the error of a run that failed. `errors` are the lines of its stderr."""
    if result.failure is not None and result.failure.kind == "host":
        raise UnreachableError(
            "the host was lost while kit tune measured, so kit wrote nothing",
            hint=f"see why: kit logs {result.plan.run_id}; then: kit doctor",
            host=result.failure.host,
        )
    if result.exit_code == 127:
        raise NotReadyError("the cluster's image has no mpi_perf", hint="run: kit deploy")
    if result.exit_code != 0:
        cause = next((line for line in errors if line.strip()), f"exit code {result.exit_code}")
        raise StepError(f"mpi_perf failed: {cause}", hint=f"kit logs {result.plan.run_id}")
