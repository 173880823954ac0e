"""The folders of runs on all hosts: look at them, and remove them (kit runs rm)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing

from kit.events import Phase
from kit.flows.cluster.change import record
from kit.flows.context import Context
from kit.model.host import Host
from kit.model.results import RemoveRunsResult, RunFolder, RunSize, Survey
from kit.model.text import fold, size
from kit.plan.run import folders
from kit.remote.results import far
from kit.remote.ssh import fanout


def survey(context: Context) -> Survey:
    """Look at the folders of runs on all hosts. A host that fails is one of the failures."""

    def look(host: Host) -> tuple[RunFolder, ...]:
        with closing(context.connect(host)) as transport:
            return far.survey(transport, context.spec.name)

    context.reporter.report(Phase(name="look", hosts=context.inventory.names))
    outcome = fanout.each(context.inventory.hosts, look)
    return Survey(folders=outcome.results, failures=outcome.failures)


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
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(time.time() - older_s)) if older_s is not None else None
    runs = folders.chosen(state, words, older_than=stamp)
    result = RemoveRunsResult(cluster=context.spec.name, runs=runs, dry_run=dry_run)
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
