"""kit bench: measures the cases of the ladder or of a preset, each sample on the disk before the next one begins."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct, field

from kit.errors import HostsFailed, InputError, Interrupted, NotReadyError
from kit.events import Note, Phase, Warned
from kit.flows.bench import facts
from kit.flows.bench.facts import Survey
from kit.flows.bench.launch import Launched, launch
from kit.flows.context import Context
from kit.flows.run.listing import with_owners
from kit.model import names
from kit.model.bench import META, SAMPLES, Case, Sample, Session
from kit.model.failures import alike
from kit.plan.bench import load
from kit.plan.bench.cases import LADDER, BenchOptions, Planned
from kit.plan.bench.headline import headline, span
from kit.plan.bench.ladder import NEXT
from kit.plan.bench.order import Turn, seconds_left, turns
from kit.plan.bench.presets.plan import check, plan
from kit.plan.bench.record import sample_line, samples_of, session_of, session_text
from kit.remote.bench import session_folder as benchfolder
from kit.remote.bench.load import Watch
from kit.remote.bench.session_folder import BenchFolder


class BenchRequest(Struct, frozen=True, kw_only=True):
    """A request to kit bench. `resume` is a session's id, or its beginning, or '' for the latest.

    `folder` is where the session goes (default: bench/ID beside kit.yaml). `show` passes the programs' lines on.
    `now` takes slots that are reserved for a run in line.
    """

    options: BenchOptions
    resume: str | None = None
    folder: Path | None = None
    force: bool = False
    show: bool = False
    now: bool = False


class BenchPlan(Struct, frozen=True, kw_only=True):
    """What would be measured, and about how long that takes."""

    preset: str
    cases: tuple[Case, ...]
    launches: int
    seconds: float
    skipped: Mapping[str, str] = {}


class BenchResult(Struct, frozen=True, kw_only=True):
    """`failed` are the samples that failed, one a case; in the ladder there is one at most, and it ended the climb."""

    folder: Path
    session: Session
    samples: tuple[Sample, ...]
    failed: tuple[Sample, ...]
    seconds: float


def bench_plan(context: Context, options: BenchOptions) -> BenchPlan:
    """--dry-run: the hosts are looked at, and nothing is started."""
    check(options)
    survey = facts.look(context)
    planned = plan(survey.facts, options)
    left = turns(planned.cases)
    return BenchPlan(
        preset=options.preset, cases=planned.cases, launches=len(left), seconds=seconds_left(left),
        skipped=planned.skipped,
    )  # fmt: skip


def bench(
    context: Context, request: BenchRequest, *, on_sample: Callable[[Sample], None] = lambda _: None
) -> BenchResult:
    """Measure the rest of a resumed session, or all of a new one. `on_sample` is called with every sample.

    Raises Interrupted after Ctrl-C. The samples up to then stay, and --resume continues from them.
    """
    began = time.monotonic()
    path = _folder_to_resume(context, request)
    context.reporter.report(Phase(name="look", hosts=context.inventory.names))
    survey = facts.look(context)
    if survey.living and not request.force:
        raise NotReadyError(
            "other runs are active and would distort the figures: " + ", ".join(with_owners(context, survey.living)),
            hint=f"wait for them (kit wait {survey.living[0]}), or use --force, which marks the samples as disturbed",
        )
    if path is None:
        folder, session, before = _begun(context, request, survey)
    else:
        folder, session, before = _resumed(context, request, survey, path)
    hosts = [context.host(node.name) for node in survey.facts.nodes]
    if context.inventory.head not in hosts:
        hosts.insert(0, context.inventory.head)
    watch = Watch(hosts, context.connect, names.folder(context.spec.name))
    climb = _Session(
        context=context,
        session=session,
        survey=survey,
        folder=folder,
        watch=watch,
        on_sample=on_sample,
        show=request.show,
        now=request.now,
    )
    climb.samples = list(before)
    try:
        climb.go()
    except (KeyboardInterrupt, Interrupted) as error:
        count = len(climb.samples)
        # Name it by its id if it is with the others, else by its folder.
        usual = context.folder / benchfolder.FOLDER / session.id
        name = session.id if folder.path == usual else str(folder.path)
        prefix = f"{error.message}; " if isinstance(error, Interrupted) else ""
        raise Interrupted(
            f"{prefix}the session {session.id} was interrupted; {count} samples are kept in {folder.path}",
            hint=f"to continue: kit bench --resume --session {name}; to see the result: kit bench report {name}",
        ) from None
    finally:
        watch.close()
        folder.close()
    return BenchResult(
        folder=folder.path, session=session, samples=tuple(climb.samples), failed=tuple(climb.failed.values()),
        seconds=time.monotonic() - began,
    )  # fmt: skip


def _begun(context: Context, request: BenchRequest, survey: Survey) -> tuple[BenchFolder, Session, tuple[Sample, ...]]:
    """Plan a new session and write it to disk."""
    options = request.options
    planned: Planned = plan(survey.facts, options)
    if survey.failures and options.preset != LADDER:
        failures = list(survey.failures.values())
        if len(failures) == 1:
            raise failures[0]
        raise HostsFailed(
            f"{len(failures)} hosts cannot be read", failures, hint="find the cause with the ladder: kit bench"
        )
    name = benchfolder.new_session_id(context.folder, options.preset)
    path = request.folder or context.folder / benchfolder.FOLDER / name
    session = Session(
        id=name,
        preset=options.preset,
        cluster=context.spec.name,
        started=benchfolder.now(),
        cases=planned.cases,
        facts=survey.recorded,
        skipped=planned.skipped,
    )
    folder = BenchFolder(path)
    folder.begin(session_text(session))
    for what, why in planned.skipped.items():
        context.reporter.report(Note(text=f"skipped: {what}: {why}"))
    return folder, session, ()


def _folder_to_resume(context: Context, request: BenchRequest) -> Path | None:
    """Return the folder of the session to resume, or None for a new one. Raises InputError for another cluster's."""
    if request.resume is None:
        check(request.options)
        if request.folder is not None:
            benchfolder.check_new(request.folder)
        return None
    path = benchfolder.find(context.folder, request.resume)
    session = session_of(benchfolder.read(path, META), str(path / META), whole=True)
    if session.cluster != context.spec.name:
        raise InputError(
            f"{path} is a session of cluster {session.cluster}, but this cluster is {context.spec.name}",
            hint="resume it in that cluster's folder, or start a new session: kit bench",
        )
    samples_of(benchfolder.read(path, SAMPLES), str(path / SAMPLES))
    return path


