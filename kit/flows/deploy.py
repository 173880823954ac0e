"""kit deploy: observe, plan, show, execute, verify."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kit.errors import HostsFailed, KitError, NotReadyError
from kit.events import HostDone, HostStep, Note, Phase, Warned
from kit.flows.change import Change, changing
from kit.flows.context import Context
from kit.flows.image import content
from kit.model.host import Host
from kit.model.keys import ClusterKeys, KeyPair
from kit.model.launch import Node
from kit.model.observed import HostFacts
from kit.model.plan import ComposeUp, Plan
from kit.model.result import DeployResult, HostResult
from kit.plan import deploy as plans
from kit.plan import stack
from kit.plan.record import from_text
from kit.remote import fanout
from kit.remote.execute import Executor
from kit.remote.keys import make_key
from kit.remote.observe import observe


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
        hosts=tuple(_result(p.host, len(p.steps)) for p in plan.hosts),
        seconds=time.monotonic() - start,
    )


def _plan(context: Context, *, dry_run: bool, force: bool, again: bool = False) -> Plan:
    """Observe, check, plan. Raises before anything is changed."""
    spec = context.spec
    tag = content(spec.image).tag
    observed = look(context, tag, again=again)
    nodes, problems = plans.nodes_of(observed, spec)
    image = plans.Image(tag=tag)
    problems = [*problems, *plans.problems_of(observed, spec, nodes, image)]
    if not problems and any(facts.image_id is None for facts in observed):
        # Only now: nobody should wait for a build to be told of a fault. The image's size may be one more.
        image = _image(context, tag, dry_run=dry_run)
        problems = plans.problems_of(observed, spec, nodes, image)
    if problems:
        raise _failed("nothing was changed", problems)
    if not again:
        _warn_of_leavers(context, observed, nodes)
    plan = plans.deploy_plan(spec, observed, nodes, image, _keys(observed, spec.name))
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
    each = [p for p in (*plan.hosts, *plan.after) if p.steps]
    return f"{sum(len(p.steps) for p in each)} steps on {len({p.host for p in each})} hosts"


def look(context: Context, image: str, *, again: bool = False) -> Sequence[HostFacts]:
    """The facts of all hosts, in order. Raises before anything is changed if one cannot be looked at."""
    hosts = context.inventory.hosts
    context.reporter.report(Phase(name="look again" if again else "look", hosts=context.inventory.names))
    folder = stack.folder(context.spec)

    def work(host: Host) -> HostFacts:
        context.reporter.report(HostStep(host=host.name, text="connecting"))
        transport = context.connect(host)
        try:
            facts = observe(transport, folder=folder, image=image)
        finally:
            transport.close()
        gpus = f", {len(facts.gpus)} × {facts.gpus[0].name}" if facts.gpus else ""
        engine = f"engine {facts.engine}" if facts.engine else "no engine"
        context.reporter.report(HostDone(host=host.name, text=f"{engine}, {facts.cores} cores{gpus}"))
        return facts

    found = fanout.each(hosts, work)
    if found.failures:
        raise _failed("nothing was changed", list(found.failures.values()))
    return [found.results[host.name] for host in hosts]


def _failed(what: str, problems: Sequence[KitError]) -> KitError:
    if len(problems) == 1:
        return problems[0]
    return HostsFailed(f"{what}: {len(problems)} faults", problems)


def _spare_runs(plan: Plan, observed: Sequence[HostFacts]) -> None:
    """A container that starts anew takes the ranks in it along. Raises where that would end a run."""
    living = {run for facts in observed for run in facts.living}
    touched = [each.host for each in plan.hosts if any(isinstance(step, ComposeUp) for step in each.steps)]
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
            text = f"{node.name} ({node.address}) is no longer in {context.inventory.source}, and still runs its node"
            hint = f"to take it off: write {node.address} alone into a file, then: kit --hosts FILE down"
            context.reporter.report(Warned(text=text, hint=hint))


def _image(context: Context, tag: str, *, dry_run: bool) -> plans.Image:
    """The image in this machine's engine, built if it is not there. A dry run builds nothing."""
    found = _local_image(tag)
    if found is None and not dry_run:
        from kit.flows.build import build_image  # noqa: PLC0415

        context.reporter.report(Note(text=f"{tag} is not on this machine yet: building it"))
        build_image(context.spec.image, reporter=context.reporter)
        found = _local_image(tag)
    return plans.Image(tag=tag) if found is None else found


def _local_image(tag: str) -> plans.Image | None:
    from kit.remote.engine import Engine  # noqa: PLC0415  (only where a host lacks the image)

    engine = Engine.connect()
    try:
        found = engine.image(tag)
    finally:
        engine.close()
    return None if found is None else plans.Image(tag=tag, id=found.image_id, size=found.size_bytes)


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


def _execute(context: Context, plan: Plan, change: Change) -> None:
    spec = context.spec
    names = context.inventory.names
    executor = Executor(
        hosts={host.name: host for host in context.inventory.hosts},
        logins=context.logins,
        folder=stack.folder(spec),
        container={name: stack.container(spec, stack.NODE if i else stack.HEAD) for i, name in enumerate(names)},
        connect=context.connect,
        reporter=context.reporter,
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


def _result(host: str, steps: int) -> HostResult:
    return HostResult(host=host, status="ok" if steps else "unchanged", text=f"{steps} steps" if steps else "")
