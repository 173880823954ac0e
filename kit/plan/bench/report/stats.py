"""From the samples of a session to its summary: medians with their spread, scaling, settings side by side.

What counts: a repeat that passed and was no warm-up. One that was disturbed counts only where fewer than two others of
its case passed. A repeat that was measured again (kit bench --resume) counts once, as it was the last time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kit.model.bench import Case, Sample, Session
from kit.model.benchsummary import CaseSummary, Choice, Group, Measure, Scaling, State, Summary, Verdict
from kit.plan.bench.report.facts import flat, told
from kit.plan.bench.report.figures import Figure, figures, is_simulated, workload_of
from kit.plan.bench.report.findings import recommendations, statements
from kit.plan.bench.report.noise import apart, stat

ENOUGH = 2

# What the settings of a group are ranked by: the first of these that each case has.
_RANKED = ("images_per_s", "efficiency", "rate", "allreduce.busbw", "bandwidth.algbw", "latency.seconds", "step_s")


def summarise(session: Session, samples: Sequence[Sample], *, notes: Sequence[str] = ()) -> Summary:
    """The whole session. `notes` are passed on: what whoever read the samples has to say about them."""
    by_case: dict[str, dict[tuple[bool, int], Sample]] = {}
    for sample in samples:
        by_case.setdefault(sample.case, {})[sample.warmup, sample.repeat] = sample
    cases = [_case(case, list(by_case.get(case.id, {}).values())) for case in session.cases]
    unknown = sorted(by_case.keys() - {case.id for case in session.cases})
    if unknown:
        notes = (*notes, f"samples of cases that the session does not have were left out: {', '.join(unknown)}")
    cases = _scaled(cases)
    groups = tuple(_groups(cases))
    return Summary(
        session=session.id,
        preset=session.preset,
        cluster=session.cluster,
        started=session.started,
        facts=told(session.facts),
        cases=tuple(cases),
        groups=groups,
        statements=statements(cases, groups),
        recommendations=recommendations(cases, groups),
        skipped=dict(session.skipped),
        notes=tuple(notes),
    )


def _case(case: Case, samples: Sequence[Sample]) -> CaseSummary:
    real = sorted((each for each in samples if not each.warmup), key=lambda each: each.repeat)
    passed = [each for each in real if each.failure is None]
    calm = [each for each in passed if each.disturbed is None]
    counted = calm if len(calm) >= ENOUGH else passed
    failed = [each for each in samples if each.failure is not None]
    state: State = "measured" if passed else "failed" if failed else "not run"
    return CaseSummary(
        id=case.id,
        title=case.title,
        rung=case.rung,
        proves=case.proves,
        series=case.series,
        x=case.x,
        np=case.np,
        state=state,
        workload=workload_of(passed[0]) if passed else "none",
        simulated=case.simulated or any(is_simulated(each) for each in passed),
        planned=case.repeats,
        counted=len(counted),
        warmups=sum(each.warmup for each in samples),
        # A warm-up that fails says why nothing else of the case was tried.
        failures=tuple(
            (each.failure or "").strip() or "no reason was given" for each in failed if not each.warmup or not real
        ),
        disturbed=tuple(each.disturbed for each in passed if each.disturbed is not None),
        disturbed_counted=any(each.disturbed is not None for each in counted),
        measures=_measures([figures(each) for each in counted]),
        command=case.command,
        npernode=case.npernode,
        launcher=case.launcher,
        servers=case.servers,
        env=case.env,
        settings=flat(case.settings),
    )


def _measures(repeats: Sequence[Sequence[Figure]]) -> tuple[Measure, ...]:
    """One measure a metric and size, in the order in which they first come."""
    found: dict[tuple[str, int | None], list[Figure]] = {}
    for figure in (each for repeat in repeats for each in repeat):
        found.setdefault((figure.metric, figure.size), []).append(figure)
    return tuple(
        Measure(
            metric=metric,
            unit=same[0].unit,
            better=same[0].better,
            size=size,
            primary=same[0].primary,
            stat=stat([each.value for each in same]),
        )
        for (metric, size), same in found.items()
    )


def _scaled(cases: Sequence[CaseSummary]) -> list[CaseSummary]:
    """Training by number of ranks: each against the one of its series that has fewest."""
    bases: dict[str, CaseSummary] = {}
    for case in filter(_scales, cases):
        if case.series not in bases or case.np < bases[case.series].np:
            bases[case.series] = case
    return [replace(case, scaling=_scaling(case, bases[case.series])) if _scales(case) else case for case in cases]


def _scales(case: CaseSummary) -> bool:
    rate = case.measure("images_per_s")
    return case.workload == "training" and isinstance(case.x, int) and rate is not None and rate.stat.low > 0


def _scaling(case: CaseSummary, base: CaseSummary) -> Scaling:
    own, first = case.measure("images_per_s"), base.measure("images_per_s")
    assert own is not None and first is not None  # noqa: S101, PT018  (_scales)
    ideal = case.np / base.np
    ratios = [value / first.stat.median for value in own.stat.values]
    speedup = stat(ratios)
    if case is not base:
        speedup = replace(speedup, low=own.stat.low / first.stat.high, high=own.stat.high / first.stat.low)
    shares = stat([ratio / ideal for ratio in ratios])
    shares = replace(shares, low=speedup.low / ideal, high=speedup.high / ideal)
    return Scaling(base_np=base.np, ideal=ideal, speedup=speedup, efficiency=shares)


def _groups(cases: Sequence[CaseSummary]) -> Iterable[Group]:
    """Cases of one series whose places are labels."""
    series: dict[tuple[str, str], list[CaseSummary]] = {}
    for case in cases:
        if isinstance(case.x, str) and case.x and case.state == "measured":
            series.setdefault((case.series, case.workload), []).append(case)
    for (name, _), members in series.items():
        if len(members) < 2:
            continue
        ranked = _ranked_by(members, _RANKED)
        if ranked is not None:
            yield _group(name, members, *ranked)
        # Of a network both are asked for.
        slow = _ranked_by(members, ("latency",)) if ranked is not None and ranked[0] == "rate" else None
        if slow is not None:
            yield _group(name, members, *slow)


def _ranked_by(members: Sequence[CaseSummary], metrics: Sequence[str]) -> tuple[str, int | None] | None:
    """The first metric that all members have, with its size; of several sizes the greatest."""
    common = set.intersection(*({(each.metric, each.size) for each in case.measures} for case in members))
    for metric in metrics:
        sizes = [size for name, size in common if name == metric]
        if sizes:
            return metric, max(sizes, key=lambda size: size or 0)
    return None


def _group(series: str, members: Sequence[CaseSummary], metric: str, size: int | None) -> Group:
    measures = [(case, found) for case in members if (found := case.measure(metric, size)) is not None]
    _, base = measures[0]
    choices = tuple(
        Choice(
            label=str(case.x),
            case=case.id,
            np=case.np,
            stat=found.stat,
            times=times(found, base),
            verdict="noise" if index == 0 else verdict(base, found),
        )
        for index, (case, found) in enumerate(measures)
    )
    return Group(
        series=series,
        metric=metric,
        unit=base.unit,
        better=base.better,
        size=size,
        simulated=any(case.simulated for case in members),
        choices=choices,
    )


def times(found: Measure, base: Measure) -> float:
    """How many times as good: 2 for twice the rate, or half the time. 0 where it cannot be said."""
    ratio = (found.stat.median, base.stat.median)
    over, under = ratio if found.better == "higher" else ratio[::-1]
    return over / under if under else 0.0


def verdict(a: Measure, b: Measure) -> Verdict:
    """How b stands to a, if it is beyond the noise."""
    judged = apart(a.stat.values, b.stat.values)
    if judged != "apart":
        return judged
    more = sum(b.stat.values) / b.stat.count > sum(a.stat.values) / a.stat.count
    return "better" if more == (a.better == "higher") else "worse"
