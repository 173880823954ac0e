"""kit run: place the ranks on free slots, start the run on the head, and follow it. kit exits with the job's code."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kit.errors import Interrupted, KitError, NotReadyError
from kit.events import Note, Warned
from kit.flows.context import Context
from kit.flows.run.again import repeat
from kit.flows.run.answers import run_of, runs_of
from kit.flows.run.attach import open_door
from kit.flows.run.busy import check_gpus
from kit.flows.run.code import Code, Stored, Taken, check_workdir
from kit.flows.run.environment import sources
from kit.flows.run.follow import GRACE_S, PATIENCE, Follower, Manner
from kit.flows.run.node_log import with_node_log
from kit.flows.run.planning import dry_run, plan_launch, selected_hosts
from kit.flows.run.stop import stop
from kit.model.host import Host
from kit.model.launch import ClusterRecord, LaunchPlan, Node, RunRequest
from kit.model.result import RunResult
from kit.model.run import RunRecord
from kit.plan.cluster import drift
from kit.plan.cluster.record import from_text
from kit.plan.run import leases, records, roles, terminal, torchrun
from kit.plan.run.again import kept_options
from kit.plan.run.cores import EXCLUSIVE
from kit.remote.machine.operator import operator
from kit.remote.run.door import Door, new_run_id
from kit.remote.run.feed import Feed
from kit.remote.run.values import remember


def run(context: Context, request: RunRequest, *, door: Door | None = None) -> RunResult:
    """Run the request's command on the cluster. `exit_code` of the result is the job's; None if kit did not wait.

    `door` is one that is already connecting (kit.flows.run.dial).

    Raises Interrupted after Ctrl-C, when no rank is left on any host that kit can reach.
    """
    if request.dry_run:
        return dry_run(context, request)
    start = time.monotonic()
    request, earlier = repeat(context, request) if request.again else (request, None)
    roles.check(request)
    torchrun.check(request, request.command or context.spec.job)
    terminal.check(request)
    selected = selected_hosts(context, request)
    by = operator()
    code = _code(context, request, earlier)
    check_workdir(request.workdir, code)
    door = open_door(context, _staged(context, request, selected, door))
    try:
        cluster = from_text(door.record)
        if request.stdin is not None and not door.takes_stdin:
            raise NotReadyError(
                "the cluster's image does not pass standard input on to rank 0",
                hint="run: kit deploy; or run without input: kit run … </dev/null",
            )
        differing = drift.differences(cluster.settings, context.spec)
        if differing and not request.as_deployed:
            raise drift.refusal(differing)
        if earlier is not None and earlier.get("image") != cluster.image:
            text = f"run {earlier['id']} had the image {earlier.get('image')}; the cluster has {cluster.image} now"
            context.reporter.report(Warned(text=text))
        nodes = [_node(host, cluster) for host in selected]
        plan = _planned(context, request, code, door, nodes)
        check_gpus(context, plan, cluster.name, ignore=request.ignore_busy_gpus)
        start_request = records.start_request(
            plan,
            cluster=cluster.name,
            image=cluster.image,
            head=cluster.nodes[0].name,
            by=by,
            wait=request.wait,
            code=code.record if code else None,
            options=kept_options(request, sources(request.env)),
            stdin=request.stdin is not None,
            exclusive=_exclusive(context, cluster),
        )
        manner = Manner(tagged=request.tag_output, operator=True, by=by)
        follower = Follower(plan.run_id, door, context.reporter, manner)
        follower.before = _started(context, plan, door, start_request)
        remember(plan.run_id, dict(request.env))
        if request.stdin is not None:
            follower.feed = Feed(request.stdin, door)
            follower.feed.start()
    except BaseException:
        door.close()
        raise
    if request.detach:
        door.close()
        if follower.before:
            ended = stop(context, plan.run_id, grace_s=GRACE_S)
            raise Interrupted(f"run {plan.run_id} was stopped; ranks left: {_left(ended)}")
        record = records.started_record(start_request, started=time.time())
        return RunResult(plan=plan, exit_code=None, seconds=time.monotonic() - start, record=record)
    if request.terminal:
        from kit.flows.run.terminal import in_terminal  # noqa: PLC0415  (only for -it)

        in_terminal(context, plan, follower)
    return _follow(context, plan, follower, start, start_request)


def _staged(context: Context, request: RunRequest, hosts: Sequence[Host], door: Door | None) -> Door | None:
    """Stage the run's data sets where its hosts lack them. Return the door, unless it has grown old meanwhile."""
    if not request.data:
        return door
    from kit.flows.data.stage import stage_missing  # noqa: PLC0415  (only for --data)

    try:
        staged = stage_missing(context, request.data, [host.name for host in hosts])
    except BaseException:
        if door is not None:
            door.close()
        raise
    if staged and door is not None:
        # What the head said of its runs is out of date.
        door.close()
        return None
    return door


def _code(context: Context, request: RunRequest, earlier: Mapping[str, Any] | None) -> Code | None:
    """Return the code of the run. `earlier` is the record of the run that --again repeats, or None.

    A run that had no code gets none, unless the command line has --code.
    """
    if earlier is not None and request.code is None:
        code = earlier.get("code")
        return Stored(str(earlier["id"]), code) if code else None
    source = context.spec.code_source
    return Taken(source, context.reporter) if source else None


def _planned(context: Context, request: RunRequest, code: Code | None, door: Door, nodes: list[Node]) -> LaunchPlan:
    """Return the plan of the launch, after its hosts have the code. If the code changes meanwhile, take it again."""
    cluster = from_text(door.record)
    run_id = new_run_id()
    living = runs_of(door.host, list(door.living))
    while True:
        plan = plan_launch(
            context,
            request,
            nodes,
            cluster.nodes[0],
            covering=cluster.network,
            run_id=run_id,
            living=living,
            code=code.digest if code else "",
            exclusive=_exclusive(context, cluster),
            data=cluster.data_networks,
        )
        if code is None:
            return plan
        try:
            code.bring(context, door, cluster, [node.name for node in plan.placement.nodes])
        except KitError as error:
            if not code.retake(error):
                raise
        else:
            return plan


