"""Plans a launch: which hosts, which slots, which words for mpirun. A dry run ends here and contacts no host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kit.config.selection import select_hosts
from kit.errors import InputError
from kit.events import Warned
from kit.flows.context import Context
from kit.flows.run.environment import variables
from kit.model.host import Host
from kit.model.launch import MOST_SLOTS, LaunchPlan, Node, Placement, RunPolicy, RunRequest
from kit.model.run import Place, RunRecord
from kit.model.spec import ClusterSpec
from kit.model.values import replace
from kit.plan.cluster import network
from kit.plan.run import cores, elastic, encoding, gpus, leases, nccl, retries, roles, terminal, torchrun
from kit.plan.run.mpi import launch_plan
from kit.plan.run.ranks import place

if TYPE_CHECKING:
    from kit.model.queue import Reserved


def dry_run(context: Context, request: RunRequest, *, waits: bool = False) -> LaunchPlan:
    """Return the plan of a launch as far as the hosts file and kit.yaml determine it. --again reads the head, too.

    `waits`: the run would join the line.
    """
    if waits:
        from kit.plan.queue import entry  # noqa: PLC0415  (only for --queue)

        entry.check(request)
    if request.again:
        from kit.flows.run.again import repeat  # noqa: PLC0415  (it also imports what reads records of earlier runs)

        request, _ = repeat(context, request)
        if waits:
            entry.check(request, repeated=True)
    roles.check(request)
    encoding.check(request, request.command or context.spec.job)
    torchrun.check(request, request.command or context.spec.job)
    terminal.check(request)
    retries.check(request)
    elastic.check(request, context.spec.image)
    _check_code_and_data(context, request)
    share = gpus.per_rank(request, context.spec)
    nodes, unknown = _offline_nodes(context, request, share)
    covering = network.mpi_network(context.spec.network, [node.address for node in nodes])
    head = _offline_node(context.inventory.head, slots=1)
    plan = plan_launch(
        context,
        request,
        nodes,
        head,
        covering=covering,
        run_id="dry-run",
        exclusive=context.spec.exclusive,
        # Only the hosts know the networks of names.
        data=[word for word in context.spec.interfaces if "/" in word],
    )
    return replace(plan, assumed=tuple(node.name for node in plan.placement.nodes if node.name in unknown))


def _check_code_and_data(context: Context, request: RunRequest) -> None:
    """Raise InputError for a code folder, a --workdir or a data set that does not exist."""
    source = context.spec.code_source
    # With --again and without --code, the code is that of the earlier run.
    if (source is not None or request.workdir) and (not request.again or request.code is not None):
        from kit.flows.run.code import check_folder  # noqa: PLC0415  (it also imports what ships code)

        check_folder(source, request.workdir)
    if request.data:
        from kit.plan.data.choose import known_sets  # noqa: PLC0415  (only for --data)

        known_sets(context.spec, request.data)


def selected_hosts(context: Context, request: RunRequest) -> Sequence[Host]:
    """Return the hosts that may run ranks: those of -H, or all; without the head if kit.yaml says so."""
    if request.hosts is not None:
        return select_hosts(context.inventory, request.hosts).hosts
    hosts = context.inventory.hosts
    if context.spec.head_runs_ranks:
        return hosts
    if len(hosts) == 1:
        raise InputError(
            "head_runs_ranks is false, but the head is the only host",
            hint="add hosts, or set head_runs_ranks: true in kit.yaml",
        )
    return hosts[1:]


def plan_launch(
    context: Context,
    request: RunRequest,
    nodes: Sequence[Node],
    head: Node,
    *,
    covering: str | None,
    run_id: str,
    living: Sequence[RunRecord] = (),
    first: Reserved | None = None,
    code: str = "",
    exclusive: bool = False,
    data: Sequence[str] = (),
) -> LaunchPlan:
    """Return the plan of a launch on `nodes`, on slots that no run of `living` holds. Warn about too many servers.

    `first` is what is reserved for a run in line; the plan does not delay that run.
    `code` is the digest of the snapshot that the ranks start in, or ''. `exclusive`: each run of the cluster has CPUs
    for itself. `data` are the networks of MPI's data, if they are not `covering`.
    """
    share = gpus.per_rank(request, context.spec)
    np: int | None = request.np
    bounds: tuple[int, int | None] | None = None
    if request.launcher == elastic.LAUNCHER:
        np, least, most = elastic.ranks(request, nodes, living, share=share)
        bounds = least, most
    placement, chosen = _placed(request, nodes, living, first, np=np, share=share)
    env, forward = variables(request.env)
    env |= torchrun.variables(request)
    plan = launch_plan(
        run_id=run_id,
        spec=context.spec,
        placement=placement,
        network=covering,
        command=request.command or context.spec.job,
        env=env,
        forward=forward,
        oversubscribe=request.oversubscribe,
        places=chosen,
        helpers=roles.helpers(placement, head, request.servers or 0) if request.launcher == "ps" else (),
        policy=_policy(context.spec, request),
        code=code,
        workdir=request.workdir,
        torchrun=request.launcher == "torchrun",
        elastic=bounds is not None,
        in_terminal=request.terminal,
        devices=gpus.variables(request, context.spec)
        | nccl.variables(context.spec, placement, request.nccl_require, elastic=bounds is not None)
        | cores.variables(context.spec, placement, chosen, exclusive=exclusive, count=request.cpus),
        data=data,
    )
    if bounds is not None:
        plan = elastic.as_elastic(plan, head, *bounds)
        if (text := elastic.ignored(context.spec)) is not None:
            context.reporter.report(Warned(text=text))
    _warn_of_crowd(context, plan)
    return plan


def _placed(
    request: RunRequest,
    nodes: Sequence[Node],
    living: Sequence[RunRecord],
    first: Reserved | None,
    *,
    np: int | None,
    share: int,
) -> tuple[Placement, tuple[Place, ...]]:
    """Return how many ranks each node gets, and on which slots: free ones, unless the request oversubscribes."""
    limit = request.policy.timeout
    if first is not None:
        from kit.plan.queue import past  # noqa: PLC0415  (only where runs wait)
    if request.oversubscribe:
        placement = place(nodes, np=request.np, npernode=request.npernode, oversubscribe=True)
        chosen = leases.places(placement, {node.name: range(node.slots) for node in nodes})
        if first is not None:
            past.check(placement.np, chosen, first, limit=limit)
        return placement, chosen
    wish: leases.Wish = {"np": np, "npernode": request.npernode, "wait": request.wait, "share": share}
    if first is not None:
        return past.place_past(nodes, living, first, limit=limit, **wish)
    return leases.place_free(nodes, living, **wish)


def _policy(spec: ClusterSpec, request: RunRequest) -> RunPolicy:
    """Return the policy of the run: what the request says, and what kit.yaml says of all runs."""
    return replace(
        request.policy, clean=spec.runs.clean == "all", keep_s=spec.runs.ttl_days * 86400, keep=spec.runs.keep
    )


def _offline_nodes(context: Context, request: RunRequest, share: int) -> tuple[list[Node], set[str]]:
    """Return the hosts as nodes, from the files alone, and the names of those whose slots the files do not say.

    kit deploy counts the GPUs of these hosts, and a run uses that number. So they get as many slots here as the ranks
    need, and no number of ranks is refused because of them.
    """
    hosts = selected_hosts(context, request)
    default = context.spec.slots
    slots = {host.name: host.slots or (0 if default == "auto" else default) for host in hosts}
    known = [_offline_node(host, slots=slots[host.name], share=share) for host in hosts if slots[host.name]]
    unknown = {host.name for host in hosts if not slots[host.name]}
    ranks = _ranks_needed(request, sum(leases.room(known, (), share)), len(unknown))
    slots |= dict.fromkeys(unknown, ranks * max(share, 1))
    return [_offline_node(host, slots=slots[host.name], share=share) for host in hosts], unknown


def _ranks_needed(request: RunRequest, room: int, hosts: int) -> int:
    """Return how many ranks must fit on each of these hosts, if `room` ranks fit on the others."""
    np = request.policy.min_np if request.launcher == elastic.LAUNCHER else request.np
    if not hosts or request.oversubscribe:
        return 1
    needed = request.npernode or -(-((np or 1) - room) // hosts)
    return min(max(needed, 1), MOST_SLOTS)


def _offline_node(host: Host, *, slots: int, share: int = 0) -> Node:
    """Return a host as a node. With `share` GPUs for each rank, it has as many as slots."""
    return Node(name=host.name, address=network.from_inventory(host), slots=slots, gpus=share and max(slots, share))


def _warn_of_crowd(context: Context, plan: LaunchPlan) -> None:
    """Warn if a host has more servers than cores. Each server slows down the workers there."""
    text = roles.crowded(plan.placement, plan.helpers)
    if text is not None:
        hosts = len(plan.placement.nodes)
        context.reporter.report(Warned(text=text, hint=f"use --servers {hosts}: one on each host that has workers"))
