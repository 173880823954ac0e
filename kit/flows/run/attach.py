"""kit attach, kit wait, kit logs RUN: print a run's log and report how the run ended."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from kit.errors import EngineDownError, InputError, NotReadyError
from kit.events import Event, OutputLine, Reporter, Silent, UnfinishedLine, Warned
from kit.flows.context import Context
from kit.flows.run.answers import outcome, run_of
from kit.flows.run.follow import Follower, Manner
from kit.flows.run.listing import listing, unknown_run
from kit.model import names
from kit.model.answer import MOST, answer_of, convert, within
from kit.model.run import RunRecord
from kit.model.values import replace
from kit.plan.queue.answers import check_time
from kit.plan.run.logevents import roles_of
from kit.plan.run.records import find
from kit.remote.run.door import Door, LogFile

WHOLE_LOG = 0
# How much of the end of a log has its last lines, in bytes: this, and this for each line. Most lines are shorter.
TAIL, TAIL_LINE = 1 << 20, 1 << 12


def attach(
    context: Context,
    run: str | None,
    *,
    tagged: bool,
    rank: int | None = None,
    since_s: float | None = None,
    tail: int | None = None,
    door: Door | None = None,
) -> RunRecord:
    """Print the log, or the part of it that is wanted, then follow it. Ctrl-C ends the printing only.

    After Ctrl-C, the run's state is `running`. `door`, here and below, is one that is already connecting
    (kit.flows.run.dial). `rank` selects one rank, `since_s` the lines of the last seconds, `tail` the last lines.
    """
    return run_logs(context, run, rank=rank, since_s=since_s, follow=True, tagged=tagged, tail=tail, door=door)


def wait(context: Context, run: str | None, *, door: Door | None = None) -> RunRecord:
    """Wait until the run has ended, and print nothing of its log."""
    return _look(context, run, Manner(), silent=True, door=door)


def run_logs(
    context: Context,
    run: str | None,
    *,
    rank: int | None,
    since_s: float | None,
    follow: bool | None,
    tagged: bool,
    tail: int | None = None,
    door: Door | None = None,
) -> RunRecord:
    """Print the log of a run, or the part of it that is wanted (see `attach`)."""
    manner = Manner(tagged=tagged, rank=rank, follow=bool(follow))
    return _look(context, run, manner, since_s=since_s, tail=tail, door=door)


def open_door(context: Context, door: Door | None = None) -> Door:
    """Return an open door to the runs of the cluster: the one that is already connecting, or a new one."""
    door = door or Door(context.login(context.inventory.head), names.container(context.spec.name, names.HEAD))
    try:
        door.open()
    except BaseException:
        door.close()
        raise
    return door


class _Last:
    """A reporter that holds back all but the last lines of output, until `release`. `hold`: also other events."""

    def __init__(self, reporter: Reporter, count: int, *, hold: bool = False) -> None:
        self._reporter, self._count, self._hold = reporter, count, hold
        self._lines: deque[Event] = deque(maxlen=count)
        self._others: list[Event] = []

    @property
    def full(self) -> bool:
        """Whether there are as many lines as wanted."""
        return len(self._lines) == self._count

    def report(self, event: Event) -> None:
        match event:
            case OutputLine():
                self._lines.append(event)
            case UnfinishedLine():
                # The whole line comes later.
                pass
            case _ if self._hold:
                self._others.append(event)
            case _:
                self._reporter.report(event)

    def release(self) -> None:
        for event in self._others:
            self._reporter.report(event)
        while self._lines:
            self._reporter.report(self._lines.popleft())


def _look(
    context: Context,
    run: str | None,
    manner: Manner,
    *,
    since_s: float | None = None,
    silent: bool = False,
    tail: int | None = None,
    door: Door | None,
    whole: bool = False,
) -> RunRecord:
    """Follow the log as `manner` says. `silent`: print nothing. `whole`: read it from its beginning in any case.

    `since_s` counts back from now, by the clock of the head, whose times the log has.
    """
    reporter: Reporter = Silent() if silent else context.reporter
    try:
        door = open_door(context, door)
    except NotReadyError as error:
        return _from_disk(context, run, manner, error, reporter, since_s=since_s, tail=tail)
    # With `tail`, kit first reads what there is, and then follows what comes.
    follows = manner.follow and tail is None
    try:
        # A run in line has no log to show yet.
        request = {
            "op": "attach", "id": run or "", "offset": WHOLE_LOG, "follow": follows, "line": manner.follow,
            "tail": 0 if whole else _wanted_bytes(tail, silent=silent),
        }  # fmt: skip
        answer = door.ask(request)
        if "queued" in answer or "array" in answer:
            from kit.flows.queue.wait import until_attached  # noqa: PLC0415  (only for a run that waits in line)

            if manner.follow and not follows:
                door.close()
                # It has no last lines yet.
                return _look(context, run, manner, since_s=since_s, silent=silent, door=None)
            door, answer = until_attached(door, request, answer, context.reporter, follow=manner.follow)
        record = answer.get("attached")
        if record is None:
            raise unknown_run(context, run)
        attached = run_of(door.host, record)
        _check_rank(attached, manner.rank)
        manner = _since(manner, since_s, door, answer)
        if answer.get("pruned") and not silent:
            reporter.report(_pruned(attached.id))
        offset = _offset(door, answer)
        last = _Last(reporter, tail, hold=offset > 0) if tail is not None else None
        ranks = _ranks(door.host, attached) if offset else {}
        first = replace(manner, follow=follows)
        # Only with `tail` does it go on after these lines.
        continues = manner.follow and not follows
        follower = Follower(attached.id, door, last or reporter, first, continues=continues, **ranks)
        ending = follower.follow(offset)
        door = follower.door
        # What is before the first entry is older still.
        if last is not None and offset and not (last.full or follower.interrupted or follower.began < manner.since):
            door.close()
            return _look(context, attached.id, manner, since_s=since_s, tail=tail, door=door.another(), whole=True)
        if last is not None:
            ending = _release(last, follower, ending, reporter, manner)
            door = follower.door
    finally:
        door.close()
    return outcome(door.host, record, ending)


def _wanted_bytes(tail: int | None, *, silent: bool) -> int:
    """Return how much of the end of the log is wanted, in bytes, or 0 for all of it. The head may send more."""
    if tail is not None:
        return TAIL + tail * TAIL_LINE
    # How a run ended comes after its log.
    return 1 if silent else 0


def _offset(door: Door, answer: Mapping[str, Any]) -> int:
    """Return the byte at which the log of an answer begins. An older launcher sends all of it."""
    with answer_of(door.host, "an answer of its launcher"):
        offset = convert(answer.get("offset", WHOLE_LOG), int)
        within(offset, 0, MOST, "the beginning of the log")
    return offset


def _since(manner: Manner, since_s: float | None, door: Door, answer: Mapping[str, Any]) -> Manner:
    """Return the manner that skips what is older than `since_s`, by the head's clock in its answer.

    An older launcher does not give the time. Then kit takes this machine's.
    """
    if since_s is None:
        return manner
    with answer_of(door.host, "an answer of its launcher"):
        now = convert(answer.get("now"), float | None)
        check_time(now or 0.0)
    return replace(manner, since=(time.time() if now is None else now) - since_s)


def _ranks(head: str, record: RunRecord) -> dict[str, Any]:
    """Return what the beginning of a run's log says of its ranks, for a Follower that does not read it."""
    with answer_of(head, "the record of a run"):
        return {"np": record.np, "roles": roles_of({"np": record.np, "roles": record.roles})}


