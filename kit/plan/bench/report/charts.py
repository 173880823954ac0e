"""Which charts a summary is worth, as data: speed-up against ideal, efficiency, bandwidth by size, settings as bars."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from kit.model.benchchart import Bar, Chart, Line, Point, Tick
from kit.model.benchsummary import CaseSummary, Group, Stat, Summary, Unit
from kit.model.values import replace
from kit.plan.bench.report import words

# More than an eye can tell apart is in the tables.
MOST_LINES = 6
# Ticks of a scale of quarters.
MOST_TICKS = 60
MOST_BARS = 12

Scaled = tuple[str, list[tuple[CaseSummary, Stat]]]


def charts(summary: Summary) -> tuple[Chart, ...]:
    return (*_training(summary.cases), *_paced(summary.cases), *_groups(summary), *_collectives(summary.cases))


def side_by_side(one: tuple[str, Summary], other: tuple[str, Summary]) -> tuple[Chart, ...]:
    """Two sessions, each with its name, in the same charts: what scales over ranks, and collectives over sizes."""
    cases = [replace(case, series=f"{name}: {case.series}") for name, summary in (one, other) for case in summary.cases]
    return (*_training(cases), *_paced(cases), *_collectives_of(one, other))


def _collectives_of(*named: tuple[str, Summary]) -> Iterator[Chart]:
    """A chart for each operation and number of ranks that both have measured."""
    by_metric: dict[tuple[str, int], list[tuple[str, list[tuple[int, Stat]]]]] = {}
    simulated = False
    for name, summary in named:
        for case in (case for case in summary.cases if case.rung == "collectives"):
            simulated |= case.simulated
            for metric in dict.fromkeys(
                measure.metric for measure in case.measures if measure.unit == "B/s" and measure.primary
            ):
                by_metric.setdefault((metric, case.np), []).append((name, _sizes(case, metric)))
    for number, ((metric, np), lines) in enumerate(by_metric.items()):
        if len(lines) == len(named):
            title = f"{_title(words.test(metric))} by message size, {words.ranks(np)}"
            yield from _by_size(f"bandwidth-{number + 1}", title, "B/s", lines, simulated=simulated)


def _training(cases: Sequence[CaseSummary]) -> Iterator[Chart]:
    speedups = _by_series(cases, lambda case: case.scaling.speedup if case.scaling else None)
    if speedups:
        yield _speedup(speedups)
        shares = _by_series(cases, lambda case: case.scaling.efficiency if case.scaling else None)
        yield _efficiency("efficiency", "Efficiency", shares)


def _paced(cases: Sequence[CaseSummary]) -> Iterator[Chart]:
    def share(case: CaseSummary) -> Stat | None:
        measure = case.measure("efficiency") if case.workload == "paced" and isinstance(case.x, int) else None
        return measure.stat if measure else None

    shares = _by_series(cases, share)
    if shares:
        yield _efficiency("paced", "Efficiency of paced compute", shares)


def _by_series(cases: Sequence[CaseSummary], pick: Callable[[CaseSummary], Stat | None]) -> list[Scaled]:
    """Series with two numbers of ranks at least, each in the order of the ranks."""
    by_name: dict[str, list[tuple[CaseSummary, Stat]]] = {}
    for case in sorted(cases, key=lambda case: case.np):
        stat = pick(case)
        if stat is not None:
            by_name.setdefault(case.series, []).append((case, stat))
    return [(name, members) for name, members in by_name.items() if len(members) > 1]


def _speedup(series: Sequence[Scaled]) -> Chart:
    members = [case for _, points in series[:MOST_LINES] for case, _ in points]
    base = min(case.np for case in members)
    shown = [(name, [(case, _over(case, stat, base)) for case, stat in points]) for name, points in series[:MOST_LINES]]
    last = max(case.np for case in members)
    ideal = Line(
        label="ideal",
        ideal=True,
        points=tuple(Point(x=x, y=x / base, low=x / base, high=x / base) for x in (base, last)),
    )
    top = max([last / base, *(stat.high for _, points in shown for _, stat in points)])
    ticks = _ticks(top, lambda at: f"{at:g}×")
    unit = "one rank" if base == 1 else words.ranks(base)
    mixed = any(case.scaling is not None and case.scaling.base_np != base for case in members)
    notes = ["A series that begins at more ranks begins on the ideal line."] if mixed else []
    return Chart(
        id="speedup",
        kind="lines",
        title="Speed-up",
        x_title="ranks",
        y_title=f"times the images/s of {unit}",
        lines=(ideal, *_lines(shown, lambda stat: f"{stat.median:.2f}×")),
        x_ticks=tuple(Tick(at=x, text=str(x)) for x in sorted({case.np for case in members})),
        y_ticks=ticks,
        top=max(ticks[-1].at, top * 1.02),
        simulated=any(case.simulated for case in members),
        alt=f"Speed-up by number of ranks, the ideal dashed. {_in_words(shown, lambda s: f'{s.median:.2f}')}",
        note=" ".join([*notes, _left_out(len(series) - len(shown), "series")]).strip(),
    )


def _over(case: CaseSummary, speedup: Stat, base: int) -> Stat:
    """Return the speed-up over `base` ranks, as if those of the case's own base had been ideal.

    All series of a chart share one ideal line, and each is relative to its own fewest ranks.
    """
    factor = case.scaling.base_np / base if case.scaling is not None else 1.0
    low, high, mad = speedup.low * factor, speedup.high * factor, speedup.mad * factor
    values = tuple(value * factor for value in speedup.values)
    return replace(speedup, median=speedup.median * factor, low=low, high=high, mad=mad, values=values)


def _efficiency(name: str, title: str, series: Sequence[Scaled]) -> Chart:
    shown = series[:MOST_LINES]
    members = [case for _, quarter in shown for case, _ in quarter]
    counts = sorted({case.np for case in members})
    ideal = Line(
        label="ideal", ideal=True, points=tuple(Point(x=x, y=1, low=1, high=1) for x in (counts[0], counts[-1]))
    )
    top = max([1.0, *(stat.high for _, quarter in shown for _, stat in quarter)])
    return Chart(
        id=name,
        kind="lines",
        title=title,
        x_title="ranks",
        y_title="share of the ideal",
        lines=(ideal, *_lines(shown, lambda stat: words.percent(stat.median))),
        x_ticks=tuple(Tick(at=x, text=str(x)) for x in counts),
        y_ticks=tuple(Tick(at=quarter / 4, text=f"{quarter * 25} %") for quarter in _quarters(top)),
        log_x=True,
        top=top * 1.08,
        simulated=any(case.simulated for case in members),
        alt=f"{title} by number of ranks. {_in_words(shown, lambda s: words.percent(s.median))}",
        note=_left_out(len(series) - len(shown), "series"),
    )


def _quarters(top: float) -> range:
    """Return the quarters up to `top` that get a tick: each one, unless a program claims an impossible speed-up."""
    last = math.floor(top * 4)
    return range(0, last + 1, max(1, last // MOST_TICKS))


def _lines(series: Sequence[Scaled], figure: Callable[[Stat], str]) -> tuple[Line, ...]:
    return tuple(
        Line(
            label=name,
            points=tuple(
                Point(x=case.np, y=stat.median, low=stat.low, high=stat.high, text=figure(stat))
                for case, stat in members
            ),
        )
        for name, members in series
    )


def _in_words(series: Sequence[Scaled], word: Callable[[Stat], str]) -> str:
    return " ".join(
        f"{name}: " + ", ".join(f"{word(stat)} at {words.ranks(case.np)}" for case, stat in members) + "."
        for name, members in series
    )


def _groups(summary: Summary) -> Iterator[Chart]:
    for number, group in enumerate(summary.groups):
        yield _bars(f"settings-{number + 1}", group)
        sized = [(case, label) for case, label in _members(summary, group) if case.workload == "perf"]
        if sized and group.size is not None:
            lines = [(label, _sizes(case, group.metric)) for case, label in sized]
            title = f"{_title(words.test(group.metric))} by message size"
            yield from _by_size(f"sizes-{number + 1}", title, group.unit, lines, simulated=group.simulated)


def _members(summary: Summary, group: Group) -> list[tuple[CaseSummary, str]]:
    labels = {choice.case: choice.label for choice in group.choices}
    return [(case, labels[case.id]) for case in summary.cases if case.id in labels]


def _bars(name: str, group: Group) -> Chart:
    """In the order of the session; of many the base and the best."""
    choices = list(group.choices)
    if len(choices) > MOST_BARS:
        best = sorted(choices[1:], key=lambda best_choice: best_choice.times, reverse=True)[: MOST_BARS - 1]
        choices = [choices[0], *best]
    bars = tuple(
        Bar(
            label=option.label,
            y=option.stat.median,
            low=option.stat.low,
            high=option.stat.high,
            text=words.value(option.stat.median, group.unit),
            base=option is group.choices[0],
            best=option.times == max(choice.times for choice in group.choices),
        )
        for option in choices
    )
    what = words.metric(group.metric) + (f" at {words.size(group.size)}" if group.size is not None else "")
    series = group.series.replace(f" ({words.SIMULATED})", "")
    direction = "longer is better" if group.better == "higher" else "shorter is better"
    return Chart(
        id=name,
        kind="bars",
        title=_title(what) + (f": {series}" if series and series not in what else ""),
        y_title=direction,
        bars=bars,
        # A share is a part of the whole bar.
        top=max([1.0 if group.unit == "1" else 0.0, *(bar.high for bar in bars)]) or 1.0,
        simulated=group.simulated,
        alt=f"Bars of {what}, {direction}: " + ", ".join(f"{bar.label} {bar.text}" for bar in bars) + ".",
        note=_left_out(len(group.choices) - len(choices), "settings"),
    )


def _collectives(cases: Sequence[CaseSummary]) -> Iterator[Chart]:
    """Cases that are no settings side by side; the ring rung only where nothing says more."""
    perf = [case for case in cases if case.workload == "perf" and isinstance(case.x, int)]
    full = [case for case in perf if case.rung == "collectives"] or perf
    for number, case in enumerate(full[:4]):
        metrics = dict.fromkeys(
            measure.metric for measure in case.measures if measure.unit == "B/s" and measure.primary
        )
        lines = [(words.test(metric), _sizes(case, metric)) for metric in metrics]
        if lines:
            title = f"Bandwidth by message size, {words.ranks(case.np)}"
            yield from _by_size(f"bandwidth-{number + 1}", title, "B/s", lines, simulated=case.simulated)


def _sizes(case: CaseSummary, metric: str) -> list[tuple[int, Stat]]:
    """From the smallest on; nothing has no place on an axis of powers."""
    points = [(measure.size or 0, measure.stat) for measure in case.measures if measure.metric == metric]
    return sorted((point for point in points if point[0] > 0), key=lambda point: point[0])


def _by_size(
    name: str, title: str, unit: Unit, lines: Sequence[tuple[str, list[tuple[int, Stat]]]], *, simulated: bool
) -> Iterator[Chart]:
    shown = [line for line in lines if line[1]][:MOST_LINES]
    if not shown:
        return
    sizes = sorted({size for _, points in shown for size, _ in points})
    top = max(stat.high for _, points in shown for _, stat in points)
    top = top if top > 0 else 1.0
    ticks = _ticks(top, lambda at: words.tick(at, unit))
    best = [
        f"{label} reaches {words.value(stat.median, unit)} at {words.size(size)}"
        for label, points in shown
        for size, stat in [max(points, key=lambda line: line[1].median)]
    ]
    yield Chart(
        id=name,
        kind="lines",
        title=title,
        x_title="message size",
        y_title="bus bandwidth" if unit == "B/s" else words.metric(unit),
        lines=tuple(
            Line(
                label=label,
                points=tuple(Point(x=size, y=stat.median, low=stat.low, high=stat.high) for size, stat in points),
            )
            for label, points in shown
        ),
        x_ticks=tuple(Tick(at=size, text=words.size(size)) for size in sizes),
        y_ticks=ticks,
        log_x=True,
        top=max(ticks[-1].at, top * 1.02),
        simulated=simulated,
        alt=f"{title}: {'; '.join(best)}.",
        note=_left_out(len(lines) - len(shown), "lines"),
    )


# Below this, a number this small has no fourth part that a float can hold. No real figure is near it.
_LEAST = 1e-300


def _ticks(top: float, word: Callable[[float], str]) -> tuple[Tick, ...]:
    """From 0, four to six, at 1, 2, 2.5 or 5 times a power of ten."""
    step = 10 ** math.floor(math.log10(top / 4)) if top > _LEAST else 1.0
    step = next((step * factor for factor in (1, 2, 2.5, 5, 10) if top / (step * factor) <= 5), step * 10)
    return tuple(Tick(at=step * index, text=word(step * index)) for index in range(math.floor(top / step + 1e-9) + 1))


def _left_out(count: int, what: str) -> str:
    return f"{count} more {what} are in the tables." if count > 0 else ""


def _title(text: str) -> str:
    return text[:1].upper() + text[1:]