def _exclusive(context: Context, cluster: ClusterRecord) -> bool:
    """Return whether each run has CPUs for itself: as deployed, so that it is the same for all runs."""
    return bool(cluster.settings.get("cpus", context.spec.cpus) == EXCLUSIVE)


def _started(context: Context, plan: LaunchPlan, door: Door, start_request: Mapping[str, Any]) -> int:
    """Start the run, after waiting for slots if the request says so. Return how often Ctrl-C came meanwhile."""
    interrupted = 0
    answer: Mapping[str, Any] | None = None
    while answer is None:
        try:
            answer = door.answer() if interrupted else door.ask(start_request)
        except KeyboardInterrupt:
            # The head already has the request. kit can stop the run only after the head has started it.
            interrupted += 1
            if interrupted > PATIENCE:
                raise
    if interrupted and "started" not in answer:
        raise KeyboardInterrupt
    while "waiting" in answer:
        holders = runs_of(door.host, answer["waiting"])
        names_of_holders = ", ".join(f"{holder.id} ({holder.by})" for holder in holders)
        context.reporter.report(Note(text=f"waiting for slots that other runs hold: {names_of_holders}"))
        answer = door.answer()
    if "held" in answer:
        # Another run took the slots after kit had looked.
        raise leases.taken(plan.placement.np, runs_of(door.host, answer["held"]))
    if "started" not in answer:
        why = answer.get("failed")
        raise NotReadyError(
            f"the head could not start the run: {why if isinstance(why, str) else 'its launcher gave no reason'}",
            hint=f"check whether its disk is full: kit ssh {context.inventory.head.name} -- df -h",
            host=context.inventory.head.name,
        )
    return interrupted


def _follow(
    context: Context, plan: LaunchPlan, follower: Follower, start: float, start_request: Mapping[str, Any]
) -> RunResult:
    try:
        ending = _ending(follower)
    except KitError:
        # The head is gone, so nothing there can end the ranks. kit does, unless the run is to continue without it.
        if plan.policy.operator == "stop":
            left = _clean_up(context, plan)
            if follower.interrupted:
                raise Interrupted(f"run {plan.run_id} was stopped; ranks left: {left}") from None
        raise
    finally:
        follower.door.close(ended=follower.ending is not None)
    if ending is None or ending.get("lost"):
        left = _clean_up(context, plan)
        if follower.interrupted:
            raise Interrupted(f"run {plan.run_id} was stopped; ranks left: {left}")
        raise NotReadyError(
            f"run {plan.run_id} is lost: its supervisor on the head was stopped or killed; ranks left: {left}",
            hint="check the nodes with kit ps, then restore them: kit deploy",
            host=context.inventory.head.name,
        )
    record = run_of(follower.door.host, {"id": plan.run_id}, ending)
    failure = record.failure
    if failure is not None and failure.kind == "host":
        failure = with_node_log(context, failure)
    if follower.interrupted and record.stopped:
        raise Interrupted(f"run {plan.run_id} was stopped; ranks left: {_left(record)}")
    return RunResult(
        plan=plan,
        exit_code=record.exit_code,
        seconds=time.monotonic() - start,
        stopped=record.stopped,
        failure=failure,
        folded=follower.folded,
        attempts=record.attempt,
        left=record.left or {},
        interrupted=follower.interrupted > 0,
        record=records.started_record(start_request, started=follower.began, ending=ending),
    )


def _ending(follower: Follower) -> Mapping[str, Any] | None:
    try:
        return follower.ending or follower.follow()
    except KeyboardInterrupt:
        # Ctrl-C came just before or just after the follower counted it.
        follower.before = max(follower.before, follower.interrupted) + 1
        return follower.ending or follower.follow()


def _left(record: RunRecord) -> str:
    """Return how many processes are left. A host that could not be asked has a guard that ends its processes."""
    return str(sum((record.left or {}).values()))


def _node(host: Host, cluster: ClusterRecord) -> Node:
    """Return a host as deploy recorded it. Slots in the hosts file win over recorded ones."""
    for node in cluster.nodes:
        if node.name == host.name:
            return replace(node, slots=host.slots or node.slots)
    raise NotReadyError(
        f"the cluster {cluster.name} was deployed without this host", hint="run: kit deploy", host=host.name
    )


def _clean_up(context: Context, plan: LaunchPlan) -> str:
    """End what is left on every host of the run, from here. Return how many processes remain, in words."""
    # mpirun runs on the head, even if the head has no ranks.
    host_names = dict.fromkeys([context.inventory.head.name, *(node.name for node in plan.placement.nodes)])
    hosts = [context.host(name) for name in host_names]
    # Only after a failure:
    from kit.model.failures import alike  # noqa: PLC0415
    from kit.model.text import fold  # noqa: PLC0415
    from kit.remote.run.sweep import sweep  # noqa: PLC0415

    left, failures = sweep(hosts, plan.run_id, context.connect)
    for failure in alike(failures.values()):
        text = f"{fold(failure.hosts)}: cannot tell whether ranks are left: {failure.message}"
        context.reporter.report(Warned(text=text, hint="check later: kit ps"))
    for host, count in left.items():
        if count:
            context.reporter.report(
                Warned(text=f"{host}: {count} processes of the run are still running", hint=f"kit ssh {host}; then: ps")
            )
    return f"{sum(left.values())}" if not failures else f"not known on {fold(failures)}"
