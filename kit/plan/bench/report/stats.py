"""Summarizes the samples of a session: medians with their spread, scaling, settings side by side.

A repeat counts if it passed and is not a warm-up. A disturbed one counts only if fewer than two others of its case
passed. A repeat that was measured again (kit bench --resume) counts once, with its last result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kit.model.bench import Case, Sample, Session
from kit.model.benchsummary import CaseSummary, Choice, Group, Measure, Scaling, State, Summary, Verdict
from kit.model.values import replace
from kit.plan.bench.report.facts import flat, readable
from kit.plan.bench.report.figures import Figure, figures, is_simulated, workload_of
from kit.plan.bench.report.findings import recommendations, statements
from kit.plan.bench.report.noise import judge, spreads, stat
from kit.plan.bench.report.used import used_by

ENOUGH = 2

# The settings of a group are ranked by the first of these metrics that every case has.
_RANKED = ("images_per_s", "efficiency", "rate", "allreduce.busbw", "bandwidth.algbw", "latency.seconds", "step_s")


def summarise(session: Session, samples: Sequence[Sample], *, notes: Sequence[str] = ()) -> Summary:
    """Summarize the session. `notes` are remarks of the reader of the samples, and are passed on."""
    by_case: dict[str, dict[tuple[bool, int], Sample]] = {}
    for sample in samples:
        by_case.setdefault(sample.case, {})[sample.warmup, sample.repeat] = sample
    cases = [_case(case, list(by_case.get(case.id, {}).values())) for case in session.cases]
    unknown = sorted(by_case.keys() - {case.id for case in session.cases})
    if unknown:
        notes = (*notes, f"ignored samples of cases that are not in the session: {', '.join(unknown)}")
    cases = pooled(_scaled(cases))
    groups = tuple(_groups(cases))
    return Summary(
        session=session.id,
        preset=session.preset,
        cluster=session.cluster,
        started=session.started,
        facts=readable(session.facts),
        cases=tuple(cases),
        groups=groups,
        statements=statements(cases, groups),
        recommendations=recommendations(cases, groups),
        skipped=dict(session.skipped),
        notes=tuple(notes),
    )


def _case(case: Case, samples: Sequence[Sample]) -> CaseSummary:
    real = sorted((sample for sample in samples if not sample.warmup), key=lambda sample: sample.repeat)
    passed = [sample for sample in real if sample.failure is None]
    calm = [sample for sample in passed if sample.disturbed is None]
    counted = calm if len(calm) >= ENOUGH else passed
    failed = [sample for sample in samples if sample.failure is not None]
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
        simulated=case.simulated or any(is_simulated(sample) for sample in passed),
        planned=case.repeats,
        counted=len(counted),
        warmups=sum(sample.warmup for sample in samples),
        # If a warm-up fails, kit tries no repeat, and its failure is the reason.
        failures=tuple(
            (sample.failure or "").strip() or "no reason was given"
            for sample in failed
            if not sample.warmup or not real
        ),
        disturbed=tuple(sample.disturbed for sample in passed if sample.disturbed is not None),
        disturbed_counted=any(sample.disturbed is not None for sample in counted),
        measures=_measures([figures(sample) for sample in counted]),
        used=used_by(counted),
        command=case.command,
        npernode=case.npernode,
        gpus_per_rank=case.gpus_per_rank,
        launcher=case.launcher,
        servers=case.servers,
        env=case.env,
        settings=flat(case.settings),
        own_algorithm=case.own_algorithm,
    )


def _measures(repeats: Sequence[Sequence[Figure]]) -> tuple[Measure, ...]:
    """Return one measure for each metric and size, in order of first appearance."""
    by_metric: dict[tuple[str, int | None], list[Figure]] = {}
    for figure in (figure for repeat in repeats for figure in repeat):
        by_metric.setdefault((figure.metric, figure.size), []).append(figure)
    return tuple(
        Measure(
            metric=metric,
            unit=same[0].unit,
            better=same[0].better,
            size=size,
            primary=same[0].primary,
            stat=stat([value.value for value in same]),
        )
        for (metric, size), same in by_metric.items()
    )


def pooled(cases: Sequence[CaseSummary]) -> list[CaseSummary]:
    """Give each measure its spread. The cases of one metric and size share theirs, if they vary alike."""
    values: dict[tuple[str, int | None], dict[int, tuple[float, ...]]] = {}
    for number, case in enumerate(cases):
        for measure in case.measures:
            values.setdefault((measure.metric, measure.size), {})[number] = measure.stat.values
    by_metric = {metric: spreads(of_case) for metric, of_case in values.items()}

    def with_spread(measure: Measure, number: int) -> Measure:
        return replace(measure, spread=by_metric[measure.metric, measure.size].get(number))

    return [
        replace(case, measures=tuple(with_spread(measure, number) for measure in case.measures))
        for number, case in enumerate(cases)
    ]


def _scaled(cases: Sequence[CaseSummary]) -> list[CaseSummary]:
    """Add scaling to training cases: each is compared with the case of its series that has the fewest ranks."""
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
    """Group the cases of one series that have labels instead of numbers on their axis."""
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
        # For a network, both rate and latency matter.
        slow = _ranked_by(members, ("latency",)) if ranked is not None and ranked[0] == "rate" else None
        if slow is not None:
            yield _group(name, members, *slow)


def _ranked_by(members: Sequence[CaseSummary], metrics: Sequence[str]) -> tuple[str, int | None] | None:
    """Return the first metric that all members have, with its largest size."""
    common = set.intersection(*({(measure.metric, measure.size) for measure in case.measures} for case in members))
    for metric in metrics:
        sizes = [size for name, size in common if name == metric]
        if sizes:
            return metric, max(sizes, key=lambda size: size or 0)
    return None


def _group(series: str, members: Sequence[CaseSummary], metric: str, size: int | None) -> Group:
    measures = [(case, measure) for case in members if (measure := case.measure(metric, size)) is not None]
    _, base = measures[0]
    choices = []
    for case, measure in measures:
        decision: tuple[Verdict, int | None] = ("noise", None) if measure is base else verdict(base, measure)
        choices.append(
            Choice(
                label=str(case.x),
                case=case.id,
                np=case.np,
                stat=measure.stat,
                times=times(measure, base),
                verdict=decision[0],
                repeats=decision[1],
                spread=measure.spread,
            )
        )
    return Group(
        series=series,
        metric=metric,
        unit=base.unit,
        better=base.better,
        size=size,
        simulated=any(case.simulated for case in members),
        choices=tuple(choices),
    )


def times(measure: Measure, base: Measure) -> float:
    """Return how many times as good: 2 for twice the rate or half the time, 0 if unknown."""
    ratio = (measure.stat.median, base.stat.median)
    over, under = ratio if measure.better == "higher" else ratio[::-1]
    return over / under if under else 0.0


def verdict(a: Measure, b: Measure) -> tuple[Verdict, int | None]:
    """Compare b with a: better or worse if the difference exceeds the noise.

    If the verdict is unknown, the number says how many repeats of each would decide. None if kit cannot say.
    """
    judged = judge(a.stat.values, b.stat.values, a.spread, b.spread)
    if judged.verdict != "apart":
        return judged.verdict, judged.repeats
    more = sum(b.stat.values) / b.stat.count > sum(a.stat.values) / a.stat.count
    return ("better" if more == (a.better == "higher") else "worse"), None
