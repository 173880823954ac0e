"""kit attach, kit wait, kit logs and kit stop of a run that waits in line."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from kit.errors import Interrupted, KitError, LoginRefusedError, NotReadyError, UnreachableError
from kit.events import Note, Reporter, Warned
from kit.flows.run import follow as following
from kit.flows.run.listing import ArrayMeant
from kit.model.answer import OddAnswer, answer_of, convert
from kit.model.queue import WaitingRun
from kit.model.run import RUN_ID, RunRecord
from kit.model.text import one_line
from kit.model.values import replace
from kit.plan.queue import answers
from kit.plan.queue.reasons import never, why
from kit.remote.run.door import Door


def until_attached(
    door: Door, request: Mapping[str, Any], answer: Mapping[str, Any], reporter: Reporter, *, follow: bool
) -> tuple[Door, Mapping[str, Any]]:
    """Return the head's answer about a run when it no longer waits in line, and the door that it came through.

    `answer` is the first one to `request`. Report why the run waits, whenever that changes. After a broken connection,
    kit connects again. The caller closes the returned door. If this raises, every door is closed.

    Raises Interrupted after Ctrl-C: the run stays in line. Raises InputError for an array, and NotReadyError for a run
    that can never start. Without `follow`, raises NotReadyError for any run that waits.
    """
    run = last_text = ""
    try:
        if "array" in answer:
            raise array_meant(door, answer)
        while "queued" in answer:
            waiting = waiting_in(door, answer)
            run, text = waiting.id, why(waiting)
            if never(waiting):
                raise never_starts(waiting)
            if not follow:
                raise no_log_yet(waiting)
            # Only the time at which it starts may have changed.
            if text != last_text:
                reporter.report(Note(text=f"run {run} waits in line: {text}"))
            last_text = text
            try:
                answer = door.answer()
            except (UnreachableError, NotReadyError) as error:
                # The line outlives the head's container, which a deploy may recreate.
                reporter.report(Warned(text=f"{error}; run {run} stays in line, connecting again"))
                door.close()
                # By its whole id: it is known now, and '' or a beginning may mean another run by then.
                door, answer = _again(door, {**request, "id": run}, error)
        if "missing" in answer and run:
            raise NotReadyError(f"run {run} was taken out of the line", hint="see who waits: kit queue")
    except KeyboardInterrupt:
        door.close()
        raise Interrupted(f"run {run} still waits in line", hint="see why: kit queue") from None
    except BaseException:
        door.close()
        raise
    return door, answer


def _again(door: Door, request: Mapping[str, Any], error: KitError) -> tuple[Door, Mapping[str, Any]]:
    """Return another door to the same head, and its answer. After AGAIN_S without one, raises the last error."""
    end = time.monotonic() + following.AGAIN_S
    while time.monotonic() < end:
        door = door.another()
        try:
            door.open(patient=False)
            return door, door.ask(request)
        except (UnreachableError, NotReadyError) as again:
            door.close()
            error = again
        except BaseException:
            door.close()
            raise
        time.sleep(following.REFUSED_EVERY_S if isinstance(error, LoginRefusedError) else following.AGAIN_EVERY_S)
    raise error


def no_log_yet(waiting: WaitingRun) -> NotReadyError:
    """Return the error for the log of a run that waits in line."""
    return NotReadyError(
        f"run {waiting.id} has no log yet, because it waits in line: {why(waiting)}",
        hint=f"wait for it: kit attach {waiting.id}",
    )


def never_starts(waiting: WaitingRun) -> NotReadyError:
    """Return the error for a run in line that can never start."""
    return NotReadyError(
        f"run {waiting.id} waits in line and {never(waiting)}", hint=f"remove it: kit queue rm {waiting.id}"
    )


def array_meant(door: Door, answer: Mapping[str, Any]) -> ArrayMeant:
    """Return the error for an array, whose runs each have a log."""
    with answer_of(door.host, "its answer about the line"):
        runs = [*convert(answer.get("living", []), list[str]), *convert(answer.get("members", []), list[str])]
    return ArrayMeant(str(answer["array"]), runs)


def not_meant(door: Door, answer: Mapping[str, Any]) -> NotReadyError:
    """Return the error of `kit stop` without an id, if no run is active and the newest one waits in line."""
    waiting = waiting_in(door, answer)
    array = f"; all runs of its array: kit stop {waiting.array.of}" if waiting.array else ""
    return NotReadyError(
        f"no run is active; the latest run, {waiting.id}, waits in line",
        hint=f"take it out of the line: kit stop {waiting.id}{array}",
    )


class Removed(Struct, frozen=True, kw_only=True):
    """What `kit stop` took out of the line, and which runs of the same array have started already."""

    records: tuple[RunRecord, ...]
    started: tuple[str, ...]


def removed(door: Door, cluster: str, answer: Mapping[str, Any], by: str, reporter: Reporter) -> Removed:
    """Return the records of what `kit stop` took out of the line. They have no places: these runs never started.

    Warn about runs in line that wait for one that left.
    """
    with answer_of(door.host, "its answer about the line"):
        run = answers.waiting(answer["removed"], None) if answer["removed"] is not None else None
        members = convert(answer.get("members", []), list[str])
        living = convert(answer.get("living", []), list[str])
        others = convert(answer.get("others", []), list[str])
        for name in (*members, *living):
            if not RUN_ID.fullmatch(name):
                raise OddAnswer("this is not the id of a run", name)
    if others:
        text = f"runs that wait for it never start: {', '.join(map(one_line, others[:3]))}{' …' if others[3:] else ''}"
        reporter.report(Warned(text=text, hint="see who waits for what: kit queue"))
    if run is None:
        return Removed(records=(), started=tuple(living))
    record = RunRecord(
        id=run.id,
        cluster=cluster,
        image="",
        command=run.command,
        places=(),
        by=run.by,
        state="ended",
        stopped=f"taken out of the line by {by}",
    )
    # An older launcher does not name the run.
    records = tuple(replace(record, id=name) for name in members or [run.id])
    return Removed(records=records, started=tuple(living))


def waiting_in(door: Door, answer: Mapping[str, Any]) -> WaitingRun:
    with answer_of(door.host, "its answer about the line"):
        return answers.waiting(answer["queued"], answer.get("reason"))
