"""kit run: place the ranks on free slots, start the run in the head, follow it; its exit code is kit's."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kit.config.selection import select_hosts
from kit.errors import InputError, Interrupted, KitError, NotReadyError
from kit.events import Note, Warned
from kit.flows.context import Context
from kit.flows.run.follow import GRACE_S, PATIENCE, Follower, Manner
from kit.flows.run.runs import stop
from kit.model import names
from kit.model.host import Host
from kit.model.launch import ClusterRecord, LaunchPlan, Node, RunRequest
from kit.model.result import RunResult
from kit.model.run import Place, RunRecord
from kit.plan.cluster import network
from kit.plan.cluster.record import from_text
from kit.plan.run import leases, roles
from kit.plan.run import records as runs
from kit.plan.run.mpi import launch_plan
from kit.plan.run.ranks import place
from kit.remote.machine.operator import operator
from kit.remote.run.door import Door, new_run_id, variable


def run(context: Context, request: RunRequest, *, dialled: Door | None = None) -> RunResult:
    """Run the request's command on the cluster. `exit_code` of the result is the job's, None when nobody waited for it.

    `dialled` is a door on its way to open (kit.flows.run.dial); it is used if it leads to this cluster's head.

    Raises Interrupted after Ctrl-C, when no rank is left on any host that can be reached.
    """
    start = time.monotonic()
    roles.check(request)
    selected = _selected(context, request)
    if request.dry_run:
        nodes = [_offline_node(context, host) for host in selected]
        covering = network.mpi_network(context.spec.network, [n.address for n in nodes])
        place_of_head = _offline_node(context, context.inventory.head)
        plan = _plan(context, request, nodes, place_of_head, covering=covering, run_id="dry-run")
        _warn_of_crowd(context, plan)
        return RunResult(plan=plan, exit_code=None, seconds=time.monotonic() - start)
    head, container = context.login(context.inventory.head), names.container(context.spec.name, names.HEAD)
    if dialled is not None and dialled.leads_to(head, container):
        door = dialled
    else:
        if dialled is not None:
            dialled.close()
        door = Door(head, container)
    by = operator()
    try:
        door.open()
        record = from_text(door.record)
        nodes = [_node(host, record) for host in selected]
        living = [runs.record_of(each) for each in door.living]
        plan = _plan(
            context, request, nodes, record.nodes[0], covering=record.network, run_id=new_run_id(), living=living
        )
        _warn_of_crowd(context, plan)
        asked = runs.start_request(
            plan, cluster=record.name, image=record.image, head=record.nodes[0].name, by=by, wait=request.wait
        )
        manner = Manner(tagged=request.tag_output, operator=True, by=by)
        follower = Follower(plan.run_id, door, context.reporter, manner)
        follower.before = _started(context, plan, door, asked)
    except BaseException:
        door.close()
        raise
    if request.detach:
        door.close()
        if follower.before:
            ended = stop(context, plan.run_id, grace_s=GRACE_S)
            raise Interrupted(f"run {plan.run_id} was stopped; ranks left: {_left(ended)}")
        return RunResult(plan=plan, exit_code=None, seconds=time.monotonic() - start)
    return _follow(context, plan, follower, start)


def _started(context: Context, plan: LaunchPlan, door: Door, asked: Mapping[str, Any]) -> int:
    """Ask for the start, and wait for slots where that was asked for. Returns how often Ctrl-C came meanwhile."""
    interrupted = 0
    answer: Mapping[str, Any] | None = None
    while answer is None:
        try:
            answer = door.answer() if interrupted else door.ask(asked)
        except KeyboardInterrupt:
            # The head has been asked already: what was started has to be stopped, and cannot be before it is there.
            interrupted += 1
            if interrupted > PATIENCE:
                raise
    if interrupted and "started" not in answer:
        raise KeyboardInterrupt
    while "waiting" in answer:
        holders = [runs.record_of(each) for each in answer["waiting"]]
        told = ", ".join(f"{each.id} ({each.by})" for each in holders)
        context.reporter.report(Note(text=f"waiting for slots that other runs hold: {told}"))
        answer = door.answer()
    if "held" in answer:
        # Somebody was quicker, between the look and the start.
        raise leases.taken(plan.placement.np, [runs.record_of(each) for each in answer["held"]])
    if "started" not in answer:
        raise NotReadyError(
            f"the head could not start the run: {answer.get('failed', answer)}",
            hint=f"is its disk full? kit ssh {context.inventory.head.name} -- df -h",
            host=context.inventory.head.name,
        )
    return interrupted


def _follow(context: Context, plan: LaunchPlan, follower: Follower, start: float) -> RunResult:
    try:
        ending = _followed(follower)
    except KitError:
        # The head is gone, and with it whoever would have ended the ranks; unless it was to go on in this very case.
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
            f"nobody watches over the run {plan.run_id} any more: its head was stopped or killed; ranks left: {left}",
            hint="kit ps; then: kit deploy",
            host=context.inventory.head.name,
        )
    found = runs.record_of({"id": plan.run_id}, ending)
    if follower.interrupted and found.stopped:
        raise Interrupted(f"run {plan.run_id} was stopped; ranks left: {_left(found)}")
    return RunResult(
        plan=plan,
        exit_code=found.exit_code,
        seconds=time.monotonic() - start,
        stopped=found.stopped,
        failure=found.failure,
        folded=follower.folded,
        attempts=found.attempt,
        left=found.left or {},
        interrupted=follower.interrupted > 0,
    )


def _followed(follower: Follower) -> Mapping[str, Any] | None:
    try:
        return follower.follow()
    except KeyboardInterrupt:
        # It came just before they are counted, or just after.
        follower.before = max(follower.before, follower.interrupted) + 1
        return follower.ending or follower.follow()


def _left(found: RunRecord) -> str:
    """How many processes are left. A host that could not be asked has a guard of its own."""
    return str(sum((found.left or {}).values()))


def _selected(context: Context, request: RunRequest) -> Sequence[Host]:
    """The hosts that may run ranks: those of -H, or all, without the head where kit.yaml says so."""
    if request.hosts is not None:
        return select_hosts(context.inventory, request.hosts).hosts
    hosts = context.inventory.hosts
    if context.spec.head_runs_ranks:
        return hosts
    if len(hosts) == 1:
        raise InputError(
            "head_runs_ranks is false, and the head is the only host",
            hint="add hosts, or set head_runs_ranks: true in kit.yaml",
        )
    return hosts[1:]


def _offline_node(context: Context, host: Host) -> Node:
    """A host as far as the files tell: for a dry run, which contacts nobody."""
    slots = host.slots or (context.spec.slots if context.spec.slots != "auto" else 1)
    return Node(name=host.name, address=network.from_inventory(host), slots=slots)


def _node(host: Host, record: ClusterRecord) -> Node:
    """A host as deploy recorded it; the hosts file's slots go first."""
    for node in record.nodes:
        if node.name == host.name:
            return Node(name=node.name, address=node.address, slots=host.slots or node.slots, cores=node.cores)
    raise NotReadyError(
        f"the cluster {record.name} was deployed without this host", hint="run: kit deploy", host=host.name
    )


