"""kit attach, kit wait, kit logs and kit stop of a run that waits in line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kit.errors import InputError, Interrupted, NotReadyError
from kit.events import Note, Reporter, Warned
from kit.model.answer import answer_of, convert
from kit.model.queue import WaitingRun
from kit.model.run import RunRecord
from kit.model.text import one_line
from kit.plan.queue import answers
from kit.plan.queue.reasons import why
from kit.remote.run.door import Door


def until_attached(door: Door, answer: Mapping[str, Any], reporter: Reporter, *, follow: bool) -> Mapping[str, Any]:
    """Return the head's answer about a run when it no longer waits in line. Report why it waits, whenever that changes.

    Raises Interrupted after Ctrl-C: the run stays in line. Raises InputError for an array. Without `follow`, raises
    NotReadyError for a run that waits.
    """
    if "array" in answer:
        raise array_has_no_log(door, answer)
    if not follow:
        raise no_log_yet(door, answer)
    run = told = ""
    try:
        while "queued" in answer:
            waiting = waiting_in(door, answer)
            run, text = waiting.id, why(waiting)
            # Only the time at which it starts may have changed.
            if text != told:
                reporter.report(Note(text=f"run {run} waits in line: {text}"))
            told = text
            answer = door.answer()
    except KeyboardInterrupt:
        raise Interrupted(f"run {run} still waits in line", hint="see why: kit queue") from None
    if "missing" in answer and run:
        raise NotReadyError(f"run {run} was taken out of the line", hint="see who waits: kit queue")
    return answer


def no_log_yet(door: Door, answer: Mapping[str, Any]) -> NotReadyError:
    """Return the error for the log of a run that waits in line."""
    waiting = waiting_in(door, answer)
    return NotReadyError(
        f"run {waiting.id} has no log yet, because it waits in line: {why(waiting)}",
        hint=f"wait for it: kit attach {waiting.id}",
    )


def array_has_no_log(door: Door, answer: Mapping[str, Any]) -> InputError:
    """Return the error for an array, whose runs each have a log."""
    with answer_of(door.host, "its answer about the line"):
        runs = [*convert(answer.get("living", []), list[str]), *convert(answer.get("members", []), list[str])]
    return InputError(
        f"{one_line(str(answer['array']))} is an array: each of its runs has a log",
        hint=f"name a run of it: {', '.join(map(one_line, runs[:3])) or 'kit runs'}",
    )


def removed(door: Door, cluster: str, answer: Mapping[str, Any], by: str, reporter: Reporter) -> RunRecord:
    """Return the record of what `kit stop` took out of the line. It has no places, because it never started.

    Of an array, `id` has all runs that left the line. Warn about those that run already.
    """
    with answer_of(door.host, "its answer about the line"):
        run = answers.waiting(answer["removed"], None) if answer["removed"] is not None else None
        members = convert(answer.get("members", []), list[str])
        living = convert(answer.get("living", []), list[str])
    if living:
        text = f"runs of the array go on: {', '.join(map(one_line, living[:3]))}{' …' if len(living) > 3 else ''}"
        reporter.report(Warned(text=text, hint=f"stop each: kit stop {one_line(living[0])}"))
    if run is None:
        raise NotReadyError("no run of the array waits in line any more", hint="see its runs: kit runs")
    return RunRecord(
        id=", ".join(map(one_line, members)) or run.id,
        cluster=cluster,
        image="",
        command=run.command,
        places=(),
        by=run.by,
        state="ended",
        stopped=f"taken out of the line by {by}",
    )


def waiting_in(door: Door, answer: Mapping[str, Any]) -> WaitingRun:
    with answer_of(door.host, "its answer about the line"):
        return answers.waiting(answer["queued"], answer.get("reason"))
