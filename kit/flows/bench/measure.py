"""kit bench: measures the cases of the ladder or of a preset, each sample on the disk before the next one begins."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kit.errors import HostsFailed, InputError, Interrupted, NotReadyError
from kit.events import Note, Phase, Warned
from kit.flows.bench import facts
from kit.flows.bench.facts import Found
from kit.flows.bench.launch import Launched, launch
from kit.flows.context import Context
from kit.model import names
from kit.model.bench import META, SAMPLES, Case, Sample, Session
from kit.plan.bench import load
from kit.plan.bench.cases import LADDER, Asked, Planned
from kit.plan.bench.ladder import NEXT
from kit.plan.bench.order import Turn, seconds_left, turns
from kit.plan.bench.presets import check, plan
from kit.plan.bench.record import sample_line, samples_of, session_of, session_text
from kit.plan.bench.told import headline, span
from kit.remote.bench import session_folder as benchfolder
from kit.remote.bench.load import Watch
from kit.remote.bench.session_folder import BenchFolder


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchRequest:
    """What kit bench was asked for. `resume` is a session's id, or its beginning, or '' for the latest.

    `folder` is where the session goes (default: bench/ID beside kit.yaml). `show` passes the programs' lines on.
    """

    asked: Asked
    resume: str | None = None
    folder: Path | None = None
    force: bool = False
    show: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchPlan:
    """What would be measured, and about how long that takes."""

    preset: str
    cases: tuple[Case, ...]
    launches: int
    seconds: float
    skipped: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchResult:
    """`failed` are the samples that failed, one a case; in the ladder there is one at most, and it ended the climb."""

    folder: Path
    session: Session
    samples: tuple[Sample, ...]
    failed: tuple[Sample, ...]
    seconds: float


def bench_plan(context: Context, asked: Asked) -> BenchPlan:
    """--dry-run: the hosts are looked at, and nothing is started."""
    check(asked)
    found = facts.look(context)
    planned = plan(found.facts, asked)
    left = turns(planned.cases)
    return BenchPlan(
        preset=asked.preset, cases=planned.cases, launches=len(left), seconds=seconds_left(left),
        skipped=planned.skipped,
    )  # fmt: skip


def bench(context: Context, request: BenchRequest, *, each: Callable[[Sample], None] = lambda _: None) -> BenchResult:
    """Measure what is left of a session that is resumed, or all of a new one. `each` is told every sample as it comes.

    Raises Interrupted after Ctrl-C; what was measured until then stays, and can be gone on with.
    """
    began = time.monotonic()
    path = _asked_for(context, request)
    context.reporter.report(Phase(name="look", hosts=context.inventory.names))
    found = facts.look(context)
    if found.living and not request.force:
        raise NotReadyError(
            f"other runs are on the cluster, and figures beside them would be of neither: {', '.join(found.living)}",
            hint=f"wait for their end (kit wait {found.living[0]}), or insist with --force: samples are marked then",
        )
    if path is None:
        folder, session, before = _begun(context, request, found)
    else:
        folder, session, before = _resumed(context, request, found, path)
    hosts = [context.host(node.name) for node in found.facts.nodes]
    if context.inventory.head not in hosts:
        hosts.insert(0, context.inventory.head)
    watch = Watch(hosts, context.connect, names.folder(context.spec.name))
    climb = _Session(
        context=context, session=session, found=found, folder=folder, watch=watch, each=each, show=request.show
    )
    climb.samples = list(before)
    try:
        climb.go()
    except (KeyboardInterrupt, Interrupted) as error:
        count = len(climb.samples)
        # By its id where it lies with the others, else by its folder.
        name = session.id if folder.path.parent == context.folder / benchfolder.FOLDER else str(folder.path)
        told = f"{error.message}; " if isinstance(error, Interrupted) else ""
        raise Interrupted(
            f"{told}the session {session.id} was interrupted; {count} samples are kept in {folder.path}",
            hint=f"kit bench --resume --session {name} goes on; kit bench report {name} shows what there is",
        ) from None
    finally:
        watch.close()
        folder.close()
    return BenchResult(
        folder=folder.path, session=session, samples=tuple(climb.samples), failed=tuple(climb.failed.values()),
        seconds=time.monotonic() - began,
    )  # fmt: skip


def _begun(context: Context, request: BenchRequest, found: Found) -> tuple[BenchFolder, Session, tuple[Sample, ...]]:
    """A new session, planned and on the disk."""
    asked = request.asked
    planned: Planned = plan(found.facts, asked)
    if found.failures and asked.preset != LADDER:
        failures = list(found.failures.values())
        if len(failures) == 1:
            raise failures[0]
        raise HostsFailed(f"{len(failures)} hosts cannot be looked at", failures, hint="kit bench climbs the ladder")
    name = benchfolder.new_session_id(context.folder, asked.preset)
    path = request.folder or context.folder / benchfolder.FOLDER / name
    session = Session(
        id=name,
        preset=asked.preset,
        cluster=context.spec.name,
        started=benchfolder.now(),
        cases=planned.cases,
        facts=found.told,
        skipped=planned.skipped,
    )
    folder = BenchFolder(path)
    folder.begin(session_text(session))
    for what, why in planned.skipped.items():
        context.reporter.report(Note(text=f"left out: {what}: {why}"))
    return folder, session, ()


def _asked_for(context: Context, request: BenchRequest) -> Path | None:
    """The folder of the session to go on with; None for a new one. Raises InputError where it is not this cluster's."""
    if request.resume is None:
        check(request.asked)
        if request.folder is not None:
            benchfolder.check_new(request.folder)
        return None
    path = benchfolder.find(context.folder, request.resume)
    session = session_of(benchfolder.read(path, META), str(path / META))
    if session.cluster != context.spec.name:
        raise InputError(
            f"{path} is a session of the cluster {session.cluster}, and this one is {context.spec.name}",
            hint="go on in that cluster's folder, or begin anew: kit bench",
        )
    samples_of(benchfolder.read(path, SAMPLES), str(path / SAMPLES))
    return path


