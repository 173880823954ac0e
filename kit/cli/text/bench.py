"""A benchmark's plan as text, for --dry-run; and the list of sessions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from kit.cli.text.table import table
from kit.flows.bench.listing import SessionRow
from kit.flows.bench.measure import BenchPlan
from kit.model.bench import Case
from kit.plan.bench.headline import span


def plan(value: BenchPlan, *, width: int | None = None) -> str:
    rows = [
        (case.id, case.np, f"{case.warmup}+{case.repeats}" if case.warmup else f"{case.repeats}", _words(case))
        for case in value.cases
    ]
    parts = [table(rows, ("CASE", "RANKS", "REPEATS", "COMMAND"), width=width, flexible=("COMMAND", "CASE"))]
    parts += [f"Skipped: {what}: {why}." for what, why in value.skipped.items()]
    guess = "an estimate until the first are timed"
    parts.append(f"{len(value.cases)} cases, {value.launches} launches, about {span(value.seconds)} ({guess}).")
    return "\n".join(parts)


def _words(case: Case) -> str:
    env = " ".join(f"{name}={value}" for name, value in case.env)
    return f"{env} {shlex.join(case.command)}".strip()


def sessions(listing: Sequence[SessionRow], *, width: int | None = None) -> str:
    if not listing:
        return "There is no session yet. To measure one: kit bench, or kit bench --preset egs"
    rows = [
        (row.folder, row.cluster, row.cases, row.samples, f"{row.left} launches left" if row.left else "complete")
        for row in listing
    ]
    header = ("SESSION", "CLUSTER", "CASES", "SAMPLES", "STATE")
    return table(rows, header, width=width, flexible=("STATE", "CLUSTER"), drop=("SAMPLES", "CLUSTER", "CASES"))
