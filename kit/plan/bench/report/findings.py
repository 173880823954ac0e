"""Findings of a session, in sentences: how it scales, how settings differ, and which of them to use."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from kit.model.benchsummary import CaseSummary, Choice, Group, Measure
from kit.plan.bench.ladder import NEXT
from kit.plan.bench.report import words
from kit.plan.bench.report.noise import judge

# Settings that change the result of the computation, by a word in their label.
CAUTIONS: Mapping[str, str] = {
    "fp16": "gradients travel in half precision: watch the accuracy",
    "top-k": "most of each gradient is sent later or changed: watch the accuracy",
    "topk": "most of each gradient is sent later or changed: watch the accuracy",
    "2bit": "gradients travel in 2 bits: watch the accuracy",
    "dist_async": "workers train on weights that may be old: watch the accuracy",
}
# Nobody reads more sentences than this about one group.
MOST_SETTINGS = 4
BEST_SETTINGS = 3
# kit advises nobody to launch each case more often than this.
MOST_REPEATS = 20
# As in kit.plan.run.allreduce: what a case leaves out that chooses an algorithm of Open MPI itself.
_CHOOSING = "--mca coll_tuned_… and coll_han_…"
# Not a setting, but the reference: plain TCP on the hosts.
REFERENCE = "bare"


def statements(cases: Sequence[CaseSummary], groups: Sequence[Group]) -> tuple[str, ...]:
    """Return the findings, most important first."""
    sentences = [*_scales(cases), *_paced(cases)]
    for group in groups:
        sentences += _settings(group)
    return (*sentences, *_collectives(cases), *_troubles(cases))


def _scales(cases: Sequence[CaseSummary]) -> list[str]:
    """Describe the case with the most ranks of each series."""
    last: dict[str, CaseSummary] = {}
    for case in cases:
        if case.scaling is not None and (case.series not in last or case.np > last[case.series].np):
            last[case.series] = case
    sentences = []
    for case in last.values():
        assert case.scaling is not None  # noqa: S101
        base, rate = case.scaling.base_np, case.measure("images_per_s")
        amount = words.value(rate.stat.median, rate.unit) if rate else ""
        if case.np == base:
            sentences.append(_marked(case, f"{_name(case)}: {amount} on {words.ranks(base)}"))
            continue
        sentences.append(
            _marked(
                case,
                f"{_name(case)}: {words.ranks(case.np)} do {case.scaling.speedup.median:.1f} times the work of "
                f"{'one rank' if base == 1 else words.ranks(base)}, "
                f"{words.percent(case.scaling.efficiency.median)} of ideal ({amount})",
            )
        )
    return sentences


def _paced(cases: Sequence[CaseSummary]) -> list[str]:
    last: dict[str, CaseSummary] = {}
    for case in cases:
        efficiency = case.measure("efficiency")
        if case.workload == "paced" and isinstance(case.x, int) and efficiency is not None:
            last[case.series] = case if case.series not in last or case.np > last[case.series].np else last[case.series]
    return [
        _marked(case, f"{_name(case)}: {words.percent(efficiency.stat.median)} of ideal on {words.ranks(case.np)}")
        for case in last.values()
        if (efficiency := case.measure("efficiency")) is not None
    ]


def _settings(group: Group) -> list[str]:
    """Compare each setting with the first one; if there are many, only the best ones."""
    base, *others = group.choices
    uneven = len({choice.np for choice in group.choices}) > 1
    if len(others) > MOST_SETTINGS:
        others = sorted(others, key=lambda choice: choice.times, reverse=True)[:BEST_SETTINGS]
    what = f"{group.series}: " if group.series else ""
    sentences = []
    for choice in others:
        beyond = {
            "better": "beyond the noise",
            "worse": "beyond the noise",
            "noise": "within the noise",
            "unknown": _too_few(choice, base),
        }[choice.verdict]
        figures = f"{words.value(choice.stat.median, group.unit)} against {words.value(base.stat.median, group.unit)}"
        against = f"{_choice(base, uneven=uneven)} ({figures})"
        if group.better == "higher":
            text = f"{what}{_choice(choice, uneven=uneven)} is {words.times(choice.times)} {against}, {beyond}"
        else:
            longer = choice.stat.median / base.stat.median if base.stat.median else 0.0
            text = f"{what}{_choice(choice, uneven=uneven)} takes {words.times(longer)} as long as {against}, {beyond}"
        sentences.append(_simulated(text, yes=group.simulated))
    return sentences


def _too_few(choice: Choice, base: Choice) -> str:
    if min(choice.stat.count, base.stat.count) < 2:
        return "with one repeat, so the noise is not known"
    return words.too_few(choice.repeats)


def _choice(choice: Choice, *, uneven: bool) -> str:
    """Return the label, with the number of ranks if the choices differ in it."""
    return f"{choice.label} on {words.ranks(choice.np)}" if uneven else choice.label


def _collectives(cases: Sequence[CaseSummary]) -> list[str]:
    """Describe cases outside of groups: the best bandwidth of each."""
    sentences = []
    for case in cases:
        if case.workload != "perf" or isinstance(case.x, str):
            continue
        best = _best(case, "allreduce.busbw") or _best(case, "bandwidth.algbw")
        if best is not None and best.size is not None:
            sentences.append(
                f"{_name(case)}: {words.test(best.metric)} reaches {words.value(best.stat.median, best.unit)} "
                f"at {words.size(best.size)} on {words.ranks(case.np)}"
            )
    return sentences


def _best(case: CaseSummary, metric: str) -> Measure | None:
    candidates = [measure for measure in case.measures if measure.metric == metric]
    return max(candidates, key=lambda measure: measure.stat.median, default=None)


def _troubles(cases: Sequence[CaseSummary]) -> list[str]:
    """Describe the first failed case, which ended a ladder, and count the others."""
    sentences = []
    failed = [case for case in cases if case.state == "failed"]
    if failed:
        first = failed[0]
        # A failure may have many lines; the first names it.
        why = (first.failures[0].splitlines() if first.failures else ["only its warm-up"])[0]
        more = f"; {len(failed) - 1} more failed" if len(failed) > 1 else ""
        sentences.append(f"{first.title} failed: {why.rstrip('.')}{more}")
        # If all cases are of one kind, this sentence adds nothing.
        if first.proves and len({case.rung for case in cases}) > 1:
            sentences.append(f"So this is not proven: {first.proves}")
    unsure = sum(case.disturbed_counted for case in cases)
    if unsure:
        sentences.append(f"{unsure} of {len(cases)} cases could only be measured while something else ran on the hosts")
    waiting = sum(case.state == "not run" for case in cases)
    if waiting:
        sentences.append(f"{waiting} of {len(cases)} cases were not run")
    return sentences


def recommendations(cases: Sequence[CaseSummary], groups: Sequence[Group]) -> tuple[str, ...]:
    """Return what to check after a failure, then one sentence for each group: which setting to use and why."""
    failed = next((case for case in cases if case.state == "failed"), None)
    known = "" if failed is None else next((text for rung, text in NEXT.items() if rung == failed.rung), "")
    further = [f"{failed.title} failed; next step: {known}"] if failed is not None and known else []
    by_id = {case.id: case for case in cases}
    # If a series has several metrics, the first one decides.
    first: dict[str, Group] = {}
    for group in groups:
        first.setdefault(group.series, group)
    return (*further, *(text for group in first.values() if (text := _recommendation(group, by_id))))


def _recommendation(group: Group, cases: Mapping[str, CaseSummary]) -> str:
    candidates = [choice for choice in group.choices if choice.label != REFERENCE]
    if len(candidates) < 2:
        return ""
    base = candidates[0]
    best = max(candidates, key=lambda choice: choice.times)
    equal, unsure = _indistinct(candidates, best)
    few = min(base.stat.count, best.stat.count) < 2
    enough = unsure.get(base.label)
    if few or (enough is not None and enough <= MOST_REPEATS):
        text = f"{best.label} was best, but with too few repeats to be sure: {words.repeat_it(enough)}"
        return _simulated(f"{_what(group)}{text}", yes=group.simulated)
    if best is base or base.label in (*equal, *unsure):
        equal, unsure = _indistinct(candidates, base)
        parts = [f"{_what(group)}use {base.label}: nothing beats it beyond the noise", *_same(equal), *_unsure(unsure)]
        same = [base, *(choice for choice in candidates if choice.label in equal)]
        # With one of them, nothing needs to change.
        if all(_changes(cases[choice.case]) for choice in same):
            parts.append(f"to set it: {_how(cases[base.case], cases[base.case])}")
        return _simulated("; ".join(parts), yes=group.simulated)
    uneven = len({choice.np for choice in group.choices}) > 1
    times = words.times(best.times / base.times if base.times else best.times)
    why = f"{times} {_choice(base, uneven=uneven)}, beyond the noise"
    parts = [f"{_what(group)}use {best.label}: {why}"]
    parts += _same(equal) + _unsure(unsure)
    how = _how(cases[best.case], cases[base.case])
    parts += [f"to set it: {how}"] if how else []
    parts += _cautions(best)
    parts += _harmless(candidates, base) if _cautions(best) else []
    return _simulated("; ".join(parts), yes=group.simulated)


def _indistinct(candidates: Sequence[Choice], one: Choice) -> tuple[list[str], dict[str, int | None]]:
    """Return the settings that equal `one` within the noise, and those with too few repeats to tell.

    The numbers are the repeats that would decide.
    """
    equal: list[str] = []
    unsure: dict[str, int | None] = {}
    for choice in candidates:
        if choice is one:
            continue
        judged = judge(choice.stat.values, one.stat.values, choice.spread, one.spread)
        if judged.verdict == "noise":
            equal.append(choice.label)
        elif judged.verdict == "unknown":
            unsure[choice.label] = judged.repeats
    return equal, unsure


def _same(labels: Sequence[str]) -> list[str]:
    if not labels:
        return []
    return [f"{_listed(labels)} {'performs' if len(labels) == 1 else 'perform'} the same within the noise"]


def _unsure(repeats: Mapping[str, int | None]) -> list[str]:
    return [f"too few repeats to tell {_listed(list(repeats))} from it"] if repeats else []


def _how(best: CaseSummary, base: CaseSummary) -> str:
    """Return what to change for the best case: mpi.args, variables, settings, and words of the command.

    Its variables and settings are compared with kit.yaml, as the case changes these. Its words are compared with the
    base.
    """
    env = [f"{name}={value}" for name, value in best.env]
    settings = [words.setting(name, value) for name, value in best.settings.items()]
    flags = new_words(best.command, base.command) if best.command[:1] == base.command[:1] else []
    parts = (
        [f"kit run {' '.join(f'-x {shlex.quote(variable)}' for variable in env)} (or env: in kit.yaml)"] if env else []
    )
    parts += [f"{', '.join(settings)} in kit.yaml"] if settings else []
    parts += [shlex.join(flags)] if flags else []
    text = " and ".join(parts)
    if not best.own_algorithm:
        return text
    # Open MPI prefers mpirun's arguments to variables.
    return f"remove {_CHOOSING} from mpi.args in kit.yaml" + (f", then {text}" if text else "")


def _changes(case: CaseSummary) -> bool:
    """Return whether the case changes anything of kit.yaml."""
    return bool(case.env or case.settings or case.own_algorithm)


def new_words(command: Sequence[str], base: Sequence[str]) -> list[str]:
    """Return the words between the common start and end, with the flag that a changed value belongs to."""
    if command[:1] != base[:1]:
        return list(command)
    start = 0
    while start < min(len(command), len(base)) and command[start] == base[start]:
        start += 1
    end = 0
    while end < min(len(command), len(base)) - start and command[-1 - end] == base[-1 - end]:
        end += 1
    added = list(command[start : len(command) - end])
    if added and not added[0].startswith("-") and start and command[start - 1].startswith("-"):
        added.insert(0, command[start - 1])
    return added


def _cautions(choice: Choice) -> list[str]:
    return list(dict.fromkeys(text for word, text in CAUTIONS.items() if word in choice.label))[:1]


def _harmless(candidates: Sequence[Choice], base: Choice) -> list[str]:
    """Return the best choice that computes the same result as the base, or the base."""
    same = [choice for choice in candidates if choice is not base and not _cautions(choice)]
    best = max(same, key=lambda choice: choice.times, default=None)
    if best is None or best.verdict != "better":
        return [f"{base.label} where that matters"]
    return [f"{best.label} where that matters ({words.times(best.times)})"]


def _what(group: Group) -> str:
    return f"{group.series}: " if group.series else ""


def _listed(labels: Sequence[str]) -> str:
    """List at most four names."""
    if len(labels) > 4:
        return f"{', '.join(labels[:3])} and {len(labels) - 3} more"
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"


def _simulated(text: str, *, yes: bool) -> str:
    """Add the word SIMULATED, unless the series has it in its name."""
    return f"{words.SIMULATED}: {text}" if yes and words.SIMULATED not in text else text


def _name(case: CaseSummary) -> str:
    return case.series or case.title


def _marked(case: CaseSummary, text: str) -> str:
    return _simulated(text, yes=case.simulated)
