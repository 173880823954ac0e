"""Prints the line of waiting runs, and what became of a change, as text."""

from __future__ import annotations

import shlex
import time

from kit.cli.text.run import member, span
from kit.cli.text.table import cut, fitted
from kit.model.queue import Changed, HostRows, Line, Queued, WaitingRun
from kit.plan.queue.cordons import alike
from kit.plan.queue.cordons import text as cordon_text
from kit.plan.queue.reasons import why
from kit.plan.run.owners import named

# What a narrow terminal leaves out of the line, in this order, and what it keeps of a reason.
_DROP = ("BY", "WAITED", "HOSTS", "PRIORITY", "ARRAY", "COMMAND", "NP", "STARTS")
_KEEPS = {"WAITS": 20}
_DONE = {
    "first": "is the first in line",
    "last": "is the last in line",
    "priority": "has another priority",
    "hold": "is held",
    "release": "is released",
    "remove": "left the line",
}


def line(value: Line, *, width: int | None = None) -> str:
    """Return a line for each waiting run, in the order of turns, and one for cordoned hosts that are alike."""
    # The times of runs are by the head's clock.
    now = value.now or time.time()
    rows = [
        (
            str(number),
            run.id,
            str(run.np),
            str(len(run.counts)),
            str(run.priority) if run.priority else "",
            member(run),
            span(now - run.queued),
            run.by,
            why(run),
            starts(run, now),
            cut(" ".join(shlex.join(run.command).split()), 40),
        )
        for number, run in enumerate(value.runs, 1)
    ]
    header = ("#", "RUN", "NP", "HOSTS", "PRIORITY", "ARRAY", "WAITED", "BY", "WAITS", "STARTS", "COMMAND")
    parts = [fitted(rows, header, width, flexible=("COMMAND", "BY", "WAITS"), drop=_DROP, keeps=_KEEPS)] if rows else []
    parts = parts or [f"No run waits in line on cluster {value.cluster}."]
    return "\n".join([*parts, *(f"{cordon_text(*group)}." for group in alike(value.cordons))])


def starts(run: WaitingRun, now: float) -> str:
    """Return by when a run starts, or about when, in this machine's time zone. Return '' if nobody knows.

    The text has the day if it is not today. `now` is by the head's clock, as the time in the text is.
    """
    at = run.reason.at or run.reason.about
    if at is None:
        return ""
    word = "by" if run.reason.at else "about"
    here, today = time.localtime(at), time.localtime(now)
    form = "%H:%M" if here[:3] == today[:3] else "%Y-%m-%d %H:%M"
    return f"{word} {time.strftime(form, here)}" if at > now else "soon"


def queued(value: Queued) -> str:
    """Return the ids, a line each, as `kit run -d` prints one."""
    return "\n".join(value.runs)


def joined(value: Queued) -> str:
    """Return what a person should know about runs that joined the line."""
    ahead = "nobody waits before" if not value.ahead else f"{value.ahead} before"
    if value.array:
        runs = "1 run" if len(value.runs) == 1 else f"{len(value.runs)} runs"
        verbs = f"see it: kit queue; wait for all: kit wait {value.array}"
        return f"array {value.array} is in line with {runs}, {ahead} it; {verbs}"
    return f"run {value.runs[0]} is in line, {ahead} it; why it waits: kit queue; follow it: kit attach {value.runs[0]}"


def hosts(value: HostRows, *, width: int | None = None) -> str:
    """Return a line for each host."""
    # The times of cordons are by the head's clock.
    now = value.now or time.time()
    rows = [
        (
            row.name,
            row.address,
            "no: cordoned" if row.cordon else "yes",
            row.cordon.why if row.cordon else "",
            row.cordon.by if row.cordon else "",
            span(now - row.cordon.at) if row.cordon else "",
        )
        for row in value.hosts
    ]
    header = ("HOST", "ADDRESS", "NEW RUNS", "WHY", "BY", "SINCE")
    return fitted(rows, header, width, flexible=("WHY", "BY"), drop=("SINCE", "BY", "ADDRESS", "WHY"))


def changed(value: Changed) -> str:
    """Return a line for each run, with the name of another person who queued it."""
    lines = [f"Run {_named(run, value)} {_DONE[value.how]}." for run in value.runs]
    if value.how == "remove" and value.others:
        others = ", ".join(_named(run, value) for run in value.others)
        lines.append(f"These runs wait for what left, and never start: {others}.")
    return "\n".join(lines)


def _named(run: str, value: Changed) -> str:
    return named(run, value.owners.get(run, ""))
