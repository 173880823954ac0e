"""The figures of each case in words, for the terminal's table and the report's: one row a case, or a test of a case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kit.model.bench import RUNGS
from kit.model.benchsummary import CaseSummary, Measure, Summary
from kit.plan.bench.report import words


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What one line of a table says. Empty where there is nothing to say. `first`: of the lines of its case."""

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
    """Each test at the size that speaks for it."""
    tests: dict[str, list[Measure]] = {}
    for each in case.measures:
        if each.size is not None and each.primary:
            tests.setdefault(each.metric, []).append(each)
    if not tests:
        yield Row(case=case, what=case.title, figure="passed")
    elif len(tests) == 1:
        one = best(next(iter(tests.values())))
        yield Row(
            case=case, what=case.title, figure=f"{_figure(one)} at {words.size(one.size or 0)}", spread=_spread(one)
        )
        return
    else:
        yield Row(case=case, what=case.title, figure="")
    for metric, found in tests.items():
        one = best(found)
        what = f"{words.test(metric)}, {words.size(one.size or 0)}"
        yield Row(case=case, what=what, figure=_figure(one), spread=_spread(one), first=False)


def _figure(found: Measure | None, before: str = "") -> str:
    return "" if found is None else before + words.value(found.stat.median, found.unit)


def _spread(found: Measure | None) -> str:
    return "" if found is None else words.half_range(found.stat)


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A rung of the ladder. `state` in words: passed, failed, not run, or passed in part."""

    rung: str
    state: str
    proves: str


def climb(cases: Sequence[CaseSummary]) -> list[Step]:
    """The rungs of a session, from the lowest; [] where there are not several."""
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
    """Each once, with how often where it came again."""
    counts = {each: reasons.count(each) for each in reasons}
    return [f"{text} ({count} times)" if count > 1 else text for text, count in counts.items()]


def best(found: Sequence[Measure]) -> Measure:
    """The size that speaks for a test: the greatest rate, or the time of the smallest message."""
    if found[0].better == "higher":
        return max(found, key=lambda each: each.stat.median)
    return min(found, key=lambda each: each.size or 0)


def marks(case: CaseSummary) -> list[str]:
    """What a reader has to know about a case's figures, in a few words each."""
    told = [words.SIMULATED] if case.simulated else []
    if case.disturbed:
        one = len(case.disturbed) == 1
        counts = "counted" if case.disturbed_counted else "left out"
        told.append(f"disturbed, {counts}" if one else f"{len(case.disturbed)} disturbed, {counts}")
    if case.state == "measured":
        told += [f"{len(case.failures)} failed"] if case.failures else []
        missing = case.planned - case.counted - len(case.failures)
        missing -= 0 if case.disturbed_counted else len(case.disturbed)
        told += [f"{missing} not run"] if missing > 0 else []
    return told


@dataclass(frozen=True, kw_only=True, slots=True)
class SizeTable:
    """Figures by message size, a row a size; a column is a test of a case, or one of the settings side by side."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


def size_tables(summary: Summary) -> list[SizeTable]:
    """Settings side by side share a table; every other case with sizes has its own."""
    cases = {case.id: case for case in summary.cases}
    tables, done = [], set()
    for group in summary.groups:
        if group.size is None:
            continue
        done |= {choice.case for choice in group.choices}
        columns = {
            choice.label: [each for each in cases[choice.case].measures if each.metric == group.metric]
            for choice in group.choices
        }
        tables.append(_table(f"{group.series}: {words.metric(group.metric)}", columns))
    for case in summary.cases:
        sized = [each for each in case.measures if each.size is not None and each.primary]
        if sized and case.id not in done:
            tests: dict[str, list[Measure]] = {}
            for each in sized:
                tests.setdefault(words.metric(each.metric), []).append(each)
            tables.append(_table(case.title, tests))
    return tables


def _table(title: str, columns: Mapping[str, Sequence[Measure]]) -> SizeTable:
    found = {(name, each.size): each for name, measures in columns.items() for each in measures}
    sizes = sorted({size for _, size in found if size is not None})
    rows = tuple((words.size(size), tuple(_figure(found.get((name, size))) for name in columns)) for size in sizes)
    return SizeTable(title=title, columns=tuple(columns), rows=rows)
