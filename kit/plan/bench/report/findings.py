"""What a session shows, in sentences: how it scales, what sets settings apart, and which of them to use."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from kit.model.benchsummary import CaseSummary, Choice, Group, Measure
from kit.plan.bench.ladder import NEXT
from kit.plan.bench.report import words
from kit.plan.bench.report.noise import apart

# Settings that change what is computed, and not only how fast: by a word of their label.
CAUTIONS: Mapping[str, str] = {
    "fp16": "gradients travel in half precision: watch the accuracy",
    "top-k": "most of each gradient is sent later or changed: watch the accuracy",
    "topk": "most of each gradient is sent later or changed: watch the accuracy",
    "2bit": "gradients travel in 2 bits: watch the accuracy",
    "dist_async": "workers train on weights that may be old: watch the accuracy",
}
# More sentences than this about one group nobody reads.
MOST_SETTINGS = 4
BEST_SETTINGS = 3
# Not a setting: the wire with nothing on it.
REFERENCE = "bare"


def statements(cases: Sequence[CaseSummary], groups: Sequence[Group]) -> tuple[str, ...]:
    """The most telling ones first."""
    told = [*_scales(cases), *_paced(cases)]
    for group in groups:
        told += _settings(group)
    return (*told, *_collectives(cases), *_troubles(cases))


def _scales(cases: Sequence[CaseSummary]) -> list[str]:
    """Of each series the case with most ranks."""
    last: dict[str, CaseSummary] = {}
    for case in cases:
        if case.scaling is not None and (case.series not in last or case.np > last[case.series].np):
            last[case.series] = case
    told = []
    for case in last.values():
        assert case.scaling is not None  # noqa: S101
        base, rate = case.scaling.base_np, case.measure("images_per_s")
        amount = words.value(rate.stat.median, rate.unit) if rate else ""
        if case.np == base:
            told.append(_marked(case, f"{_name(case)}: {amount} on {words.ranks(base)}"))
            continue
        told.append(
            _marked(
                case,
                f"{_name(case)}: {words.ranks(case.np)} do {case.scaling.speedup.median:.1f} times the work of "
                f"{'one rank' if base == 1 else words.ranks(base)}, "
                f"{words.percent(case.scaling.efficiency.median)} of ideal ({amount})",
            )
        )
    return told


def _paced(cases: Sequence[CaseSummary]) -> list[str]:
    last: dict[str, CaseSummary] = {}
    for case in cases:
        found = case.measure("efficiency")
        if case.workload == "paced" and isinstance(case.x, int) and found is not None:
            last[case.series] = case if case.series not in last or case.np > last[case.series].np else last[case.series]
    return [
        _marked(case, f"{_name(case)}: {words.percent(found.stat.median)} of ideal on {words.ranks(case.np)}")
        for case in last.values()
        if (found := case.measure("efficiency")) is not None
    ]


def _settings(group: Group) -> list[str]:
    """Each setting against the first; of many the best."""
    base, *others = group.choices
    uneven = len({each.np for each in group.choices}) > 1
    if len(others) > MOST_SETTINGS:
        others = sorted(others, key=lambda each: each.times, reverse=True)[:BEST_SETTINGS]
    what = f"{group.series}: " if group.series else ""
    told = []
    for each in others:
        beyond = {
            "better": "beyond the noise",
            "worse": "beyond the noise",
            "noise": "not beyond the noise",
            "unknown": "with one repeat, so the noise is not known",
        }[each.verdict]
        figures = f"{words.value(each.stat.median, group.unit)} against {words.value(base.stat.median, group.unit)}"
        against = f"{_choice(base, uneven=uneven)} ({figures})"
        if group.better == "higher":
            text = f"{what}{_choice(each, uneven=uneven)} is {words.times(each.times)} {against}, {beyond}"
        else:
            longer = each.stat.median / base.stat.median if base.stat.median else 0.0
            text = f"{what}{_choice(each, uneven=uneven)} takes {words.times(longer)} as long as {against}, {beyond}"
        told.append(_simulated(text, yes=group.simulated))
    return told


def _choice(choice: Choice, *, uneven: bool) -> str:
    """With its ranks where the choices have not as many."""
    return f"{choice.label} on {words.ranks(choice.np)}" if uneven else choice.label


def _collectives(cases: Sequence[CaseSummary]) -> list[str]:
    """Of cases that are no settings side by side: the small message's time and the best bandwidth."""
    told = []
    for case in cases:
        if case.workload != "perf" or isinstance(case.x, str):
            continue
        best = _best(case, "allreduce.busbw") or _best(case, "bandwidth.algbw")
        if best is not None and best.size is not None:
            told.append(
                f"{_name(case)}: {words.test(best.metric)} reaches {words.value(best.stat.median, best.unit)} "
                f"at {words.size(best.size)} on {words.ranks(case.np)}"
            )
    return told


def _best(case: CaseSummary, metric: str) -> Measure | None:
    found = [each for each in case.measures if each.metric == metric]
    return max(found, key=lambda each: each.stat.median, default=None)


