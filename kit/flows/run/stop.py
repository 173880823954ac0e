"""kit stop: end a run on every host."""

from __future__ import annotations

from kit.events import Silent
from kit.flows.context import Context
from kit.flows.run.answers import outcome, run_of, runs_of
from kit.flows.run.attach import open_door
from kit.flows.run.follow import Follower, Manner
from kit.flows.run.listing import unknown_run
from kit.model.run import RunRecord
from kit.plan.run import owners
from kit.remote.machine.operator import operator
from kit.remote.run.door import Door

GRACE_S = 10.0


def stop(context: Context, run: str | None, *, grace_s: float | None, door: Door | None = None) -> RunRecord:
    """End a run, and wait until its supervisor has checked every host. A run that has ended stays unchanged.

    `door` is one that is already connecting (kit.flows.run.dial). Without an id, raises NotReadyError if somebody else
    started the latest run.
    """
    door = open_door(context, door)
    grace = GRACE_S if grace_s is None else grace_s
    by = operator()
    try:
        run = run or _own_latest(door, by)
        door.send({"op": "stop", "id": run or "", "why": f"stopped by {by}", "grace": grace, "by": by, "line": True})
        waits = True
        try:
            answer = door.answer()
        except KeyboardInterrupt:
            # The head already has the request and ends the run. Only the wait ends here.
            waits = False
            answer = door.answer()
        if "over" in answer:
            return run_of(door.host, answer["over"], answer.get("ending"), live=False)
        if "removed" in answer:
            from kit.flows.queue.wait import removed  # noqa: PLC0415  (only for a run that waits in line)

            return removed(door, context.spec.name, answer, by, context.reporter)
        if "queued" in answer:
            from kit.flows.queue.wait import not_meant  # noqa: PLC0415  (only for a run that waits in line)

            raise not_meant(door, answer)
        record = answer.get("stopping")
        if record is None:
            raise unknown_run(context, run)
        follower = Follower(run_of(door.host, record).id, door, Silent(), Manner())
        ending = follower.follow() if waits else None
        door = follower.door
    finally:
        door.close()
    return outcome(door.host, record, ending)


def _own_latest(door: Door, by: str) -> str | None:
    """Return the id of the latest active run, which this person started. Return None if no run is active."""
    # kit stop by-hand ends those that somebody started in the head's shell.
    living = runs_of(door.host, list(door.living))
    latest = owners.latest_of(living, by, command="kit stop", verb="stop", done="stopped")
    return latest.id if latest else None
