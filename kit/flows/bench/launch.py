"""One repeat of a benchmark's case: a run like any other, of which the last JSON object on rank 0 is kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from kit.config.validate import spec_from, values_of
from kit.errors import Interrupted, KitError
from kit.events import Event, Note, OutputLine, Reporter, Warned
from kit.flows.context import Context
from kit.flows.run.run import run
from kit.model.bench import Case
from kit.model.launch import RunPolicy, RunRequest
from kit.model.result import RunResult
from kit.model.spec import ClusterSpec
from kit.model.values import replace
from kit.plan.bench.record import last_object
from kit.plan.bench.report.used import kept as used_of
from kit.plan.run import allreduce, diagnose
from kit.plan.run.logevents import FIRST_RANK

# An object may be preceded by many lines, and followed by few; a table of mpi_perf is one line.
LINES = 200
WHY_LINES = 3


class Launched(Struct, frozen=True, kw_only=True):
    """What a launch gave. `runs` are the ids of the runs that it was, `hosts` those with ranks.

    `used` is what the run used of its hosts (kit.plan.bench.report.used), or None without a run.
    """

    result: Mapping[str, Any] = field(default_factory=dict)
    failure: str | None = None
    runs: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    used: Mapping[str, Any] | None = None


class Kept:
    """A reporter that keeps rank 0's lines; with `show` they are also passed on, to standard error."""

    def __init__(self, inner: Reporter, *, show: bool) -> None:
        self._inner, self._show = inner, show
        self.lines: deque[str] = deque(maxlen=LINES)
        self.errors: deque[str] = deque(maxlen=LINES)

    def report(self, event: Event) -> None:
        match event:
            case OutputLine():
                if event.source in FIRST_RANK:
                    (self.lines if event.stream == "stdout" else self.errors).append(event.text)
                if self._show:
                    self._inner.report(replace(event, stream="stderr"))
            case Warned() | Note():
                self._inner.report(event)
            case _:
                return


def launch(
    context: Context, case: Case, *, hosts: str | None = None, show: bool = False, now: bool = False
) -> Launched:
    """Run the case's command once, with `now` also on slots that are reserved for a run in line. `hosts` is as -H.

    Whatever goes wrong with it is in `failure`; Interrupted is raised."""
    kept = Kept(context.reporter, show=show)
    # The benchmarks are in the image.
    own = replace(context, reporter=kept, spec=replace(spec_of(context.spec, case), code=None))
    try:
        outcome = run(own, replace(_request(case), hosts=hosts, now=now))
    except Interrupted:
        raise
    except KitError as error:
        return Launched(failure=f"{error}" + (f" ({error.hint})" if error.hint else ""))
    if outcome.interrupted:
        raise Interrupted(f"run {outcome.plan.run_id} had ended by itself")
    used_hosts = tuple(node.name for node in outcome.plan.placement.nodes)
    result = last_object(list(kept.lines))
    failure = _failure(outcome, kept) or _wrong(case, result)
    used = used_of(outcome.record.metrics if outcome.record else None)
    return Launched(result=result, failure=failure, runs=(outcome.plan.run_id,), hosts=used_hosts, used=used)


def _request(case: Case) -> RunRequest:
    return RunRequest(
        np=case.np,
        npernode=case.npernode,
        # Without a number, the benchmarks choose among the GPUs of the run's slots by themselves.
        gpus_per_rank=case.gpus_per_rank,
        env=case.env,
        tag_output=True,
        launcher=case.launcher,
        servers=case.servers or None,
        policy=RunPolicy(operator="stop", timeout=case.timeout_s),
        command=case.command,
    )


def spec_of(spec: ClusterSpec, case: Case) -> ClusterSpec:
    """kit.yaml as the case has it."""
    changed = with_settings(spec, case.settings)
    if not case.own_algorithm:
        return changed
    return replace(changed, mpi=replace(changed.mpi, args=allreduce.without_choice(changed.mpi.args)))


def with_settings(spec: ClusterSpec, settings: Mapping[str, Any]) -> ClusterSpec:
    """kit.yaml with some places (`mpi.args`) changed for a case; validated as the file is."""
    if not settings:
        return spec
    data = values_of(spec)
    for place, value in settings.items():
        *sections, last = place.split(".")
        inner = data
        for section in sections:
            inner = inner[section]
        inner[last] = value
    # No case changes them, and only kit.yaml has their sources as written.
    return replace(spec_from(data, source="kit bench"), data=spec.data)


def _failure(result: RunResult, kept: Kept) -> str | None:
    """Why the run did not end well, in one line: what kit run would tell, and the cause where it is known."""
    if result.stopped:
        return f"ended: {result.stopped}"
    if result.failure is not None:
        cause = diagnose.cause(result.failure, result.plan.run_id)
        lines = [line for line in (*result.failure.lines, *result.failure.mpirun) if line.strip()][-WHY_LINES:]
        why = f"{cause.text} → {cause.hint}" if cause else " / ".join(line.strip() for line in lines)
        return f"{diagnose.headline(result.failure)}" + (f": {why}" if why else "")
    if result.exit_code:
        lines = [line.strip() for line in kept.errors if line.strip()][-WHY_LINES:]
        return f"exit code {result.exit_code}" + (f": {' / '.join(lines)}" if lines else "")
    return None


def _wrong(case: Case, result: Mapping[str, Any]) -> str | None:
    """Return why the printed result does not fit the case, or None."""
    if case.rung == "reach":
        return None
    if not result:
        return f"{case.command[0]} ended well and printed no result: no JSON object on its standard output"
    ranks = result.get("ranks", case.np)
    if ranks != case.np:
        return f"{ranks} ranks took part, and not {case.np}"
    if result.get("right") is False:
        return "the ranks' all-reduce gave a wrong sum"
    return None
