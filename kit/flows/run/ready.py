"""Gets everything ready that the start of a run needs: its options, code, data, hosts, and the door to the head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from kit.errors import KitError
from kit.events import Note, Warned
from kit.flows.cluster.drift import differences
from kit.flows.context import Context
from kit.flows.run.answers import runs_of
from kit.flows.run.attach import open_door
from kit.flows.run.code import Code, Stored, Taken, check_workdir
from kit.flows.run.planning import plan_launch, selected_hosts
from kit.flows.run.unread import without_input
from kit.model.answer import answer_of
from kit.model.host import Host
from kit.model.launch import ClusterRecord, LaunchPlan, Node, RunRequest
from kit.model.run import RunRecord
from kit.plan.cluster import drift
from kit.plan.cluster.record import from_text, nodes_for_runs
from kit.plan.run import elastic, encoding, gpus, known, retries, roles, terminal, torchrun
from kit.plan.run.cores import EXCLUSIVE
from kit.remote.machine.operator import operator
from kit.remote.run.door import Door, new_run_id

if TYPE_CHECKING:
    from kit.model.queue import Cordon, Reserved

Made = TypeVar("Made")


class Ready(Struct, frozen=True, kw_only=True):
    """What the start of a run needs. The caller closes `door`.

    `nodes` are the hosts that it may use now, and `cordoned` those that it may use later, if it joins the line. `by` is
    user@machine of this person. `exclusive`: each run has CPUs for itself: as deployed, so that it is the same for all
    runs.
    """

    request: RunRequest
    door: Door
    cluster: ClusterRecord
    nodes: Sequence[Node]
    code: Code | None
    by: str
    exclusive: bool
    cordoned: Sequence[Node] = ()


def make_ready(context: Context, request: RunRequest, *, door: Door | None = None, waits: bool = False) -> Ready:
    """Check the request, begin to take its code, stage its data, and open the door.

    `door` is one that is already connecting (kit.flows.run.dial). `waits`: the run joins the line.
    """
    earlier = None
    if request.again:
        from kit.flows.run.again import repeat  # noqa: PLC0415  (it also imports what reads records of earlier runs)

        request, earlier = repeat(context, request)
    roles.check(request)
    encoding.check(request, request.command or context.spec.job)
    torchrun.check(request, request.command or context.spec.job)
    terminal.check(request)
    retries.check(request)
    elastic.check(request, context.spec.image)
    selected = selected_hosts(context, request)
    by = operator()
    code = _code(context, request, earlier)
    check_workdir(request.workdir, code)
    door = _staged(context, request, selected, open_door(context, door), waits=waits)
    try:
        cluster = from_text(door.record)
        known.check(request, door.options, has_line=door.waiting is not None, host=door.host)
        differing = differences(cluster.settings, context.spec)
        if differing and not request.as_deployed:
            raise drift.refusal(differing, cluster.version)
        if earlier is not None and earlier.get("image") != cluster.image:
            text = f"run {earlier['id']} had the image {earlier.get('image')}; the cluster has {cluster.image} now"
            context.reporter.report(Warned(text=text))
        hosts, cordons = _without_cordoned(selected, door, named=request.hosts is not None, waits=waits)
        nodes = nodes_for_runs(hosts, cluster)
        later = _cordoned(context, selected, cordons, cluster, waits=waits)
    except BaseException:
        door.close()
        raise
    if request.launcher == elastic.LAUNCHER:
        request = without_input(request, context.reporter, ranks="ranks of an elastic run")
    return Ready(
        request=request,
        door=door,
        cluster=cluster,
        nodes=nodes,
        code=code,
        by=by,
        exclusive=cluster.settings.get("cpus", context.spec.cpus) == EXCLUSIVE,
        cordoned=later,
    )


def planned(context: Context, ready: Ready, *, run_id: str = "", others: RunRecord | None = None) -> LaunchPlan:
    """Return the plan of a launch on free slots, after its hosts have the code.

    `run_id` is a new one by default. `others` holds slots that the run must not have, although no run holds them.
    """
    run_id = run_id or new_run_id()
    living = [*runs_of(ready.door.host, list(ready.door.living)), *([others] if others else [])]
    first = None if ready.request.now else _reserved(ready.door)

    def plan() -> LaunchPlan:
        return plan_on(context, ready, ready.request, run_id=run_id, living=living, first=first)

    return with_code(context, ready, plan, lambda made: [node.name for node in made.placement.nodes])


def plan_on(
    context: Context,
    ready: Ready,
    request: RunRequest,
    *,
    run_id: str,
    living: Sequence[RunRecord] = (),
    first: Reserved | None = None,
) -> LaunchPlan:
    """Return the plan of one launch on the hosts of `ready` (see plan_launch)."""
    plan = plan_launch(
        context,
        request,
        ready.nodes,
        ready.cluster.nodes[0],
        covering=ready.cluster.network,
        run_id=run_id,
        living=living,
        first=first,
        code=ready.code.digest if ready.code else "",
        exclusive=ready.exclusive,
        data=ready.cluster.data_networks,
    )
    gpus.check_idle(request.policy, plan.placement.nodes)
    return plan


def _reserved(door: Door) -> Reserved | None:
    """Return what is reserved for the first run in line, if anything is."""
    if not door.reserved:
        return None
    from kit.flows.run.past import reserved  # noqa: PLC0415  (only where runs wait)

    return reserved(door, door.reserved)


def with_code(context: Context, ready: Ready, plan: Callable[[], Made], hosts: Callable[[Made], Sequence[str]]) -> Made:
    """Return what `plan` makes, after its `hosts` have the code. If the code changes meanwhile, take it again."""
    code = ready.code
    while True:
        made = plan()
        if code is None:
            return made
        try:
            code.bring(context, ready.door, ready.cluster, hosts(made))
        except KitError as error:
            if not code.retake(error):
                raise
        else:
            return made


def _staged(context: Context, request: RunRequest, hosts: Sequence[Host], door: Door, *, waits: bool) -> Door:
    """Stage the run's data sets where its hosts lack them. Return a door that has not grown old meanwhile."""
    if not request.data:
        return door
    from kit.flows.data.missing import stage_missing  # noqa: PLC0415  (only for --data)

    try:
        usable, _ = _without_cordoned(hosts, door, named=request.hosts is not None, waits=waits)
        # A run in line may use cordoned hosts later, and nobody looks for its data then.
        staged = stage_missing(context, request.data, [host.name for host in (hosts if waits else usable)])
    except BaseException:
        door.close()
        raise
    if not staged:
        return door
    # What the head said of its runs is out of date.
    door.close()
    return open_door(context)


