"""kit deploy: observe, plan, show, execute, verify."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

from kit.errors import HostsFailed, KitError, NotReadyError
from kit.events import HostDone, HostStep, Note, Phase, Warned
from kit.flows.cluster.change import Change, changing
from kit.flows.context import Context
from kit.flows.image import source
from kit.flows.image.content import content
from kit.model import names
from kit.model.host import Host
from kit.model.keys import ClusterKeys, KeyPair
from kit.model.launch import Node
from kit.model.observed import HostFacts
from kit.model.plan import ComposeUp, HostPlan, Plan
from kit.model.result import DeployResult, HostResult
from kit.model.swarm import HEARTBEAT_S, RemoveNode, StackDeploy
from kit.plan.cluster import deploy as plans
from kit.plan.cluster.record import from_text
from kit.plan.swarm import checks as swarm_checks
from kit.plan.swarm import deploy as swarm_deploy
from kit.plan.swarm import leave as swarm_leave
from kit.remote.cluster.execute import Executor
from kit.remote.cluster.keys import make_key
from kit.remote.cluster.observe import observe
from kit.remote.ssh import fanout


def deploy(context: Context, *, dry_run: bool = False, force: bool = False) -> DeployResult:
    """Bring every host to what the spec says. Nothing is changed unless every host can be looked at and passes.

    A container under a run that goes on is made anew with `force` only.

    Raises HostsFailed, naming each host with its cause; hosts without a fault are brought to the end.
    """
    start = time.monotonic()
    # Most deploys have nothing to do, and need no lock for that.
    plan = _plan(context, dry_run=dry_run, force=force)
    if not plan.empty and not dry_run:
        plan = _change(context, force=force)
    return DeployResult(
        plan=plan,
        dry_run=dry_run,
        changed=not plan.empty and not dry_run,
        hosts=tuple(_result(p.host, sum(len(e.steps) for e in _changes(plan) if e.host == p.host)) for p in plan.hosts),
        seconds=time.monotonic() - start,
    )


def _plan(context: Context, *, dry_run: bool, force: bool, again: bool = False) -> Plan:
    """Observe, check, plan. Raises before anything is changed."""
    spec = context.spec
    tag = content(spec.image).tag
    observed = look(context, tag, again=again)
    nodes, problems = plans.nodes_of(observed, spec)
    image = plans.Image(tag=tag)
    by_swarm = spec.orchestrator == "swarm"
    if by_swarm:
        problems += swarm_checks.problems_of(observed, nodes)
    problems = [*problems, *plans.problems_of(observed, spec, nodes, image)]
    if not problems and any(facts.image_id is None for facts in observed):
        # Only now: nobody should wait for a build to be told of a fault. The image's size may be one more.
        image, observed = _supplied(context, tag, observed, dry_run=dry_run)
        problems = plans.problems_of(observed, spec, nodes, image)
    if problems:
        raise failed("nothing was changed", problems)
    if not again:
        _warn_of_leavers(context, observed, nodes)
        _warn_of_impatience(context, observed[0], by_swarm=by_swarm)
    if by_swarm:
        plan = swarm_deploy.deploy_plan(spec, observed, nodes, image, _swarm_keys(observed, spec.name))
    else:
        plan = plans.deploy_plan(spec, observed, nodes, image, _keys(observed, spec.name))
        plan = swarm_leave.without_swarm(plan, spec, observed)
    if not dry_run and not force:
        _spare_runs(plan, observed)
    return plan


def _change(context: Context, *, force: bool) -> Plan:
    """Under the lock: plan again, for hosts may have changed since, and execute that. Returns the plan."""
    with changing(context, "deploy") as change:
        plan = _plan(context, dry_run=False, force=force, again=True)
        if not plan.empty:
            # Before the hosts' own checks: told once, and with nothing begun.
            change.check()
            change.what = _told(plan)
            _execute(context, plan, change)
    return plan


def _told(plan: Plan) -> str:
    """`14 steps on 4 hosts`, for the audit."""
    each = [p for p in plan.all if p.steps]
    return f"{sum(len(p.steps) for p in each)} steps on {len({p.host for p in each})} hosts"


def look(context: Context, image: str, *, again: bool = False) -> Sequence[HostFacts]:
    """The facts of all hosts, in order. Raises before anything is changed if one cannot be looked at."""
    hosts = context.inventory.hosts
    context.reporter.report(Phase(name="look again" if again else "look", hosts=context.inventory.names))
    folder = names.folder(context.spec.name)
    paths = swarm_deploy.paths_of(context.spec) if context.spec.orchestrator == "swarm" else ()

    def work(host: Host) -> HostFacts:
        context.reporter.report(HostStep(host=host.name, text="connecting"))
        with closing(context.connect(host)) as transport:
            facts = observe(transport, folder=folder, image=image, paths=paths)
        gpus = f", {len(facts.gpus)} × {facts.gpus[0].name}" if facts.gpus else ""
        engine = f"engine {facts.engine}" if facts.engine else "no engine"
        context.reporter.report(HostDone(host=host.name, text=f"{engine}, {facts.cores} cores{gpus}"))
        return facts

    found = fanout.each(hosts, work)
    if found.failures:
        raise failed("nothing was changed", list(found.failures.values()))
    return [found.results[host.name] for host in hosts]


def failed(what: str, problems: Sequence[KitError]) -> KitError:
    if len(problems) == 1:
        return problems[0]
    return HostsFailed(f"{what}: {len(problems)} faults", problems)


def _spare_runs(plan: Plan, observed: Sequence[HostFacts]) -> None:
    """A container that starts anew takes the ranks in it along. Raises where that would end a run."""
    living = {run for facts in observed for run in facts.living}
    steps = [(each.host, step) for each in plan.all for step in each.steps]
    touched = [host for host, step in steps if isinstance(step, ComposeUp | RemoveNode)]
    touched += [host for _, step in steps if isinstance(step, StackDeploy) for host in step.restarts]
    stopped = {facts.host.name for facts in observed if not any(container.running for container in facts.containers)}
    if living and set(touched) - stopped:
        raise NotReadyError(
            f"the run {', '.join(sorted(living))} goes on, and this deploy would end it; nothing was changed",
            hint="wait for it (kit wait), end it (kit stop), or insist: kit deploy --force",
        )


def _warn_of_leavers(context: Context, observed: Sequence[HostFacts], nodes: Sequence[Node]) -> None:
    """A host that was taken out of the file still runs its node, and nobody would see it again.

    What the cluster was is known to its head alone: a head that left takes that with it.
    """
    text = next((facts.record for facts in observed if facts.record is not None), None)
    if text is None:
        return
    try:
        before = from_text(text)
    except NotReadyError:
        return  # Written by another kit, or broken: this deploy writes it anew.
    for node in before.nodes:
        # A host that only has another name now is none: to take it off would take the cluster's node off.
        if node.name not in context.inventory.names and node.address not in {n.address for n in nodes}:
            runs = "still runs its node" if context.spec.orchestrator == "compose" else "keeps its files"
            text = f"{node.name} ({node.address}) is no longer in {context.inventory.source}, and {runs}"
            hint = f"to take it off: write {node.address} alone into a file, then: kit --hosts FILE down"
            context.reporter.report(Warned(text=text, hint=hint))


def _warn_of_impatience(context: Context, head: HostFacts, *, by_swarm: bool) -> None:
    text = swarm_checks.impatience(head) if by_swarm else None
    if text is not None:
        hint = f"kit ssh {head.host.name} -- docker swarm update --dispatcher-heartbeat {HEARTBEAT_S}s"
        context.reporter.report(Warned(text=text, hint=hint))


def _supplied(
    context: Context, tag: str, observed: Sequence[HostFacts], *, dry_run: bool
) -> tuple[plans.Image, Sequence[HostFacts]]:
    """The image, from where kit.yaml says; and the facts, which a build on the head changes."""
    spec = context.spec
    if spec.registry is not None:
        return source.published(context, spec.registry, tag, observed), observed
    if spec.builder == "head":
        return source.from_head(context, tag, observed, dry_run=dry_run)
    return _image(context, tag, dry_run=dry_run), observed


def _image(context: Context, tag: str, *, dry_run: bool) -> plans.Image:
    """The image in this machine's engine, built if it is not there. A dry run builds nothing."""
    found = _local_image(tag)
    if found is None and not dry_run:
        from kit.flows.image.build import build_image  # noqa: PLC0415

        context.reporter.report(Note(text=f"{tag} is not on this machine yet: building it"))
        build_image(context.spec.image, reporter=context.reporter)
        found = _local_image(tag)
    return plans.Image(tag=tag) if found is None else found


