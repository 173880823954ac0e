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
# What a narrow terminal keeps of a case and a metric.
_KEEPS = {"CASE": 12, "METRIC": 10}
# So much of a verdict says which it is: "within the noise", "too few repeats…".
_VERDICT = 16


def bench_table(summary: Summary, *, width: int | None = None) -> str:
    """Return a line for each case, or for each test of a case. `width` None means no limit (a file, a pipe)."""
    header = ("CASE", "RANKS", "FIGURE", "SPREAD", "SPEED-UP", "EFFICIENCY", "REPEATS", "MARKS")
    body = []
    for row in rows(summary.cases):
        case = row.case
        count = f"{case.counted} of {case.planned}" if case.counted != case.planned else str(case.counted)
        note = "; ".join(marks(case) + ([_reason(case.failures)] if case.state == "failed" else []))
        own = (row.what, str(case.np), count, note) if row.first else (f"  {row.what}", "", "", "")
        what, ranks, repeats, marks_text = own
        body.append((what, ranks, row.figure, row.spread, row.speedup, row.efficiency, repeats, marks_text))
    drop = ("REPEATS", "EFFICIENCY", "SPREAD", "RANKS", "SPEED-UP")
    return fitted(body, header, width, flexible=("MARKS", "CASE"), drop=drop)


def summary_text(summary: Summary, *, width: int | None = None) -> str:
    """Return the table, then the findings and recommendations."""
    parts = [bench_table(summary, width=width)] if summary.cases else ["This session has no cases."]
    parts += ["\n".join(f"{what} was skipped: {why}" for what, why in summary.skipped.items())]
    parts += ["\n".join(summary.statements), "\n".join(f"→ {text}" for text in summary.recommendations)]
    parts += ["\n".join(f"note: {text}" for text in summary.notes)]
    return "\n\n".join(part for part in parts if part)


def _reason(failures: Sequence[str]) -> str:
    """Return the beginning of the first failure; the sentences below the table have the whole text."""
    return cut(" ".join(failures[0].split()), _REASON) if failures else ""


def comparison(
    value: Comparison, *, width: int | None = None, verbose: bool = False, paint: Paint | None = None
) -> str:
    """Return what differs, then what changed. Unless `verbose`, omit changes by size that are within the noise."""
    shown = [
        change for change in value.changes if verbose or change.size is None or change.verdict in ("better", "worse")
    ]
    parts = [f"a: {value.a}\nb: {value.b}"]
    if value.differences:
        rows = [(what, *pair) for what, pair in value.differences.items()]
        parts.append("Differs:\n" + fitted(rows, ("WHAT", "A", "B"), width, flexible=("B", "A")))
    if shown:
        body = [_change(change) for change in shown]
        header = ("CASE", "METRIC", "SIZE", "A", "B", "CHANGE", "")
        flexible, drop = ("", "CASE", "METRIC"), ("A", "B")
        text = fitted(body, header, width, flexible=flexible, drop=drop, least=_VERDICT, keeps=_KEEPS)
        parts.append(_painted(text, shown, paint))
    parts.append("\n".join(_counted(value, hidden=len(value.changes) - len(shown))))
    for title, only in (("Only in a", value.only_a), ("Only in b", value.only_b)):
        parts += [f"{title}:\n" + table(list(only.items()), indent="  ", width=width, flexible=(1, 0))] if only else []
    return "\n\n".join(parts)


_VERDICTS = {"better": "better", "worse": "worse", "noise": "within the noise"}


def _change(change: Change) -> tuple[str, ...]:
    size = "" if change.size is None else words.size(change.size)
    pair = [f"{words.value(s.median, change.unit)} {words.half_range(s)}" for s in (change.a, change.b)]
    return (
        change.title,
        words.metric(change.metric),
        size,
        *pair,
        f"{change.percent:+.1f} %",
        _VERDICTS.get(change.verdict) or words.too_few(change.repeats),
    )


def _painted(text: str, shown: Sequence[Change], paint: Paint | None) -> str:
    if paint is None:
        return text
    head, *lines = text.split("\n")
    styles: dict[str, Style] = {"better": "green", "worse": "red"}
    painted = [
        paint(line, styles[change.verdict]) if change.verdict in styles else line
        for line, change in zip(lines, shown, strict=True)
    ]
    return "\n".join([head, *painted])


def _counted(value: Comparison, *, hidden: int) -> list[str]:
    if not value.changes:
        return ["No figure was measured in both. To see how far each went: kit bench list, kit bench report"]
    beyond = [change for change in value.changes if change.verdict in ("better", "worse")]
    sentences = [f"{len(beyond)} of {len(value.changes)} figures changed beyond the noise."]
    single = sum(min(change.a.count, change.b.count) < 2 for change in value.changes)
    if single:
        sentences.append(f"{_have(single)} too few repeats to tell: each side needs at least two.")
    unknown = sum(change.verdict == "unknown" for change in value.changes) - single
    if unknown:
        enough = [change.repeats for change in value.changes if change.repeats is not None]
        span = "" if not enough else f"{min(enough)} to {max(enough)}" if min(enough) < max(enough) else str(enough[0])
        sentences.append(
            f"{_have(unknown)} too few repeats to tell" + (f"; about {span} on each side would." if span else ".")
        )
    if value.by_chance >= 0.5:
        sentences.append(f"About {value.by_chance:.0f} would change by chance alone.")
    if hidden:
        what = "more are within the noise" if not unknown else "figures by message size did not change beyond the noise"
        sentences.append(f"{hidden} {what}; --verbose shows them.")
    return sentences


def _have(count: int) -> str:
    return f"{count} {'has' if count == 1 else 'have'}"