def _release(
    last: _Last, follower: Follower, ending: Mapping[str, Any] | None, reporter: Reporter, manner: Manner
) -> Mapping[str, Any] | None:
    """Print the last lines, and follow the run from there if it goes on. Return its ending."""
    goes_on = manner.follow and ending is None and not follower.interrupted
    if not goes_on:
        follower.finish()
    last.release()
    return _go_on(follower, reporter, manner) if goes_on else ending


def _go_on(follower: Follower, reporter: Reporter, manner: Manner) -> Mapping[str, Any] | None:
    """Follow a run from where the follower stopped, and return its ending."""
    follower.door.close()
    door = follower.door.another()
    try:
        door.open()
        door.ask({"op": "attach", "id": follower.run_id, "offset": follower.position, "follow": True})
        return follower.go_on(door, reporter, manner)
    except BaseException:
        door.close()
        raise


def _pruned(run: str) -> Warned:
    return Warned(
        text=f"the log of run {run} was deleted, as runs.keep and runs.ttl_days in kit.yaml say",
        hint=f"see what is left of the run: kit runs show {run}",
    )


def _check_rank(record: RunRecord, rank: int | None) -> None:
    """Raise InputError if the run has no such rank."""
    count = record.most_np + len(record.roles)
    if rank is not None and rank >= count > 0:
        ranks = "its only rank is 0" if count == 1 else f"its ranks are 0 to {count - 1}"
        raise InputError(f"run {record.id} has no rank {rank}", hint=ranks)


def _from_disk(
    context: Context,
    run: str | None,
    manner: Manner,
    error: NotReadyError,
    reporter: Reporter,
    *,
    since_s: float | None,
    tail: int | None,
) -> RunRecord:
    """Read a run from the disk of the head's VM if its container is down.

    Raises `error` if no run matches, or if the run goes on without an engine and is to be followed.
    """
    listed = listing(context)
    record = find(listed.runs, run)
    if record is None:
        raise error
    _check_rank(record, manner.rank)
    if since_s is not None:
        manner = replace(manner, since=(time.time() if listed.now is None else listed.now) - since_s)
    if not isinstance(reporter, Silent):
        last = _Last(reporter, tail) if tail is not None else None
        log = LogFile(context.login(context.inventory.head), names.folder(context.spec.name), record.id)
        follower = Follower(record.id, log, last or reporter, replace(manner, follow=False))
        try:
            follower.follow()
        finally:
            log.close()
        # The log of a run is never empty.
        if not follower.position:
            reporter.report(_pruned(record.id))
        if last is not None:
            last.release()
    if manner.follow and record.state == "running" and isinstance(error, EngineDownError):
        # With live-restore, the run goes on. Nobody may take this for its end.
        raise error
    return record
