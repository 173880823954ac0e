"""The folders of runs on all hosts: look at them, and remove them (kit runs rm)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing

from kit.errors import Interrupted, KitError
from kit.events import Phase, Warned
from kit.flows.cluster.change import record
from kit.flows.context import Context
from kit.flows.run.listing import StoredRun, started, stored_runs
from kit.model.host import Host
from kit.model.results import RemoveRunsResult, RunFolder, RunSize, Survey
from kit.model.text import fold, size
from kit.plan.run import folders, owners
from kit.plan.run.hosts import MOST_HOSTS, not_among, recorded_hosts
from kit.remote.machine.operator import operator
from kit.remote.results import far
from kit.remote.ssh import fanout


def survey(context: Context) -> Survey:
    """Look at the folders of runs on all hosts. A host that fails is one of the failures."""

    def look(host: Host) -> tuple[tuple[RunFolder, ...], bool]:
        with closing(context.connect(host)) as transport:
            return far.survey_with_stack(transport, context.spec.name)

    context.reporter.report(Phase(name="look", hosts=context.inventory.names))
    outcome = fanout.each(context.inventory.hosts, look)
    return Survey(
        folders={host: there for host, (there, _) in outcome.results.items()},
        failures=outcome.failures,
        stacks=tuple(host for host, (_, stack) in outcome.results.items() if stack),
    )


def _records(context: Context, ids: Collection[str]) -> list[StoredRun]:
    """Return what the head keeps about these runs, or nothing if it cannot be read: a run goes without its record."""
    try:
        with closing(context.connect(context.inventory.head)) as transport:
            return [stored for stored in stored_runs(context, transport) if stored[0].id in ids]
    except Interrupted:
        raise
    except KitError:
        return []


def _not_in_hosts(context: Context, records: Sequence[StoredRun]) -> tuple[str, ...]:
    """Return the hosts of these runs that are not in the hosts file, and warn of them.

    When the record is gone, nobody can find out that such a host has files of the run.
    """
    inventory = context.inventory
    hosts = dict.fromkeys(host for run, fields in records for host in recorded_hosts(run, fields, inventory))
    missing, source = not_among(tuple(hosts), inventory), inventory.source
    if missing:
        runs = "the run" if len(records) == 1 else "these runs"
        text = f"{source} has no {fold(missing, most=MOST_HOSTS)}, which took part in {runs}: files there stay"
        hint = f"to delete them as well, first add these hosts to {source}, unless it has them by other names"
        context.reporter.report(Warned(text=text, hint=hint))
    return missing


def _stamp(context: Context, older_s: float) -> str:
    """Return the time `older_s` ago in the form of ids, by the clock of the head: kit runs prints ages by it."""
    with closing(context.connect(context.inventory.head)) as transport:
        now = far.clock(transport).there / 1e9
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(now - older_s))


def remove_runs(
    context: Context,
    words: Sequence[str],
    *,
    older_s: float | None,
    dry_run: bool,
    confirm: Callable[[tuple[RunSize, ...]], bool],
) -> RemoveRunsResult | None:
    """Remove the record, the log and everything else of runs from all hosts. Return None if `confirm` says no.

    Raises an error, and removes nothing, if a host cannot be asked: a part of the run would stay there.
    """
    state = survey(context)
    if state.failures:
        fanout.Outcome(results=state.folders, failures=state.failures).or_raise("kit runs rm")
    words = started(
        context,
        words,
        (folder.id for known in state.folders.values() for folder in known),
        "take it out of the line: kit queue rm {run}",
    )
    stamp = _stamp(context, older_s) if older_s is not None else None
    runs = folders.chosen(state, words, older_than=stamp)
    records = _records(context, {run.id for run in runs}) if runs else []
    not_in_hosts = _not_in_hosts(context, records)
    if warning := owners.removing({run.id: run.by for run, _ in records}, operator()):
        context.reporter.report(Warned(text=warning))
    result = RemoveRunsResult(cluster=context.spec.name, runs=runs, dry_run=dry_run, not_in_hosts=not_in_hosts)
    if dry_run or not runs:
        return result
    if not confirm(runs):
        return None
    ids = [run.id for run in runs]
    began = time.monotonic()

    def work(host: Host) -> None:
        with closing(context.connect(host)) as transport:
            far.remove(transport, context.spec.name, ids)

    outcome = "failed"
    try:
        # The head goes last: as long as it has the record, the same command can be repeated.
        head, *others = context.inventory.hosts
        fanout.each(others, work).or_raise("kit runs rm")
        fanout.each([head], work).or_raise("kit runs rm")
        outcome = "done"
    finally:
        what = f"{fold(ids, most=3)}: {size(sum(run.size for run in runs))}"
        record(context, "runs rm", what, outcome=outcome, seconds=time.monotonic() - began)
    return result
