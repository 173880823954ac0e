"""Prints runs as text: the table of runs, and why a failed run failed."""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Sequence

from kit.cli.text.table import cut, hosts, table
from kit.model.queue import WaitingRun
from kit.model.result import RunResult, RunsResult
from kit.model.run import Failure, RunRecord
from kit.model.text import one_line, plural
from kit.plan.run import banners, diagnose


def runs(value: RunsResult, *, width: int | None = None) -> str:
    """Return a line for each run, those that wait in line first: the last in line at the top."""
    if not value.runs and not value.waiting:
        return f"Cluster {value.cluster} has had no run yet."
    # The times of runs are by the head's clock.
    now = value.now or time.time()
    rows: list[tuple[object, ...]] = [
        (
            run.id,
            "waiting",
            run.np,
            f"{len(run.counts)} of {hosts(run.hosts)}",
            member(run),
            run.by,
            span(now - run.queued),
            "",
            cut(" ".join(shlex.join(run.command).split()), 40),
        )
        for run in reversed(value.waiting)
    ]
    rows += [
        (
            run.id,
            state(run),
            f"{run.np}+{len(run.roles)}" if run.roles else run.np,
            hosts([place.node for place in run.places]),
            member(run),
            run.by,
            span(now - run.started),
            span((run.ended or now) - run.started) if run.state != "lost" else "",
            cut(" ".join(shlex.join(run.command).split()), 40),
        )
        for run in value.runs
    ]
    header: tuple[str, ...] = ("RUN", "STATE", "NP", "HOSTS", "ARRAY", "BY", "AGE", "TOOK", "COMMAND")
    listed: list[RunRecord | WaitingRun] = [*value.waiting, *value.runs]
    if not any(run.array for run in listed):
        rows, header = _without("ARRAY", rows, header)
    if len({run.by for run in listed}) == 1:
        # All runs are of one person.
        rows, header = _without("BY", rows, header)
    # A narrow terminal shows no age: the id has the time of the start, or that of joining the line.
    return table(
        rows, header, width=width, flexible=("COMMAND", "HOSTS", "BY"), drop=("AGE", "TOOK", "ARRAY", "COMMAND", "NP")
    )


def _without(
    name: str, rows: list[tuple[object, ...]], header: tuple[str, ...]
) -> tuple[list[tuple[object, ...]], tuple[str, ...]]:
    """Return the rows and the header without the column of this name."""
    at = header.index(name)
    return [(*row[:at], *row[at + 1 :]) for row in rows], (*header[:at], *header[at + 1 :])


def member(run: RunRecord | WaitingRun) -> str:
    """Return `20261121-101502-77ab[3]` for a run of an array, with its index. Return '' for another run."""
    return f"{run.array.of}[{run.array.index}]" if run.array else ""


def places(run: RunRecord, leaving: Collection[str] = ()) -> str:
    """Return the hosts of a run that changed: `run …: slots: 2 on gpu1, 2 on gpu5; until its next commit: 2 on gpu2`.

    `leaving` are hosts that were dropped. Those without a rank may have left already.
    """
    slots = {place.node: f"{place.ranks} on {place.node}" for place in run.places}
    line = f"run {run.id}: slots: {', '.join(text for node, text in slots.items() if node not in leaving)}"
    left = [text for node, text in slots.items() if node in leaving]
    return f"{line}; until its next commit: {', '.join(left)}" if left else line


def state(run: RunRecord) -> str:
    """Return running, lost, stopped, done, or failed with the exit code."""
    if run.state != "ended":
        return run.state
    if run.stopped:
        return "stopped"
    return "done" if run.exit_code == 0 else f"failed ({run.exit_code})"


def span(seconds: float) -> str:
    """Return a duration such as 12s, 3m 20s, or 2h 5m."""
    whole = int(max(0.0, seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60}s"
    return f"{whole // 3600}h {whole % 3600 // 60}m"


def ended(value: RunResult) -> str:
    return _story(value.plan.run_id, value.stopped, value.failure, value.folded)


def story(value: RunRecord) -> str:
    if value.state == "lost":
        return f"kit: error: run {value.id} is lost: its supervisor on the head was stopped or killed"
    return _story(value.id, value.stopped, value.failure, 0)


def stopped(values: Sequence[RunRecord]) -> str:
    """Return what became of the run to stop, or of the runs of an array: a line for all to which the same happened."""
    gone = [value for value in values if _left_the_line(value)]
    before = [value for value in values if value.state != "running" and not value.stopped]
    lines = []
    if len(gone) > 1:
        lines.append(f"{len(gone)} runs left the line; they had not started: {_ids(gone)}.")
    if len(before) > 1:
        lines.append(f"{len(before)} runs had ended before: {_ids(before)}.")
    folded = [*(gone if len(gone) > 1 else ()), *(before if len(before) > 1 else ())]
    return "\n".join([*lines, *(stop(value) for value in values if value not in folded)])


def _ids(values: Sequence[RunRecord]) -> str:
    return f"{values[0].id} … {values[-1].id}" if len(values) > 2 else " and ".join(value.id for value in values)


def _left_the_line(value: RunRecord) -> bool:
    return bool(value.stopped) and not value.places and value.left is None


def array_ended(array: str, values: Sequence[RunRecord]) -> str:
    """Return how many runs of an array succeeded, and where to look if one did not."""
    done = [value for value in values if value.state == "ended" and value.exit_code == 0]
    failed = [value for value in values if value.state != "running" and value not in done]
    # After Ctrl-C, only some of them are here.
    size = max((value.array.size for value in values if value.array), default=len(values))
    text = f"kit: {array}: {len(done)} of {plural(size, 'run')} succeeded"
    if any(value.state == "running" for value in values):
        return f"{text}, others go on; wait for them: kit wait {array}"
    return f"{text}; see why {failed[0].id} did not: kit runs show {failed[0].id}" if failed else text


def stop(value: RunRecord) -> str:
    if value.state == "running":
        return f"Run {value.id} is being stopped."
    if not value.stopped:
        return f"Nothing to do: run {value.id} has ended."
    if _left_the_line(value):
        return f"Run {value.id} left the line; it had not started."
    left = value.left or {}
    return f"Run {value.id} was stopped on {hosts(list(left))}; processes left: {sum(left.values())}."


def _story(run: str, stopped: str, failure: Failure | None, folded: int) -> str:
    """Return the first failure, its last lines, and the cause if it is known. Return '' for a run that succeeded."""
    if stopped:
        return f"kit: run {run} was ended: {one_line(stopped)}"
    if failure is None:
        return ""
    lines = [f"kit: error: run {run} failed: {one_line(diagnose.headline(failure))}"]
    # For a lost host the headline is enough, and the user has already seen mpirun's message about it.
    shown = {"rank": failure.lines, "mpirun": failure.mpirun, "host": (), "code": ()}[failure.kind]
    lines += [f"  │ {one_line(line)}" for line in banners.without(shown)[-8:]]
    cause = diagnose.cause(failure, run)
    if cause is not None:
        lines += [f"  {one_line(cause.text)}", f"  → {one_line(cause.hint)}"]
    if folded:
        lines.append(f"  {folded} more line{'' if folded == 1 else 's'} from other ranks; print them: kit logs {run}")
    return "\n".join(lines)
