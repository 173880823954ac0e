"""Prints one run with all that the head keeps about it, for `kit runs show`."""

from __future__ import annotations

import shlex
import time

from kit.cli.text import run as runtext
from kit.cli.text.table import hosts, table
from kit.cli.text.use import use
from kit.model.run import RunCode, RunRecord, ShownRun
from kit.model.text import fold, printable, size

# git shortens hashes to about this length.
_SHORT = 12


def shown(value: ShownRun) -> str:
    """Return a line for each fact, then why the run failed, if it did."""
    run = value.record
    rows = [("Run", run.id), ("State", runtext.state(run)), ("Command", shlex.join(run.command))]
    rows.append(("Ranks", _ranks(run)))
    if limits := _limits(run):
        rows.append(("Limits", limits))
    if run.array:
        rows.append(("Array", f"{run.array.of}, index {run.array.index}, of {run.array.size} runs"))
    rows.append(("Started", f"{_time(run.started)} by {run.by}"))
    if run.ended:
        rows.append(("Ended", f"{_time(run.ended)}, after {runtext.span(run.ended - run.started)}"))
    if run.attempt > 1:
        rows.append(("Attempts", str(run.attempt)))
    rows.append(("Image", run.image))
    if run.data:
        rows.append(("Data", ", ".join(run.data)))
    if run.env:
        rows.append(("Variables", f"{', '.join(run.env)} (kit does not keep their values)"))
    if run.code:
        rows += _code(run.code, value)
    if run.metrics:
        rows += use(run.metrics)
    folder = value.log.removesuffix("/log")
    rows.append(("Log", f"{value.head}:{value.log}; print it: kit logs {run.id}"))
    rows.append(("Files", f"{fold([place.node for place in run.places])}:{folder}; bring them home: kit pull {run.id}"))
    if value.checkpoints:
        where = printable(value.checkpoints)
        what = "kit pull brings home what changed there during the run"
        rows.append(("Checkpoints", f"{where} (--checkpoint-dir); {what}"))
    story = runtext.story(run)
    return table(rows) + (f"\n\n{story}" if story else "")


def diff(value: ShownRun) -> bytes:
    """Return how the code differed from its commit, byte by byte; b'' if it did not."""
    patch = value.diff.encode("utf-8", "surrogateescape")
    return patch if not patch or patch.endswith(b"\n") else patch + b"\n"


def _ranks(run: RunRecord) -> str:
    # A retry may have left out the others.
    places = [place for place in run.places if place.ranks]
    counts = {place.ranks for place in places}
    text = f"{run.np} on {hosts([place.node for place in places])}"
    if len(places) > 1 and len(counts) == 1:
        text += f", {counts.pop()} on each"
    if run.most_np > run.np:
        text += f"; at most {run.most_np} during the run"
    return text + (f"; beside them: {', '.join(run.roles)}" if run.roles else "")


def _limits(run: RunRecord) -> str:
    """Return what the run may use of each host; '' for all."""
    parts = ["the CPUs of its slots, for itself"] if run.exclusive else []
    parts += [f"{run.cpus} CPU{'' if run.cpus == 1 else 's'}"] if run.cpus else []
    parts += [f"{size(run.memory)} of memory"] if run.memory else []
    return f"{', '.join(parts)}; on each host" if parts else ""


def _code(code: RunCode, value: ShownRun) -> list[tuple[str, str]]:
    files = f"{code.files} file{'' if code.files == 1 else 's'}"
    rows = [("Code", f"{code.digest[:_SHORT]}, {files}, {size(code.size)}, from {code.folder}")]
    if code.commit or code.branch:
        branch = f" on {code.branch}" if code.branch else ""
        rows.append(("Commit", f"{code.commit[:_SHORT] or 'none yet'}{branch}{_changes(code, value)}"))
    if code.origin:
        rows.append(("Origin", code.origin))
    return rows


def _changes(code: RunCode, value: ShownRun) -> str:
    if not code.dirty:
        return ""
    if value.diff_cut and not value.diff:
        return ", and perhaps changes: git could not compare the code with its commit"
    if not value.diff:
        return ", and files that git does not track"
    count = value.diff.count("\n")
    lines = f"more than {count}" if value.diff_cut else f"{count}"
    return f", and changes; see the {lines} lines: kit runs show {value.record.id} --diff"


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
