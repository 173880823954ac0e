"""Two sessions side by side: the same cases by id, the same metrics, and whether a change is beyond the noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kit.model.benchsummary import CaseSummary, Change, Comparison, Measure, Summary
from kit.plan.bench.report.findings import new_words
from kit.plan.bench.report.noise import LEVEL
from kit.plan.bench.report.stats import ENOUGH, pooled, verdict


def compare(a: Summary, b: Summary) -> Comparison:
    """Compare the primary metrics of the cases that both have. The cases of both sessions share one spread."""
    changes: list[Change] = []
    only_a: dict[str, str] = {}
    only_b: dict[str, str] = {}
    cases = pooled([*a.cases, *b.cases])
    cases_a, cases_b = ({case.id: case for case in part} for part in (cases[: len(a.cases)], cases[len(a.cases) :]))
    for name in dict.fromkeys([*cases_a, *cases_b]):
        one, other = cases_a.get(name), cases_b.get(name)
        if one is not None and other is not None and one.state == other.state == "measured":
            changes += _changes(one, other)
        elif one is not None and one.state == "measured":
            only_a[name] = _why(other)
        elif other is not None and other.state == "measured":
            only_b[name] = _why(one)
    judged = sum(min(change.a.count, change.b.count) >= ENOUGH for change in changes)
    return Comparison(
        a=a.session,
        b=b.session,
        changes=tuple(changes),
        only_a=only_a,
        only_b=only_b,
        differences=dict(_differences(a, b)),
        by_chance=judged * LEVEL,
    )


def _changes(a: CaseSummary, b: CaseSummary) -> Iterator[Change]:
    for one in a.measures:
        other = b.measure(one.metric, one.size)
        if other is None or not one.primary:
            continue
        decision, repeats = verdict(one, other)
        yield Change(
            case=a.id,
            title=a.title,
            metric=one.metric,
            unit=one.unit,
            better=one.better,
            size=one.size,
            a=one.stat,
            b=other.stat,
            percent=_percent(one, other),
            verdict=decision,
            repeats=repeats,
        )


def _percent(a: Measure, b: Measure) -> float:
    return (b.stat.median - a.stat.median) / abs(a.stat.median) * 100 if a.stat.median else 0.0


def _why(other: CaseSummary | None) -> str:
    if other is None:
        return "the other has no such case"
    return "in the other it failed" if other.state == "failed" else "in the other it was not run"


def _differences(a: Summary, b: Summary) -> Iterator[tuple[str, tuple[str, str]]]:
    yield from _unequal(
        "", {"preset": a.preset, "cluster": a.cluster, **a.facts}, {"preset": b.preset, "cluster": b.cluster, **b.facts}
    )
    others = {case.id: case for case in b.cases}
    # Report a difference that many cases share only once.
    alike: dict[tuple[str, tuple[str, str]], list[str]] = {}
    for case in a.cases:
        other = others.get(case.id)
        if other is not None:
            for difference in _unequal("", *_settings_of(case, other)):
                alike.setdefault(difference, []).append(case.id)
    for (what, pair), names in alike.items():
        yield f"{names[0] if len(names) == 1 else f'{len(names)} cases'}: {what}", pair


def _settings_of(a: CaseSummary, b: CaseSummary) -> tuple[dict[str, str], dict[str, str]]:
    """Return what was set in both cases; of the commands, only the words in which they differ."""
    one, other = (
        {
            "command": " ".join(new_words(case.command, base.command)) or "–",
            "ranks": str(case.np),
            **dict(case.env),
            **case.settings,
        }
        for case, base in ((a, b), (b, a))
    )
    return one, other


def _unequal(before: str, a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    for name in dict.fromkeys([*a, *b]):
        if a.get(name) != b.get(name):
            yield f"{before}{name}", (a.get(name, "–"), b.get(name, "–"))
