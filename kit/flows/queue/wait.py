"""kit attach, kit wait, kit logs and kit stop of a run that waits in line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kit.errors import Interrupted, NotReadyError
from kit.events import Note, Reporter
from kit.model.answer import answer_of
from kit.model.queue import WaitingRun
from kit.model.run import RunRecord
from kit.plan.queue import answers
from kit.plan.queue.reasons import why
from kit.remote.run.door import Door


def until_attached(door: Door, answer: Mapping[str, Any], reporter: Reporter) -> Mapping[str, Any]:
    """Return the head's answer about a run when it no longer waits in line. Report why it waits, whenever that changes.

    Raises Interrupted after Ctrl-C: the run stays in line.
    """
    run = ""
    try:
        while "queued" in answer:
            waiting = waiting_in(door, answer)
            run = waiting.id
            reporter.report(Note(text=f"run {run} waits in line: {why(waiting)}"))
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


def removed(door: Door, cluster: str, answer: Mapping[str, Any], by: str) -> RunRecord:
    """Return the record of a run that `kit stop` took out of the line. It has no places, because it never started."""
    with answer_of(door.host, "its answer about the line"):
        run = answers.waiting(answer["removed"], None)
    return RunRecord(
        id=run.id,
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
