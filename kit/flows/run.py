"""kit run: place the ranks, launch mpirun in the head, pass its lines and its exit code on, leave nothing behind."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kit.config.selection import select_hosts
from kit.errors import InputError, Interrupted, NotReadyError
from kit.events import Warned
from kit.flows.context import Context
from kit.model.host import Host
from kit.model.launch import ClusterRecord, LaunchPlan, Node, RunRequest
from kit.model.result import RunResult
from kit.plan import network, stack
from kit.plan.mpi import launch_plan
from kit.plan.ranks import place
from kit.plan.record import from_text
from kit.remote.launch import Ended, Launch, new_run_id, sweep, variable


def run(context: Context, request: RunRequest, *, dialled: Launch | None = None) -> RunResult:
    """Run the request's command on the cluster. `exit_code` of the result is the job's.

    `dialled` is a launcher on its way up (kit.flows.dial); it is used if it leads to this cluster's head.

    Raises Interrupted after Ctrl-C, when no rank is left on any host that can be reached.
    """
    start = time.monotonic()
    selected = _selected(context, request)
    if request.dry_run:
        nodes = [_offline_node(context, host) for host in selected]
        covering = network.mpi_network(context.spec.network, [n.address for n in nodes])
        plan = _plan(context, request, nodes, covering, "dry-run")
        return RunResult(plan=plan, exit_code=None, seconds=time.monotonic() - start)
    head, container = context.login(context.inventory.head), stack.container(context.spec, stack.HEAD)
    if dialled is not None and dialled.leads_to(head, container):
        launch = dialled
    else:
        if dialled is not None:
            dialled.abandon()
        launch = Launch(head, container, context.reporter)
    launch.open()
    try:
        record = from_text(launch.record)
        nodes = [_node(host, record) for host in selected]
        plan = _plan(context, request, nodes, record.network, new_run_id())
    except BaseException:
        launch.close()
        raise
    try:
        ended = launch.run(plan, tagged=request.tag_output)
    except KeyboardInterrupt:
        left = _clean_up(context, plan, launch.stop())
        raise Interrupted(f"run {plan.run_id} was stopped; ranks left: {left}") from None
    except BaseException:
        # A broken connection, a killed container, a fault of ours: no rank may be left.
        _clean_up(context, plan, launch.stop())
        raise
    launch.close()
    if ended.exit_code != 0:
        _clean_up(context, plan, ended)
    return RunResult(plan=plan, exit_code=ended.exit_code, seconds=time.monotonic() - start)


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
    context: Context, request: RunRequest, nodes: Sequence[Node], covering: str | None, run_id: str
) -> LaunchPlan:
    placement = place(nodes, np=request.np, npernode=request.npernode, oversubscribe=request.oversubscribe)
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
    )


def _clean_up(context: Context, plan: LaunchPlan, ended: Ended | None) -> str:
    """End what the launcher may have left on every host of the run. Returns how many are left, in words."""
    # The head, too, where it has no ranks: mpirun runs there.
    names = dict.fromkeys([context.inventory.head.name, *(node.name for node in plan.placement.nodes)])
    hosts = [context.host(name) for name in names]
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
    if ended is None and not failures and not any(left.values()):
        context.reporter.report(Warned(text="the launcher did not answer; its ranks were ended on every host"))
    return f"{sum(left.values())}" if not failures else f"not known on {', '.join(failures)}"
