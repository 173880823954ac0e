"""Rows of figures for the terminal's table and the report: one row for each case, or for each test of a case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from kit.model.bench import RUNGS
from kit.model.benchsummary import CaseSummary, Measure, Summary
from kit.plan.bench.report import words


class Row(Struct, frozen=True, kw_only=True):
    """One line of a table; empty texts are empty cells. `first` marks the first line of a case."""

    case: CaseSummary
    what: str
    figure: str
    spread: str = ""
    speedup: str = ""
    efficiency: str = ""
    first: bool = True


def rows(cases: Sequence[CaseSummary]) -> list[Row]:
    return [row for case in cases for row in _rows(case)]


def _rows(case: CaseSummary) -> Iterator[Row]:
    if case.state != "measured":
        yield Row(case=case, what=case.title, figure=case.state)
    elif case.workload == "training":
        yield _training(case)
    elif case.workload == "perf":
        yield from _perf(case)
    elif case.workload == "paced":
        share, step = case.measure("efficiency"), case.measure("step_s")
        yield Row(
            case=case,
            what=case.title,
            figure=_figure(step, "step of ") if step else _figure(case.measure("images_per_s")),
            spread=_spread(step),
            efficiency=_figure(share),
        )
    elif case.workload == "network":
        rate, latency = case.measure("rate"), case.measure("latency")
        both = ", ".join(filter(None, (_figure(rate), _figure(latency))))
        yield Row(case=case, what=case.title, figure=both or "passed", spread=_spread(rate or latency))
    else:
        yield Row(case=case, what=case.title, figure="passed")


def _training(case: CaseSummary) -> Row:
    rate = case.measure("images_per_s")
    return Row(
        case=case,
        what=case.title,
        figure=_figure(rate) or "passed",
        spread=_spread(rate),
        speedup=f"{case.scaling.speedup.median:.2f}" if case.scaling else "",
        efficiency=words.percent(case.scaling.efficiency.median) if case.scaling else "",
    )


def _perf(case: CaseSummary) -> Iterator[Row]:
    """Yield each test at its most representative size."""
    tests: dict[str, list[Measure]] = {}
    for measure in case.measures:
        if measure.size is not None and measure.primary:
            tests.setdefault(measure.metric, []).append(measure)
    if not tests:
        yield Row(case=case, what=case.title, figure="passed")
    elif len(tests) == 1:
        shown = best(next(iter(tests.values())))
        yield Row(
            case=case,
            what=case.title,
            figure=f"{_figure(shown)} at {words.size(shown.size or 0)}",
            spread=_spread(shown),
        )
        return
    else:
        yield Row(case=case, what=case.title, figure="")
    for metric, measures in tests.items():
        shown = best(measures)
        what = f"{words.test(metric)}, {words.size(shown.size or 0)}"
        yield Row(case=case, what=what, figure=_figure(shown), spread=_spread(shown), first=False)


def _figure(measure: Measure | None, before: str = "") -> str:
    return "" if measure is None else before + words.value(measure.stat.median, measure.unit)


def _spread(measure: Measure | None) -> str:
    return "" if measure is None else words.half_range(measure.stat)


class Step(Struct, frozen=True, kw_only=True):
    """A rung of the ladder. `state` is text: passed, failed, not run, or partly passed."""

    rung: str
    state: str
    proves: str


def climb(cases: Sequence[CaseSummary]) -> list[Step]:
    """Return the rungs of a session from the lowest, or [] if there are not several."""
    rungs = [rung for rung in RUNGS if any(case.rung == rung for case in cases)]
    steps = []
    for rung in rungs:
        on_it = [case for case in cases if case.rung == rung]
        states = {case.state for case in on_it}
        passed = sum(case.state == "measured" for case in on_it)
        if "failed" in states:
            state = "failed"
        elif "not run" in states:
            state = f"{passed} of {len(on_it)} passed, the others not run" if passed else "not run"
        else:
            state = "passed"
        steps.append(Step(rung=rung, state=state, proves=on_it[0].proves))
    return steps if len(rungs) > 1 else []


def folded(reasons: Sequence[str]) -> list[str]:
    """Return each reason once, with a count if it occurred more than once."""
    counts = {reason: reasons.count(reason) for reason in reasons}
    return [f"{text} ({count} times)" if count > 1 else text for text, count in counts.items()]


def best(measures: Sequence[Measure]) -> Measure:
    """Return the representative measure of a test: the highest rate, or the time of the smallest message."""
    if measures[0].better == "higher":
        return max(measures, key=lambda measure: measure.stat.median)
    return min(measures, key=lambda measure: measure.size or 0)


def marks(case: CaseSummary) -> list[str]:
    """Return short remarks about a case's figures that a reader must know."""
    labels = [words.SIMULATED] if case.simulated else []
    if case.disturbed:
        one = len(case.disturbed) == 1
        counts = "counted" if case.disturbed_counted else "left out"
        labels.append(f"disturbed, {counts}" if one else f"{len(case.disturbed)} disturbed, {counts}")
    if case.state == "measured":
        labels += [f"{len(case.failures)} failed"] if case.failures else []
        labels += [f"{missing} not run"] if (missing := not_run(case)) else []
    return labels


def not_run(case: CaseSummary) -> int:
    """Return how many repeats of a case were not tried. A case that failed counts none."""
    if case.state == "failed":
        return 0
    left_out = 0 if case.disturbed_counted else len(case.disturbed)
    return max(case.planned - case.counted - len(case.failures) - left_out, 0)


class SizeTable(Struct, frozen=True, kw_only=True):
    """Figures by message size, one row for each size. A column is a test of a case, or a setting."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


def size_tables(summary: Summary) -> list[SizeTable]:
    """Return one table for each group of settings, and one for every other case with sizes."""
    cases = {case.id: case for case in summary.cases}
    tables, done = [], set()
    for group in summary.groups:
        if group.size is None:
            continue
        done |= {choice.case for choice in group.choices}
        columns = {
            choice.label: [measure for measure in cases[choice.case].measures if measure.metric == group.metric]
            for choice in group.choices
        }
        tables.append(_table(f"{group.series}: {words.metric(group.metric)}", columns))
    for case in summary.cases:
        sized = [measure for measure in case.measures if measure.size is not None and measure.primary]
        if sized and case.id not in done:
            tests: dict[str, list[Measure]] = {}
            for measure in sized:
                tests.setdefault(words.metric(measure.metric), []).append(measure)
            tables.append(_table(case.title, tests))
    return tables


def _table(title: str, columns: Mapping[str, Sequence[Measure]]) -> SizeTable:
    cells = {(name, measure.size): measure for name, measures in columns.items() for measure in measures}
    sizes = sorted({size for _, size in cells if size is not None})
    rows = tuple((words.size(size), tuple(_figure(cells.get((name, size))) for name in columns)) for size in sizes)
    return SizeTable(title=title, columns=tuple(columns), rows=rows)
