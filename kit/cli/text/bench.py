"""A benchmark's plan as text, for --dry-run; and the list of sessions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from kit.cli.text.table import table
from kit.flows.bench.listing import SessionRow
from kit.flows.bench.measure import BenchPlan
from kit.model.bench import Case
from kit.plan.bench.told import span


def plan(value: BenchPlan) -> str:
    rows = [
        (case.id, case.np, f"{case.warmup}+{case.repeats}" if case.warmup else f"{case.repeats}", _words(case))
        for case in value.cases
    ]
    parts = [table(rows, ("CASE", "RANKS", "REPEATS", "COMMAND"))]
    parts += [f"Left out: {what}: {why}." for what, why in value.skipped.items()]
    guess = "a guess, until the first are timed"
    parts.append(f"{len(value.cases)} cases, {value.launches} launches, about {span(value.seconds)} ({guess}).")
    return "\n".join(parts)


def _words(case: Case) -> str:
    env = " ".join(f"{name}={value}" for name, value in case.env)
    return f"{env} {shlex.join(case.command)}".strip()


def sessions(found: Sequence[SessionRow]) -> str:
    if not found:
        return "There is no session yet. Make one: kit bench, or kit bench --preset egs"
    rows = [
        (each.id, each.cluster, each.cases, each.samples, f"{each.left} launches left" if each.left else "whole")
        for each in found
    ]
    return table(rows, ("SESSION", "CLUSTER", "CASES", "SAMPLES", "STATE"))
