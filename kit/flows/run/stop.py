"""kit stop: end a run on every host, or all runs of an array."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from kit.errors import ArrayMeant
from kit.events import Silent
from kit.flows.context import Context
from kit.flows.run.answers import lost_run, outcome, run_of, runs_of
from kit.flows.run.attach import open_door, wait
from kit.flows.run.follow import Follower, Manner
from kit.flows.run.listing import listing, unknown_run
from kit.model.run import RunRecord
from kit.plan.run import owners
from kit.remote.machine.operator import operator
from kit.remote.run.door import Door

GRACE_S = 10.0


def stop(context: Context, run: str | None, *, grace_s: float | None, door: Door | None = None) -> RunRecord:
    """End one run, as `stop_all` does."""
    return stop_all(context, run, grace_s=grace_s, door=door)[0]


def stop_all(
    context: Context, run: str | None, *, grace_s: float | None, door: Door | None = None
) -> tuple[RunRecord, ...]:
    """End a run, and wait until its supervisor has checked every host. A run that has ended stays unchanged.

    With the id of an array, end all of its runs: those in line first, so that none starts meanwhile. `door` is one that
    is already connecting (kit.flows.run.dial). Without an id, raises NotReadyError if somebody else started the latest
    run.
    """
    door = open_door(context, door)
    by = operator()
    try:
        run = run or _own_latest(door, by)
        door.send(_request(run, grace_s, by))
        waits = True
        try:
            answer = door.answer()
        except KeyboardInterrupt:
            # The head already has the request and ends the run. Only the wait ends here.
            waits = False
            answer = door.answer()
        if "over" in answer:
            return (run_of(door.host, answer["over"], answer.get("ending"), live=False),)
        if "removed" in answer:
            from kit.flows.queue.wait import removed  # noqa: PLC0415  (only for a run that waits in line)

            gone = removed(door, context.spec.name, answer, by, context.reporter)
            door.close()
            return (*gone.records, *_stop_each(context, gone.started, grace_s, by, waits=waits))
        if "queued" in answer:
            from kit.flows.queue.wait import not_meant  # noqa: PLC0415  (only for a run that waits in line)

            raise not_meant(door, answer)
        record = answer.get("stopping")
        if record is None:
            error = unknown_run(context, run)
            if isinstance(error, ArrayMeant):
                # All of its runs have ended.
                return tuple(record for record in listing(context).runs if record.id in error.runs)
            raise error
        follower = Follower(run_of(door.host, record).id, door, Silent(), Manner())
        ending = follower.follow() if waits else None
        door = follower.door
    finally:
        door.close()
    stopped = outcome(door.host, record, ending)
    if stopped.state == "lost":
        raise lost_run(door.host, stopped.id)
    return (stopped,)


def _request(run: str | None, grace_s: float | None, by: str) -> dict[str, object]:
    grace = GRACE_S if grace_s is None else grace_s
    return {"op": "stop", "id": run or "", "why": f"stopped by {by}", "grace": grace, "by": by, "line": True}


def _stop_each(
    context: Context, runs: Sequence[str], grace_s: float | None, by: str, *, waits: bool
) -> list[RunRecord]:
    """End these runs side by side: ask the head for each, then wait for each. Ctrl-C ends the waiting."""
    records = []
    for run in runs:
        with closing(open_door(context)) as door:
            answer = door.ask(_request(run, grace_s, by))
            ended = answer.get("over")
            if ended is None and answer.get("stopping") is None:
                # Its record was removed meanwhile.
                continue
            records.append(run_of(door.host, ended or answer["stopping"], answer.get("ending"), live=not ended))
    for place, record in enumerate(records):
        if waits and record.state == "running":
            records[place] = wait(context, record.id)
            waits = records[place].state != "running"
    return records


def _own_latest(door: Door, by: str) -> str | None:
    """Return the id of the latest active run, which this person started. Return None if no run is active."""
    # kit stop by-hand ends those that somebody started in the head's shell.
    living = runs_of(door.host, list(door.living))
    latest = owners.latest_of(living, by, command="kit stop", verb="stop", done="stopped")
    return latest.id if latest else None
