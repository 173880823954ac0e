"""A benchmark's summary and comparison as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kit.cli.screen.terminal import Style
from kit.cli.text.table import cut, fitted, table
from kit.model.benchsummary import Change, Comparison, Summary
from kit.plan.bench.report import words
from kit.plan.bench.report.rows import marks, rows

Paint = Callable[[str, Style], str]

_REASON = 48


def bench_table(summary: Summary, *, width: int | None = None) -> str:
    """A line for each case, or each test of a case. `width` None: as wide as it comes (a file, a pipe)."""
    header = ("CASE", "RANKS", "FIGURE", "SPREAD", "SPEED-UP", "EFFICIENCY", "REPEATS", "MARKS")
    body = []
    for row in rows(summary.cases):
        case = row.case
        count = f"{case.counted} of {case.planned}" if case.counted != case.planned else str(case.counted)
        note = "; ".join(marks(case) + ([_reason(case.failures)] if case.state == "failed" else []))
        own = (row.what, str(case.np), count, note) if row.first else (f"  {row.what}", "", "", "")
        what, ranks, repeats, told = own
        body.append((what, ranks, row.figure, row.spread, row.speedup, row.efficiency, repeats, told))
    return fitted(body, header, width, flexible=("MARKS", "CASE"))


def summary_text(summary: Summary, *, width: int | None = None) -> str:
    """The table, then what it shows and what to do."""
    parts = [bench_table(summary, width=width)] if summary.cases else ["This session has no cases."]
    parts += ["\n".join(f"{what} was not tried: {why}" for what, why in summary.skipped.items())]
    parts += ["\n".join(summary.statements), "\n".join(f"→ {text}" for text in summary.recommendations)]
    parts += ["\n".join(f"note: {text}" for text in summary.notes)]
    return "\n\n".join(part for part in parts if part)


def _reason(failures: Sequence[str]) -> str:
    """The beginning of it; the sentences below the table have it whole."""
    return cut(" ".join(failures[0].split()), _REASON) if failures else ""


def comparison(
    value: Comparison, *, width: int | None = None, verbose: bool = False, paint: Paint | None = None
) -> str:
    """What differs, then what changed. Within the noise only what has no size, unless `verbose`."""
    shown = [each for each in value.changes if verbose or each.size is None or each.verdict in ("better", "worse")]
    parts = [f"a: {value.a}\nb: {value.b}"]
    if value.differences:
        rows = [(what, *pair) for what, pair in value.differences.items()]
        parts.append("Differs:\n" + fitted(rows, ("WHAT", "A", "B"), width, flexible=("B", "A")))
    if shown:
        body = [_change(each) for each in shown]
        header = ("CASE", "METRIC", "SIZE", "A", "B", "CHANGE", "")
        text = fitted(body, header, width, flexible=("CASE", "METRIC"))
        parts.append(_painted(text, shown, paint))
    parts.append("\n".join(_counted(value, hidden=len(value.changes) - len(shown))))
    for title, only in (("Only in a", value.only_a), ("Only in b", value.only_b)):
        parts += [f"{title}:\n" + table(list(only.items()), indent="  ")] if only else []
    return "\n\n".join(parts)


_VERDICTS = {"better": "better", "worse": "worse", "noise": "within the noise", "unknown": "too few repeats to say"}


def _change(each: Change) -> tuple[str, ...]:
    size = "" if each.size is None else words.size(each.size)
    pair = [f"{words.value(s.median, each.unit)} {words.half_range(s)}" for s in (each.a, each.b)]
    return (each.title, words.metric(each.metric), size, *pair, f"{each.percent:+.1f} %", _VERDICTS[each.verdict])


def _painted(text: str, shown: Sequence[Change], paint: Paint | None) -> str:
    if paint is None:
        return text
    head, *lines = text.split("\n")
    styles: dict[str, Style] = {"better": "green", "worse": "red"}
    painted = [
        paint(line, styles[each.verdict]) if each.verdict in styles else line
        for line, each in zip(lines, shown, strict=True)
    ]
    return "\n".join([head, *painted])


def _counted(value: Comparison, *, hidden: int) -> list[str]:
    if not value.changes:
        return ["Nothing was measured in both."]
    beyond = [each for each in value.changes if each.verdict in ("better", "worse")]
    told = [f"{len(beyond)} of {len(value.changes)} figures changed beyond the noise."]
    unknown = sum(each.verdict == "unknown" for each in value.changes)
    if unknown:
        told.append(f"Of {unknown} there are too few repeats to say: it takes two on each side.")
    if value.by_chance >= 0.5:
        told.append(f"About {value.by_chance:.0f} would by chance, had nothing changed.")
    if hidden:
        told.append(f"{hidden} more are within the noise; --verbose shows them.")
    return told
