"""The few figures that a report begins with, large: what somebody asks first."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from kit.model.benchsummary import CaseSummary, Choice, Group, Summary
from kit.plan.bench.report import rows, words

MOST = 4
# Only the tables show names that are longer than this.
_LONGEST = 36


class KeyFigure(Struct, frozen=True, kw_only=True):
    """`note` says of what: 8 ranks against one."""

    figure: str
    name: str
    note: str = ""
    simulated: bool = False


def key_figures(summary: Summary) -> tuple[KeyFigure, ...]:
    """Four at most, the most telling ones first."""
    chosen = [*_scaling(summary), *_paced(summary)]
    for series in dict.fromkeys(group.series for group in summary.groups):
        chosen += _group(next(group for group in summary.groups if group.series == series))
    return tuple([*chosen, *_perf(summary)][:MOST])


def _scaling(summary: Summary) -> Iterator[KeyFigure]:
    case = max((case for case in summary.cases if case.scaling), key=lambda case: case.np, default=None)
    if case is None or case.scaling is None:
        return
    base = case.scaling.base_np
    if case.np > base:
        against = f"{words.ranks(case.np)} against {'one' if base == 1 else base}"
        yield KeyFigure(
            figure=f"{case.scaling.speedup.median:.2f} ×", name="speed-up", note=against, simulated=case.simulated
        )
        yield KeyFigure(
            figure=words.percent(case.scaling.efficiency.median),
            name="efficiency",
            note=f"of ideal, on {words.ranks(case.np)}",
            simulated=case.simulated,
        )
    rate = case.measure("images_per_s")
    if rate is not None:
        yield KeyFigure(
            figure=words.plain(rate.stat.median),
            name="images a second",
            note=f"on {words.ranks(case.np)}",
            simulated=case.simulated,
        )


def _paced(summary: Summary) -> Iterator[KeyFigure]:
    paced = [case for case in summary.cases if case.workload == "paced" and isinstance(case.x, int)]
    case = max(paced, key=lambda case: case.np, default=None)
    share = case.measure("efficiency") if case else None
    if case is not None and share is not None:
        yield KeyFigure(
            figure=words.percent(share.stat.median),
            name="efficiency, paced",
            note=f"of ideal, on {words.ranks(case.np)}",
            simulated=True,
        )


def _group(group: Group) -> Iterator[KeyFigure]:
    """What is best, and by how much; of networks what the bare wire gives and the host's network keeps of it."""
    base = group.choices[0]
    best = max(group.choices, key=lambda choice: choice.times)
    if best is base:
        yield KeyFigure(
            figure=words.value(base.stat.median, group.unit),
            name=base.label,
            note=f"{words.metric(group.metric)}, the best of {len(group.choices)}",
            simulated=group.simulated,
        )
        host = next((choice for choice in group.choices if choice.label == "host"), None)
        if host is not None and host is not base:
            yield KeyFigure(figure=words.percent(host.times), name="host network", note=f"of {base.label}")
        return
    names = f"{best.label} against {base.label}"
    yield KeyFigure(
        figure=f"{best.times:.2f} ×",
        name=names if len(names) <= _LONGEST else "the best against the first",
        note=_sureness(best, base),
        simulated=group.simulated,
    )
    for choice, otherwise in ((best, "with the best"), (base, "with the first")):
        yield KeyFigure(
            figure=words.value(choice.stat.median, group.unit),
            name=f"with {choice.label}" if len(choice.label) <= _LONGEST else otherwise,
            note=words.metric(group.metric) + (f", {words.size(group.size)}" if group.size is not None else ""),
            simulated=group.simulated,
        )


def _sureness(best: Choice, base: Choice) -> str:
    if best.verdict == "unknown":
        return "one repeat" if min(best.stat.count, base.stat.count) < 2 else "too few repeats to tell"
    return "within the noise" if best.verdict == "noise" else "beyond the noise"


def _perf(summary: Summary) -> Iterator[KeyFigure]:
    case = next((case for case in summary.cases if case.rung == "collectives" and isinstance(case.x, int)), None)
    if case is None:
        return
    yield from _best(case)


def _best(case: CaseSummary) -> Iterator[KeyFigure]:
    rates = [measure for measure in case.measures if measure.metric == "allreduce.busbw"]
    times = [measure for measure in case.measures if measure.metric == "latency.seconds"]
    if rates:
        best = rows.best(rates)
        yield KeyFigure(
            figure=words.value(best.stat.median, best.unit),
            name="all-reduce, bus bandwidth",
            note=f"{words.size(best.size or 0)} on {words.ranks(case.np)}",
        )
    if times:
        least = rows.best(times)
        yield KeyFigure(
            figure=words.value(least.stat.median, "s"), name="latency", note=f"{words.size(least.size or 0)}, one way"
        )