def _troubles(cases: Sequence[CaseSummary]) -> list[str]:
    """The first case that failed says where a ladder ended; of the others only how many."""
    told = []
    failed = [case for case in cases if case.state == "failed"]
    if failed:
        first = failed[0]
        # A failure's reason may have many lines and end in any way; the first says what it was.
        why = (first.failures[0].splitlines() if first.failures else ["only its warm-up"])[0]
        more = f"; {len(failed) - 1} more failed" if len(failed) > 1 else ""
        told.append(f"{first.title} failed: {why.rstrip('.')}{more}")
        # Where all cases are of one kind it goes without saying.
        if first.proves and len({case.rung for case in cases}) > 1:
            told.append(f"So it is not shown that this holds: {first.proves}")
    unsure = sum(case.disturbed_counted for case in cases)
    if unsure:
        told.append(f"{unsure} of {len(cases)} cases could only be measured while something else ran on the hosts")
    waiting = sum(case.state == "not run" for case in cases)
    if waiting:
        told.append(f"{waiting} of {len(cases)} cases were not run")
    return told


def recommendations(cases: Sequence[CaseSummary], groups: Sequence[Group]) -> tuple[str, ...]:
    """Of a session with failures what to look at next; then a sentence a group: which setting and why."""
    failed = next((case for case in cases if case.state == "failed"), None)
    known = "" if failed is None else next((text for rung, text in NEXT.items() if rung == failed.rung), "")
    further = [f"{failed.title} failed; to look further: {known}"] if failed is not None and known else []
    by_id = {case.id: case for case in cases}
    # Of a series that is shown by several metrics the first one decides.
    first: dict[str, Group] = {}
    for group in groups:
        first.setdefault(group.series, group)
    return (*further, *(text for group in first.values() if (text := _recommendation(group, by_id))))


def _recommendation(group: Group, cases: Mapping[str, CaseSummary]) -> str:
    candidates = [each for each in group.choices if each.label != REFERENCE]
    if len(candidates) < 2:
        return ""
    base = candidates[0]
    best = max(candidates, key=lambda each: each.times)
    judged = {each.label: apart(each.stat.values, best.stat.values) for each in candidates if each is not best}
    if "unknown" in judged.values():
        return _simulated(
            f"{_what(group)}{best.label} came out best, with too few repeats to be sure: repeat it", yes=group.simulated
        )
    equal = [each for each in candidates if each is not best and judged[each.label] == "noise"]
    if best is base or base in equal:
        others = [each.label for each in (*equal, best) if each is not base]
        also = f"; {_listed(others)} cannot be told apart from it" if others else ""
        return _simulated(
            f"{_what(group)}use {base.label}: nothing beats it beyond the noise{also}", yes=group.simulated
        )
    uneven = len({each.np for each in group.choices}) > 1
    times = words.times(best.times / base.times if base.times else best.times)
    why = f"{times} {_choice(base, uneven=uneven)}, beyond the noise"
    parts = [f"{_what(group)}use {best.label}: {why}"]
    if equal:
        parts.append(f"{_listed([each.label for each in equal])} cannot be told apart from it")
    how = _how(cases[best.case], cases[base.case])
    parts += [f"to set it: {how}"] if how else []
    parts += _cautions(best)
    parts += _harmless(candidates, base) if _cautions(best) else []
    return _simulated("; ".join(parts), yes=group.simulated)


def _how(best: CaseSummary, base: CaseSummary) -> str:
    """What the best case has that the base has not: variables, settings and words of the command."""
    env = [f"{name}={value}" for name, value in best.env if (name, value) not in base.env]
    settings = [f"{name}: {value}" for name, value in best.settings.items() if base.settings.get(name) != value]
    flags = new_words(best.command, base.command) if best.command[:1] == base.command[:1] else []
    told = [f"kit run {' '.join(f'-x {shlex.quote(each)}' for each in env)} (or env: in kit.yaml)"] if env else []
    told += [f"{', '.join(settings)} in kit.yaml"] if settings else []
    told += [shlex.join(flags)] if flags else []
    return " and ".join(told)


def new_words(command: Sequence[str], base: Sequence[str]) -> list[str]:
    """What stands between the words that both begin and end with, with the flag that a changed value belongs to."""
    if command[:1] != base[:1]:
        return list(command)
    start = 0
    while start < min(len(command), len(base)) and command[start] == base[start]:
        start += 1
    end = 0
    while end < min(len(command), len(base)) - start and command[-1 - end] == base[-1 - end]:
        end += 1
    found = list(command[start : len(command) - end])
    if found and not found[0].startswith("-") and start and command[start - 1].startswith("-"):
        found.insert(0, command[start - 1])
    return found


def _cautions(choice: Choice) -> list[str]:
    return list(dict.fromkeys(text for word, text in CAUTIONS.items() if word in choice.label))[:1]


def _harmless(candidates: Sequence[Choice], base: Choice) -> list[str]:
    """The best of those that compute the same as the base, where it is better than the base."""
    same = [each for each in candidates if each is not base and not _cautions(each)]
    best = max(same, key=lambda each: each.times, default=None)
    if best is None or best.verdict != "better":
        return [f"{base.label} where that matters"]
    return [f"{best.label} where that matters ({words.times(best.times)})"]


def _what(group: Group) -> str:
    return f"{group.series}: " if group.series else ""


def _listed(labels: Sequence[str]) -> str:
    """At most four names."""
    if len(labels) > 4:
        return f"{', '.join(labels[:3])} and {len(labels) - 3} more"
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"


def _simulated(text: str, *, yes: bool) -> str:
    """With the word that must not be missing; a series may have it in its name."""
    return f"{words.SIMULATED}: {text}" if yes and words.SIMULATED not in text else text


def _name(case: CaseSummary) -> str:
    return case.series or case.title


def _marked(case: CaseSummary, text: str) -> str:
    return _simulated(text, yes=case.simulated)
