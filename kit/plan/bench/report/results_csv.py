"""results.csv: a row for each case, metric and size; a case without figures has one row, that says why."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from kit.model.benchsummary import CaseSummary, Stat, Summary

HEADER = (
    "session", "preset", "case", "title", "rung", "workload", "simulated", "series", "x", "ranks", "state",
    "metric", "unit", "better", "bytes", "median", "min", "max", "mad", "repeats",
    "planned", "failed", "disturbed", "disturbed_counted",
)  # fmt: skip


def csv_text(summary: Summary) -> str:
    """Numbers in full, in the units of the column `unit` (B/s is bytes a second, 1 a share of one)."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for case in summary.cases:
        before = (
            summary.session, summary.preset, case.id, case.title, case.rung, case.workload, _yes(case.simulated),
            case.series, case.x, case.np, case.state,
        )  # fmt: skip
        after = (case.planned, len(case.failures), len(case.disturbed), _yes(case.disturbed_counted))
        rows = list(_rows(case)) or [("",) * 9]
        writer.writerows((*before, *row, *after) for row in rows)
    return text.getvalue()


def _rows(case: CaseSummary) -> Iterator[tuple[object, ...]]:
    for measure in case.measures:
        size = "" if measure.size is None else measure.size
        yield (measure.metric, measure.unit, measure.better, size, *_stat(measure.stat))
    if case.scaling is not None:
        yield ("speedup", "x", "higher", "", *_stat(case.scaling.speedup))
        yield ("efficiency", "1", "higher", "", *_stat(case.scaling.efficiency))


def _stat(figure: Stat) -> tuple[object, ...]:
    return (figure.median, figure.low, figure.high, figure.mad, figure.count)


def _yes(value: bool) -> str:
    return "yes" if value else "no"
