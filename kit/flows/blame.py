"""kit blame: watch a run for some seconds, and name who slows it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from kit.errors import InputError, NotReadyError
from kit.events import HostFailed, Note, Phase, Warned
from kit.flows.context import Context
from kit.flows.run.listing import stored_run
from kit.model.blame import BlameResult
from kit.model.run import RunRecord
from kit.model.values import replace
from kit.model.watch import Seen, SuspectReading
from kit.plan.blame.confirm import confirmed, doubtful, unconfirmed
from kit.plan.blame.intervals import over, watched
from kit.plan.blame.judge import judge
from kit.plan.run.numbering import hosts_with_ranks
from kit.plan.watch.rows import trouble
from kit.remote.watch.watchers import Watchers

# kit watches for this long, and for up to MOST_S if the steps are long.
FOR_S, MOST_S = 10.0, 60.0
# A host that has not answered by then is left out.
START_S = 60.0
EVERY_S = 1.0
# The first second or so of readings has no length.
_KEPT = 4096
_OVER = "the run ended meanwhile, or starts its ranks again"

Readings = Mapping[str, Sequence[SuspectReading]]


def blame(context: Context, word: str | None, *, for_s: float | None = None) -> BlameResult:
    """Return who slows a run that runs now. `word` is its id, or see kit.plan.run.records.find.

    Without `for_s`, kit watches for FOR_S, longer if the run ended too few steps to say anything, and twice as long
    before it names anybody who costs little. Raises NotReadyError for a run that does not run.
    """
    record, fields = stored_run(context, word)
    if record.state != "running":
        raise NotReadyError(
            f"run {record.id} does not run any more, and kit blame looks at ranks at work",
            hint="kit runs lists the runs; kit runs show has what is left of this one",
        )
    known = {host.name: host for host in context.inventory.hosts}
    chosen = hosts_with_ranks(record, fields)
    np = sum(place.ranks for place in record.places if place.node in chosen)
    names = [name for name in chosen if name in known]
    missing = [name for name in chosen if name not in known]
    if missing and not names:
        text = f"no host of run {record.id} is in your hosts file: its ranks are on {', '.join(missing)}"
        raise InputError(text, hint="use the hosts file of the deploy")
    if missing:
        text = f"not in your hosts file, and so not watched: {', '.join(missing)}"
        context.reporter.report(Warned(text=text, hint="use the hosts file of the deploy"))
    context.reporter.report(Phase(name="watch", hosts=tuple(names)))
    with Watchers([known[name] for name in names], context.connect, every=EVERY_S, keep=_KEPT, run=record.id) as seen:
        seen.wait(_begun, START_S)
        start, last = time.monotonic(), for_s or FOR_S
        while True:
            ended = seen.wait(lambda hosts: _over(hosts, seen), max(0.0, start + last - time.monotonic()))
            result = _judged(context, record, np, _readings(seen))
            if for_s or ended or result.verdict != "too-few-steps" or last >= MOST_S:
                break
            last = min(MOST_S, last + FOR_S)
        if not for_s and doubtful(result):
            result = unconfirmed(result) if ended else _again(context, record, np, seen, result)
        notes = [*([_OVER] if _over(seen.now(), seen) else []), *_failed(context, seen.now())]
    return replace(result, notes=(*result.notes, *notes))


def _again(context: Context, record: RunRecord, np: int, seen: Watchers, first: BlameResult) -> BlameResult:
    """Watch for as long once more, and return what both looks say."""
    text = f"{first.culprit.host} costs the others little: looking again" if first.culprit else ""
    context.reporter.report(Note(text=text))
    before = {host: len(rows) for host, rows in seen.history().items()}
    seen.wait(lambda hosts: _over(hosts, seen), max(FOR_S, first.seconds))
    readings = _readings(seen)
    # The last reading of the first look begins the second one.
    later = {host: rows[max(0, before.get(host, 0) - 1) :] for host, rows in readings.items()}
    return confirmed(first, _judged(context, record, np, later), _judged(context, record, np, readings))


def _begun(hosts: Sequence[Seen]) -> bool:
    return all(one.number >= 1 or one.error is not None for one in hosts)


def _over(hosts: Sequence[Seen], seen: Watchers) -> bool:
    """Return whether the run had ranks, and has none any more. `hosts` is what `seen` knows now.

    A host that stopped answering does not say whether its ranks are still there, so the others decide.
    """
    there = [one for one in hosts if not _stopped(one)] or hosts
    if any(isinstance(one.reading, SuspectReading) and one.reading.suspects.ranks for one in there):
        return False
    readings = _readings(seen)
    return over({one.host: readings.get(one.host, ()) for one in there})


def _stopped(one: Seen) -> bool:
    return one.number > 0 and bool(trouble(one))


def _readings(seen: Watchers) -> Readings:
    history = seen.history()
    return {host: tuple(one for one in rows if isinstance(one, SuspectReading)) for host, rows in history.items()}


def _judged(context: Context, record: RunRecord, np: int, readings: Readings) -> BlameResult:
    slots = {host.name: host.slots for host in context.inventory.hosts}
    return judge(watched(record.id, record.places, readings, slots, np))


def _failed(context: Context, hosts: Sequence[Seen]) -> list[str]:
    """Report the hosts that kit could not watch, and return notes of them, and of those that stopped answering.

    Raise their error if kit could watch none.
    """
    failed = [(one.host, one.error) for one in hosts if one.error is not None and not one.number]
    if len(failed) == len(hosts) and failed and failed[0][1] is not None:
        raise failed[0][1]
    for name, error in failed:
        context.reporter.report(HostFailed(host=name, text=error.message if error else ""))
    absent = [f"{name} was not watched: {error.message if error else ''}" for name, error in failed]
    return absent + [_until(one) for one in hosts if _stopped(one)]


def _until(one: Seen) -> str:
    why = f": {one.error.message}" if one.error is not None else ""
    return (
        f"{one.host} stopped answering {one.age:.0f} s before the end{why}. kit judged only the time in which all "
        f"hosts answered (look at the host: kit ssh {one.host})"
    )