def _resumed(
    context: Context, request: BenchRequest, survey: Survey, path: Path
) -> tuple[BenchFolder, Session, tuple[Sample, ...]]:
    """Open an unfinished session. Raises InputError if the cluster has changed since, unless --force."""
    session = session_of(benchfolder.read(path, META), str(path / META))
    differs = facts.changed(session.facts, survey.recorded)
    if differs and not request.force:
        raise InputError(
            f"the cluster has changed since session {session.id} began, so its figures would not be comparable: "
            f"{'; '.join(differs)}",
            hint="start a new session, or use --force",
        )
    for difference in differs:
        context.reporter.report(Warned(text=f"the cluster has changed since the session began: {difference}"))
    folder = BenchFolder(path)
    folder.open()
    return folder, session, samples_of(benchfolder.read(path, SAMPLES), str(path / SAMPLES))


class _Session(Struct, kw_only=True):
    """A session while it is measured."""

    context: Context
    session: Session
    survey: Survey
    folder: BenchFolder
    watch: Watch
    on_sample: Callable[[Sample], None]
    show: bool
    now: bool
    samples: list[Sample] = field(default_factory=list)
    failed: dict[str, Sample] = field(default_factory=dict)

    def go(self) -> None:
        """Measure up to the last turn, or in the ladder up to the first failure."""
        left = list(turns(self.session.cases, self.samples))
        count = len(left)
        before = self.watch.look(load.parse)
        while left:
            turn = left[0]
            self._begin(turn, count - len(left) + 1, count, seconds_left(left, self.samples))
            sample, before = self._measure(turn, before)
            self.folder.append(sample_line(sample))
            self.samples.append(sample)
            self.on_sample(sample)
            self._report(turn, sample)
            left.pop(0)
            if sample.failure is not None:
                self.failed[turn.case.id] = sample
                if self.session.preset == LADDER:
                    return
                # Its other repeats would fail as well, and take time.
                left = [other for other in left if other.case.id != turn.case.id]

    def _begin(self, turn: Turn, number: int, count: int, seconds: float) -> None:
        which = "warm-up" if turn.warmup else f"{turn.repeat} of {turn.case.repeats}"
        name = f"{number}/{count}  {turn.case.title}  ({which}; about {span(seconds)} left)"
        self.context.reporter.report(Phase(name=name))

    def _measure(self, turn: Turn, before: Mapping[str, load.Look]) -> tuple[Sample, Mapping[str, load.Look]]:
        at, began = benchfolder.now(), time.monotonic()
        launched = self._launch(turn.case)
        seconds = time.monotonic() - began
        after = self.watch.look(load.parse)
        sample = Sample(
            case=turn.case.id,
            repeat=turn.repeat,
            at=at,
            seconds=round(seconds, 3),
            warmup=turn.warmup,
            result=launched.result,
            failure=launched.failure,
            used=launched.used,
            disturbed=load.disturbed(before, after, hosts=launched.hosts, own=launched.runs),
        )
        return sample, after

    def _launch(self, case: Case) -> Launched:
        if case.rung == "reach":
            broken = [str(failure) for failure in alike(self.survey.failures.values())]
            if broken:
                return Launched(failure="; ".join(broken))
        if case.command[0] == "tcp_probe":
            from kit.flows.bench import network  # noqa: PLC0415  (one preset needs it)

            return network.measure(self.context, case, network.ends_of(self.survey.recorded))
        return launch(self.context, case, hosts=self.survey.hosts, show=self.show, now=self.now)

    def _report(self, turn: Turn, sample: Sample) -> None:
        report = self.context.reporter.report
        if sample.failure is not None:
            case = turn.case
            if self.session.preset == LADDER:
                text = f"rung {case.rung} failed: {sample.failure}. Once it passes, it proves that {case.proves}"
                report(Warned(text=text, hint=NEXT[case.rung]))
            else:
                report(
                    Warned(text=f"{case.title}: {sample.failure}", hint="the session continues with the other cases")
                )
            return
        what = headline(sample) or "passed"
        report(Note(text=f"  {what}  in {sample.seconds:.1f} s" + (", a warm-up" if turn.warmup else "")))
        # The time of these two rungs is not a result.
        if sample.disturbed is not None and turn.case.rung not in ("reach", "hello"):
            report(Warned(text=f"marked this sample as disturbed: {sample.disturbed}"))