def _code(context: Context, request: RunRequest, earlier: Mapping[str, Any] | None) -> Code | None:
    """Return the code of the run. `earlier` is the record of the run that --again repeats, or None.

    A run that had no code gets none, unless the command line has --code.
    """
    if earlier is not None and request.code is None:
        code = earlier.get("code")
        return Stored(str(earlier["id"]), code) if code else None
    source = context.spec.code_source
    return Taken(source, context.reporter, context) if source else None


def _without_cordoned(
    selected: Sequence[Host], door: Door, *, named: bool, waits: bool
) -> tuple[Sequence[Host], Sequence[Cordon]]:
    """Return the hosts on which a new run may be placed now, and the cordons of the others."""
    if not door.cordons:
        return selected, ()
    from kit.plan.queue import answers, cordons  # noqa: PLC0415  (only where hosts are cordoned)

    with answer_of(door.host, "its list of cordoned hosts"):
        out = answers.cordons(door.cordons)
    return cordons.usable(selected, out, named=named, waits=waits)


def _cordoned(
    context: Context, selected: Sequence[Host], out: Sequence[Cordon], cluster: ClusterRecord, *, waits: bool
) -> Sequence[Node]:
    """Return the cordoned hosts that a run in line may use later. Report what happens to all of them."""
    if not out:
        return ()
    # Only where hosts are cordoned:
    import shlex  # noqa: PLC0415

    from kit.model.text import fold  # noqa: PLC0415
    from kit.plan.queue import cordons  # noqa: PLC0415

    deployed = {node.name for node in cluster.nodes}
    later = [cordon for cordon in out if waits and cordon.host in deployed]
    for group in cordons.alike(later):
        # To a shell, gpu[1-3] is a pattern, which zsh refuses.
        hosts = shlex.quote(fold(cordon.host for cordon in group))
        them = "it" if len(group) == 1 else "them"
        text = f"{cordons.text(*group)}; the run may use {them} after: kit hosts uncordon {hosts}"
        context.reporter.report(Note(text=text))
    for group in cordons.alike(cordon for cordon in out if cordon not in later):
        them = "it" if len(group) == 1 else "them"
        context.reporter.report(Warned(text=f"{cordons.text(*group)}; the run does not use {them}"))
    names = {cordon.host for cordon in out} & deployed
    return nodes_for_runs([host for host in selected if waits and host.name in names], cluster)
