"""kit wait with the id of an array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kit.errors import InputError, NotReadyError
from kit.events import Note, Warned
from kit.flows.context import Context
from kit.flows.run.attach import wait
from kit.flows.run.listing import arrays_of, listing
from kit.model.result import RunsResult
from kit.model.run import Member, RunRecord
from kit.model.text import plural

_GONE = "taken out of the line, or removed by kit runs rm or runs.keep"
_LIST = "list the runs: kit runs"


def wait_for_all(context: Context, array: str) -> tuple[RunRecord, ...]:
    """Wait until all runs of an array have ended. Return those whose ends kit saw, in the order of their indexes.

    Others left the line, or their records were removed before kit could see them: kit warns of these. After Ctrl-C, one
    of them has the state `running`. Raises NotReadyError for a run that can never start, and if the head knows none of
    them any more.
    """
    last = -1
    # The head keeps a limited number of records, and later runs may end while kit waits.
    ended: dict[str, RunRecord] = {}
    while True:
        listed, members = _looked(context, array)
        if not members and not ended:
            raise NotReadyError(f"the head does not know any run of {array} any more: {_GONE}", hint=_LIST)
        ended |= {run.id: run for run in listed.runs if run.id in members and run.state != "running"}
        active = _active(listed, members)
        if len(ended) != last and active:
            known = len({*members, *ended})
            context.reporter.report(Note(text=f"{len(ended)} of {plural(known, 'run')} of {array} have ended"))
            last = len(ended)
        if not active:
            records = _in_order(ended.values())
            _warn_of_missing(context, array, [run.array for run in records if run.array])
            return records
        try:
            record = wait(context, active[0])
        except (InputError, NotReadyError):
            if active[0] in _looked(context, array)[1]:
                raise
            # Somebody took it out of the line. The others go on.
            continue
        if record.state == "running":
            return (*_in_order(ended.values()), record)
        ended[record.id] = record


def _in_order(records: Iterable[RunRecord]) -> tuple[RunRecord, ...]:
    """Return runs of an array in the order of their indexes."""
    return tuple(sorted(records, key=lambda run: (run.array.index if run.array else 0, run.id)))


def _looked(context: Context, array: str) -> tuple[RunsResult, list[str]]:
    """Return the runs that the head knows, and the ids of those of the array."""
    listed = listing(context)
    return listed, arrays_of(listed).get(array, [])


def _active(listed: RunsResult, members: Sequence[str]) -> list[str]:
    """Return the runs of an array that have not ended: those that run first, then those in line by their turns."""
    running = [run.id for run in listed.runs if run.id in members and run.state == "running"]
    return [*running, *(run.id for run in listed.waiting if run.id in members)]


def _warn_of_missing(context: Context, array: str, members: Sequence[Member]) -> None:
    """Warn of runs of which nobody knows how they ended."""
    size = max((member.size for member in members), default=0)
    if len(members) < size:
        missing = plural(size - len(members), "run")
        text = f"the head does not know {missing} of {array} any more: {_GONE}"
        context.reporter.report(Warned(text=text, hint=_LIST))