def _plan(
    context: Context,
    request: RunRequest,
    nodes: Sequence[Node],
    head: Node,
    *,
    covering: str | None,
    run_id: str,
    living: Sequence[RunRecord] = (),
) -> LaunchPlan:
    chosen: tuple[Place, ...]
    if request.oversubscribe:
        placement = place(nodes, np=request.np, npernode=request.npernode, oversubscribe=True)
        chosen = leases.places(placement, {node.name: range(node.slots) for node in nodes})
    else:
        placement, chosen = leases.place_free(
            nodes, living, np=request.np, npernode=request.npernode, wait=request.wait
        )
    env: dict[str, str] = {}
    forward: list[str] = []
    for name, value in request.env:
        # As with mpirun: NAME=VALUE sets, NAME forwards; from here if it is set here, else from the head.
        known = value if value is not None else variable(name)
        if known is None:
            forward.append(name)
        else:
            env[name] = known
    return launch_plan(
        run_id=run_id,
        spec=context.spec,
        placement=placement,
        network=covering,
        command=request.command or context.spec.command,
        env=env,
        forward=forward,
        oversubscribe=request.oversubscribe,
        places=chosen,
        helpers=roles.helpers(placement, head, request.servers or 0) if request.launcher == "ps" else (),
        policy=replace(
            request.policy,
            clean=context.spec.runs.clean == "all",
            keep_s=context.spec.runs.ttl_days * 86400,
            keep=context.spec.runs.keep,
        ),
    )


def _warn_of_crowd(context: Context, plan: LaunchPlan) -> None:
    """More servers than cores are not wrong, and not what anybody means: each takes its part of the workers' time."""
    text = roles.crowded(plan.placement, plan.helpers)
    if text is not None:
        hosts = len(plan.placement.nodes)
        context.reporter.report(Warned(text=text, hint=f"write --servers {hosts}: one on each host that has workers"))


def _clean_up(context: Context, plan: LaunchPlan) -> str:
    """End what is left on every host of the run, from here. Returns how many would not end, in words."""
    # The head, too, where it has no ranks: mpirun runs there.
    names = dict.fromkeys([context.inventory.head.name, *(node.name for node in plan.placement.nodes)])
    hosts = [context.host(name) for name in names]
    from kit.remote.run.sweep import sweep  # noqa: PLC0415  (fabric: only where something went wrong)

    left, failures = sweep(hosts, plan.run_id, context.connect)
    for host, error in failures.items():
        context.reporter.report(
            Warned(text=f"{host}: not known whether ranks are left: {error.message}", hint="kit ps shows it later")
        )
    for host, count in left.items():
        if count:
            context.reporter.report(
                Warned(text=f"{host}: {count} processes of the run would not end", hint=f"kit ssh {host}; then: ps")
            )
    return f"{sum(left.values())}" if not failures else f"not known on {', '.join(failures)}"