def _local_image(tag: str) -> plans.Image | None:
    from kit.remote.engine.client import Engine  # noqa: PLC0415  (only where a host lacks the image)

    engine = Engine.connect()
    try:
        found = engine.image(tag)
    finally:
        engine.close()
    if found is None:
        return None
    arches = (found.arch,) if found.arch else ()
    return plans.Image(tag=tag, id=found.ships_as, size=found.size_bytes, arches=arches)


def _keys(observed: Sequence[HostFacts], cluster: str) -> ClusterKeys:
    """The keys that the hosts hold, and new ones where they hold none."""
    client, hosts = plans.standing_keys(observed)
    names = [facts.host.name for facts in observed]
    return ClusterKeys(
        client=KeyPair(public=client) if client else make_key(f"kit-{cluster}"),
        hosts={
            name: KeyPair(public=hosts[name]) if name in hosts else make_key(f"kit-{cluster}-{name}") for name in names
        },
    )


def _swarm_keys(observed: Sequence[HostFacts], cluster: str) -> ClusterKeys:
    """The keys that the swarm's secrets are, and new ones where there is none. Nodes but the head share a host key."""
    known = swarm_deploy.standing_keys(observed)
    pairs = {
        role: KeyPair(public=known[role]) if role in known else make_key(f"kit-{cluster}-{role}")
        for role in ("client", "head", "node")
    }
    return ClusterKeys(
        client=pairs["client"],
        hosts={facts.host.name: pairs["node" if i else "head"] for i, facts in enumerate(observed)},
    )


def _execute(context: Context, plan: Plan, change: Change) -> None:
    spec = context.spec
    executor = Executor(
        hosts={host.name: host for host in context.inventory.hosts},
        logins=context.logins,
        folder=names.folder(spec.name),
        container={
            name: names.container(spec.name, names.NODE if i else names.HEAD)
            for i, name in enumerate(context.inventory.names)
        },
        connect=context.connect,
        reporter=context.reporter,
        pull=source.puller(context, plan),
        check=change.check,
    )
    failures = executor.execute(plan)
    if failures:
        # Where the lock was lost, that is the cause, and one for all hosts.
        change.check()
        done = len(plan.hosts) - len(failures)
        if len(failures) == 1:
            raise next(iter(failures.values()))
        raise HostsFailed(f"{len(failures)} hosts failed, {done} are done", list(failures.values()))


def _changes(plan: Plan) -> Sequence[HostPlan]:
    """What is done to hosts: without the check at the end, which changes none."""
    return plan.all[: len(plan.all) - len(plan.after)]


def _result(host: str, steps: int) -> HostResult:
    return HostResult(host=host, status="ok" if steps else "unchanged", text=f"{steps} steps" if steps else "")
