"""kit down: look at the runs, plan, show, execute. It finds everything of the cluster by label."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing

from kit.errors import Interrupted, KitError, NotReadyError, StepError, UnreachableError
from kit.events import Warned
from kit.flows.cluster.change import changing
from kit.flows.cluster.others import hosts_without_record, ranks_there
from kit.flows.context import Context
from kit.flows.image.content import tag_of
from kit.flows.run.listing import listing, with_owners
from kit.model.host import Host
from kit.model.plan import Plan
from kit.model.result import DownPreview, DownResult
from kit.model.results import RunSize, Survey
from kit.plan.cluster.down import down_plan
from kit.plan.cluster.foreign import ranks_of_others
from kit.plan.flavour import candidates
from kit.plan.run import folders
from kit.plan.run.owners import active
from kit.remote.cluster.execute import execute
from kit.remote.results import far
from kit.remote.ssh.fanout import Outcome


def plan_down(context: Context, *, images: bool = False, purge: bool = False, stacks: Collection[str] = ()) -> Plan:
    """Return what `down` does. kit contacts no host for that. `stacks` are those of the survey."""
    wanted = candidates(context.spec.image).values() if images else ()
    tags = tuple(tag_of(context.spec, image) for image in wanted)
    return down_plan(context.spec, context.inventory.names, tags, keep=not purge, stacks=stacks)


def preview(cluster: str, survey: Survey, *, purge: bool) -> DownPreview:
    """Return which runs `down` deletes, and of which it keeps the results."""
    keeps, deletes = folders.split(survey)
    if purge:
        keeps, deletes = (), folders.sizes(survey)
    unknown = tuple(survey.failures)
    return DownPreview(cluster=cluster, keeps=keeps, deletes=deletes, keeps_homes=not purge, unknown=unknown)


def spare_runs(context: Context, living: Sequence[str], heads: Sequence[Host] = ()) -> None:
    """Raise NotReadyError if a run is active: removing its containers would end it. `heads` have its record."""
    if living:
        ends = ", and kit down would end it" if len(living) == 1 else ", and kit down would end them"
        raise NotReadyError(
            f"{active(with_owners(context, living, heads))}{ends}; nothing was removed",
            hint="wait for it (kit wait), stop it (kit stop ID), or end it by: kit down --force",
        )


def spare_line(waiting: Sequence[str]) -> None:
    """Raise NotReadyError if a run waits in line: the line goes with the cluster's folder."""
    if waiting:
        shown = ", ".join(waiting[:3]) + (f" and {len(waiting) - 3} more" if len(waiting) > 3 else "")
        raise NotReadyError(
            f"the run {shown} waits in line, and kit down would drop it; nothing was removed",
            hint="take it out of the line (kit queue rm), or drop it by: kit down --force",
        )


def spare_others(context: Context) -> None:
    """Raise NotReadyError if ranks run on a host that the head has not recorded: they can be another cluster's.

    Raise StepError if such a host answers, but not whether it has ranks. Its head is not asked, so `spare_runs` cannot
    know of them.
    """
    outcome = ranks_there(context, hosts_without_record(context))
    for error in outcome.failures.values():
        # A host that kit cannot reach fails when its turn comes, and does not keep the cluster on the others.
        spare_unknown(error, "ranks run there")
    source = context.inventory.source
    if text := ranks_of_others(outcome.results, (), cluster=context.spec.name, source=source):
        raise NotReadyError(
            f"{text}; nothing was removed",
            hint=f"if it is another cluster, remove the host from {source}; otherwise wait until they end, or end them "
            "by: kit down --force",
        )


def spare_unknown(error: KitError, what: str = "a run is active") -> None:
    """Raise StepError if the head answered, and its answer does not say whether there is something to spare.

    A head that cannot be reached, or that has no cluster, must not keep the cluster on the other hosts. If only its VM
    lacks Python, `down` asks its container.
    """
    if isinstance(error, Interrupted):
        raise error
    if not isinstance(error, UnreachableError | NotReadyError | far.NoPythonError):
        raise StepError(
            f"kit cannot know whether {what}: {error.message}; nothing was removed",
            hint="run the same again, or see why: kit runs; to end whatever runs there: kit down --force",
            host=error.host,
        ) from error


def down(
    context: Context,
    *,
    images: bool = False,
    purge: bool = False,
    force: bool = False,
    kept: Sequence[RunSize] = (),
    left: Sequence[str] = (),
    stacks: Collection[str] = (),
) -> DownResult:
    """Remove the cluster's containers and folder from all hosts, and with `images` also its image.

    What runs made and what they wrote to HOME stays, unless `purge`. Without `force`, raises NotReadyError if a run is
    active or waits in line, or if ranks run on a host that the head has not recorded, and StepError if a host answers,
    but not that. `kept` and `left` are for the result. `stacks` are those of the survey.
    Hosts are done side by side. One error at the end names all hosts that failed.
    """
    plan = plan_down(context, images=images, purge=purge, stacks=stacks)
    # A head that kit cannot reach gives no lock, and must not prevent the removal from the other hosts.
    with changing(context, "down", needs_lock=False) as change:
        if not force:
            # A run may have begun since the user was asked. First the line: a run that starts now must not be missed.
            waiting = _waiting(context)
            spare_runs(context, _living(context))
            spare_line(waiting)
            spare_others(context)
        change.what = f"{len(plan.hosts)} hosts" + (", with what runs made" if purge else "")
        lines: dict[str, list[str]] = {}
        execution = change.execution(context, removed=lines)
        failures = execute(execution, plan)
        if failures:
            # If the lock was lost, that is the one cause for all hosts.
            change.check()
        removed = {host: tuple(lines.get(host, ())) for host in plan.hosts if host not in failures}
        Outcome(results=removed, failures=failures).or_raise("kit down")
    data = tuple(sorted({name for names in execution.kept.values() for name in names}))
    homes = tuple(host for host in plan.hosts if host in execution.homes)
    return DownResult(cluster=plan.cluster, removed=removed, kept=tuple(kept), data=data, left=tuple(left), homes=homes)


def _living(context: Context) -> tuple[str, ...]:
    """Return the active runs. Return none, and warn, if the head cannot be reached."""
    head = context.inventory.head
    try:
        return _active(context)
    except KitError as error:
        spare_unknown(error)
        text = f"{head.name}: kit does not know whether a run is active, and goes on: {error.message}"
        context.reporter.report(Warned(text=text, hint=error.hint))
    return ()


def _active(context: Context) -> tuple[str, ...]:
    try:
        with closing(context.connect(context.inventory.head)) as transport:
            return tuple(run.id for run in far.survey(transport, context.spec.name) if run.live)
    except far.NoPythonError:
        # Then the Python of the head's container reads the runs.
        return tuple(run.id for run in listing(context).runs if run.state == "running")


def _waiting(context: Context) -> tuple[str, ...]:
    """Return the runs in line. Return none if the head cannot be reached; `_living` warns of that."""
    try:
        return tuple(run.id for run in listing(context).waiting)
    except KitError as error:
        spare_unknown(error, "a run waits in line")
    return ()
