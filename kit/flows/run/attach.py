"""kit attach, kit wait, kit logs RUN: print a run's log and report how the run ended."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kit.errors import InputError, NotReadyError
from kit.events import Silent
from kit.flows.context import Context
from kit.flows.run.follow import Follower, Manner
from kit.flows.run.listing import listing, runs_folder
from kit.model import names
from kit.model.run import RunRecord
from kit.plan.run.records import record_of
from kit.remote.run.door import Door, LogFile

WHOLE_LOG = 0


def attach(context: Context, run: str | None, *, tagged: bool, door: Door | None = None) -> RunRecord:
    """Print the whole log, then follow it. Ctrl-C ends the printing only; the run's state is then `running`.

    `door`, here and below, is one that is already connecting (kit.flows.run.dial).
    """
    return _look(context, run, Manner(tagged=tagged), door=door)


def wait(context: Context, run: str | None, *, door: Door | None = None) -> RunRecord:
    """Wait until the run has ended, and print nothing of its log."""
    return _look(context, run, Manner(), silent=True, door=door)


def run_logs(
    context: Context,
    run: str,
    *,
    rank: int | None,
    since_s: float | None,
    follow: bool | None,
    tagged: bool,
    door: Door | None = None,
) -> RunRecord:
    """Print the log of a run: of one rank, or from `since_s` seconds ago, if given."""
    since = time.time() - since_s if since_s is not None else 0.0
    return _look(context, run, Manner(tagged=tagged, rank=rank, since=since, follow=bool(follow)), door=door)


def open_door(context: Context, door: Door | None = None) -> Door:
    """Return an open door to the runs of the cluster: the one that is already connecting, or a new one."""
    door = door or Door(context.login(context.inventory.head), names.container(context.spec.name, names.HEAD))
    try:
        door.open()
    except BaseException:
        door.close()
        raise
    return door


def outcome(record: Mapping[str, Any], ending: Mapping[str, Any] | None) -> RunRecord:
    """Return a run's record with its ending; without one, the run is still running."""
    if ending is None:
        return record_of(record, live=True)
    if ending.get("lost"):
        return record_of(record, live=False)
    return record_of(record, ending)


def no_such_run(run: str | None) -> Exception:
    """Return the error for a run that the head does not have."""
    if not run:
        return NotReadyError("this cluster has had no run yet", hint="start one: kit run --np 8 --npernode 2")
    return InputError(f"no run '{run}' on the head, or several ids start with it", hint="list the runs: kit runs")


def _look(context: Context, run: str | None, manner: Manner, *, silent: bool = False, door: Door | None) -> RunRecord:
    try:
        door = open_door(context, door)
    except NotReadyError as error:
        return _from_disk(context, run, manner, error, silent=silent)
    try:
        answer = door.ask({"op": "attach", "id": run or "", "offset": WHOLE_LOG, "follow": manner.follow})
        record = answer.get("attached")
        if record is None:
            raise no_such_run(run)
        follower = Follower(str(record["id"]), door, Silent() if silent else context.reporter, manner)
        ending = follower.follow()
        door = follower.door
    finally:
        door.close()
    return outcome(record, ending)


def _from_disk(context: Context, run: str | None, manner: Manner, error: NotReadyError, *, silent: bool) -> RunRecord:
    """Read a run from the disk of the head's VM if its container is down. Raises `error` if no run matches."""
    matches = [record for record in listing(context).runs if record.id.startswith(run or "")]
    if not matches:
        raise error
    record = matches[0]
    if not silent:
        log = LogFile(context.login(context.inventory.head), f"{runs_folder(context)}/{record.id}/log")
        try:
            Follower(record.id, log, context.reporter, replace(manner, follow=False)).follow()
        finally:
            log.close()
    return record
