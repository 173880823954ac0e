"""kit runs, attach, logs, wait, stop: what became of the runs of a cluster, from any machine that reaches its head."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from kit.errors import InputError, NotReadyError, StepError
from kit.events import Silent
from kit.flows.context import Context
from kit.flows.run.follow import Follower, Manner
from kit.model import names
from kit.model.result import RunsResult
from kit.model.run import RunRecord
from kit.plan.run import records as runs
from kit.remote.machine.operator import operator
from kit.remote.run.door import Door, Spool
from kit.remote.scripts import script

WHOLE_LOG = 0


def listing(context: Context) -> RunsResult:
    """All runs that the head remembers, the latest first. Asked of the VM, so it works when no container runs."""
    head = context.inventory.head
    with closing(context.connect(head)) as transport:
        done = transport.run(script("runs", _folder(context)), timeout_s=30)
    if done.code != 0:
        raise StepError(
            f"its runs could not be read: {done.error_text or f'exit {done.code}'}",
            hint=f"look at it by hand: kit ssh {head.name}",
            host=head.name,
        )
    latest = sorted(parse(done.text), key=lambda run: (run.started, run.id), reverse=True)
    return RunsResult(cluster=context.spec.name, runs=tuple(latest))


def parse(text: str) -> list[RunRecord]:
    """The output of runs.sh."""
    found = []
    # Only at the beginning of a line: a command may hold anything.
    for block in re.split(r"^@@ ", text, flags=re.MULTILINE)[1:]:
        live, _, rest = block.partition("\n")
        objects = [json.loads(line) for line in rest.splitlines() if line.strip()]
        if objects:
            found.append(runs.record_of(objects[0], objects[1] if len(objects) > 1 else None, live=live == "yes"))
    return found


def attach(context: Context, run: str | None, *, tagged: bool) -> RunRecord:
    """All of the log, then what comes. Ctrl-C ends the looking and not the run: its state is then `running`."""
    return _look(context, run, Manner(tagged=tagged))


def wait(context: Context, run: str | None) -> RunRecord:
    """Until the run has ended, with nothing of its log told."""
    return _look(context, run, Manner(), silent=True)


def run_logs(
    context: Context, run: str, *, rank: int | None, since_s: float | None, follow: bool | None, tagged: bool
) -> RunRecord:
    since = time.time() - since_s if since_s is not None else 0.0
    return _look(context, run, Manner(tagged=tagged, rank=rank, since=since, follow=bool(follow)))


def _look(context: Context, run: str | None, manner: Manner, *, silent: bool = False) -> RunRecord:
    try:
        door = _open(context)
    except NotReadyError as error:
        return _from_disk(context, run, manner, error, silent=silent)
    try:
        answer = door.ask({"op": "attach", "id": run or "", "offset": WHOLE_LOG, "follow": manner.follow})
        record = answer.get("attached")
        if record is None:
            raise _missing(run)
        follower = Follower(str(record["id"]), door, Silent() if silent else context.reporter, manner)
        ending = follower.follow()
        door = follower.door
    finally:
        door.close()
    return _ended(record, ending)


def _from_disk(context: Context, run: str | None, manner: Manner, error: NotReadyError, *, silent: bool) -> RunRecord:
    """What the head's VM keeps, where its container does not run: a run that has ended can be read all the same."""
    found = [each for each in listing(context).runs if each.id.startswith(run or "")]
    if not found:
        raise error
    if not silent:
        head = context.login(context.inventory.head)
        spool = Spool(head, f"{_folder(context)}/{found[0].id}/log")
        try:
            Follower(found[0].id, spool, context.reporter, replace(manner, follow=False)).follow()
        finally:
            spool.close()
    return found[0]


def _folder(context: Context) -> str:
    return f"{names.folder(context.spec.name)}/{names.RUNS}"


def stop(context: Context, run: str | None, *, grace_s: float | None) -> RunRecord:
    """End a run, and wait until its supervisor has looked at every host. One that has ended is left as it is."""
    door = _open(context)
    grace = 10.0 if grace_s is None else grace_s
    by = operator()
    try:
        door.send({"op": "stop", "id": run or "", "why": f"stopped by {by}", "grace": grace, "by": by})
        looks = True
        try:
            answer = door.answer()
        except KeyboardInterrupt:
            # The head has been asked already, and ends the run: the looking alone ends, as it would a moment later.
            looks = False
            answer = door.answer()
        if "over" in answer:
            return runs.record_of(answer["over"], answer.get("ending") or {}, live=False)
        record = answer.get("stopping")
        if record is None:
            raise _missing(run)
        follower = Follower(str(record["id"]), door, Silent(), Manner())
        ending = follower.follow() if looks else None
        door = follower.door
    finally:
        door.close()
    return _ended(record, ending)


def _ended(record: Mapping[str, Any], ending: Mapping[str, Any] | None) -> RunRecord:
    if ending is None:
        return runs.record_of(record, live=True)
    if ending.get("lost"):
        return runs.record_of(record, live=False)
    return runs.record_of(record, ending)


def _open(context: Context) -> Door:
    door = Door(context.login(context.inventory.head), names.container(context.spec.name, names.HEAD))
    try:
        door.open()
    except BaseException:
        door.close()
        raise
    return door


def _missing(run: str | None) -> Exception:
    if not run:
        return NotReadyError("this cluster has had no run yet", hint="kit run --np 8 --npernode 2")
    return InputError(f"there is no run '{run}' on the head, or more than one begins so", hint="kit runs shows them")