def _resumed(
    context: Context, request: BenchRequest, found: Found, path: Path
) -> tuple[BenchFolder, Session, tuple[Sample, ...]]:
    """A session as it was left. Raises InputError where the cluster has changed since, unless --force."""
    session = session_of(benchfolder.read(path, META), str(path / META))
    differs = facts.changed(session.facts, found.told)
    if differs and not request.force:
        raise InputError(
            f"the cluster has changed since the session {session.id} began, and its figures would be of two: "
            f"{'; '.join(differs)}",
            hint="begin a new session, or insist with --force",
        )
    for difference in differs:
        context.reporter.report(Warned(text=f"the cluster has changed since the session began: {difference}"))
    folder = BenchFolder(path)
    folder.open()
    return folder, session, samples_of(benchfolder.read(path, SAMPLES), str(path / SAMPLES))


@dataclass(kw_only=True)
class _Session:
    """A session while it is measured."""

    context: Context
    session: Session
    found: Found
    folder: BenchFolder
    watch: Watch
    each: Callable[[Sample], None]
    show: bool
    samples: list[Sample] = field(default_factory=list)
    failed: dict[str, Sample] = field(default_factory=dict)

    def go(self) -> None:
        """To the last turn, or in the ladder to the first that fails."""
        left = list(turns(self.session.cases, self.samples))
        count = len(left)
        before = self.watch.look(load.parse)
        while left:
            turn = left[0]
            self._begin(turn, count - len(left) + 1, count, seconds_left(left, self.samples))
            sample, before = self._measure(turn, before)
            self.folder.append(sample_line(sample))
            self.samples.append(sample)
            self.each(sample)
            self._told(turn, sample)
            left.pop(0)
            if sample.failure is not None:
                self.failed[turn.case.id] = sample
                if self.session.preset == LADDER:
                    return
                # It would fail again, and take its time each time.
                left = [each for each in left if each.case.id != turn.case.id]

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
            disturbed=load.disturbed(before, after, hosts=launched.hosts, own=launched.runs),
        )
        return sample, after

    def _launch(self, case: Case) -> Launched:
        if case.rung == "reach":
            broken = [str(error) for error in self.found.failures.values()]
            if broken:
                return Launched(failure="; ".join(broken))
        if case.command[0] == "tcp_probe":
            from kit.flows.bench import network  # noqa: PLC0415  (one preset needs it)

            return network.measure(self.context, case, network.ends_of(self.found.told))
        return launch(self.context, case, show=self.show)

    def _told(self, turn: Turn, sample: Sample) -> None:
        report = self.context.reporter.report
        if sample.failure is not None:
            case = turn.case
            if self.session.preset == LADDER:
                text = f"the rung {case.rung} failed: {sample.failure}. It would prove that {case.proves}"
                report(Warned(text=text, hint=NEXT[case.rung]))
            else:
                report(Warned(text=f"{case.title}: {sample.failure}", hint="the session goes on with other cases"))
            return
        what = headline(sample) or "passed"
        report(Note(text=f"  {what}  in {sample.seconds:.1f} s" + (", a warm-up" if turn.warmup else "")))
        # Nobody compares how long it took to say hello.
        if sample.disturbed is not None and turn.case.rung not in ("reach", "hello"):
            report(Warned(text=f"this sample is marked as disturbed: {sample.disturbed}"))
