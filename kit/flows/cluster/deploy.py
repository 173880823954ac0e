"""kit deploy: observe, plan, show, execute, verify."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress

from kit.errors import Interrupted, KitError, NotReadyError, UnreachableError
from kit.events import Note, Warned
from kit.flows.cluster import before, lines
from kit.flows.cluster.drift import requirements_digest
from kit.flows.cluster.look import Look, failed
from kit.flows.context import Context
from kit.model import names
from kit.model.failures import alike
from kit.model.host import Host
from kit.model.keys import ClusterKeys, KeyPair
from kit.model.launch import Node
from kit.model.observed import HostFacts
from kit.model.plan import VERIFY, ComposeUp, Plan, Round, Step
from kit.model.result import DeployResult, HostResult
from kit.model.spec import ClusterSpec, ImageSpec
from kit.model.swarm import HEARTBEAT_S, RemoveNode, StackDeploy, StackRemove
from kit.model.text import fold
from kit.plan import flavour
from kit.plan.cluster import checks, data
from kit.plan.cluster import deploy as plans
from kit.plan.cluster import plugin as plugins
from kit.plan.cluster.dialect import HeldKeys
from kit.plan.cluster.foreign import foreign_problems, nodes_without_head, ranks_of_others
from kit.plan.cluster.gpus import too_few, unsplit
from kit.plan.cluster.nodes import nodes_of
from kit.plan.cluster.record import record_of
from kit.plan.cluster.supply import Image, differing
from kit.plan.run.owners import active
from kit.plan.swarm import checks as swarm_checks
from kit.remote.cluster.observe import living_runs


def deploy(context: Context, *, dry_run: bool = False, force: bool = False, look: Look | None = None) -> DeployResult:
    """Make every host match the spec. Nothing is changed unless kit can inspect every host and finds no problem.

    `force` also recreates containers in which a run is active. `look` is one that has begun already.

    Raises HostsFailed with the cause for each host that failed; the other hosts are finished first.
    """
    start = time.monotonic()
    look = look or Look(context)
    # Most deploys have nothing to do, and need no lock for that.
    plan = plan_of(context, look, dry_run=dry_run, force=force)
    changes = before.report_changes(context, look.observed())
    if not plan.empty and not dry_run:
        plan = _performed(context, look, force=force)
    if not dry_run:
        lines.move_lines(context, lines.left_lines(look.observed()))
    return DeployResult(
        plan=plan,
        dry_run=dry_run,
        changed=not plan.empty and not dry_run,
        hosts=_results(plan),
        seconds=time.monotonic() - start,
        changes=changes,
    )


def _performed(context: Context, look: Look, *, force: bool) -> Plan:
    """Execute the plan, and warn of what the doctor finds meanwhile."""
    # They import much, and most deploys have nothing to do.
    from kit.flows.cluster.perform import perform  # noqa: PLC0415
    from kit.flows.doctor.beside import Beside  # noqa: PLC0415

    beside = Beside(context, look.observed())

    def plan_again() -> Plan:
        nonlocal look
        look = Look(context, again=True)
        return plan_of(context, look, force=force, again=True)

    spared = force

    def spare(part: Round) -> None:
        nonlocal spared
        steps = [(host.host, step) for host in part.hosts for step in host.steps]
        if not spared and _ends_nodes(steps, context.spec.name, look.observed()):
            # Once: after this round, a head without its container may have no Python that could answer.
            spared = True
            _spare_new_runs(context, look.observed())

    try:
        plan = perform(context, plan_again, spare)
    except Interrupted:
        raise
    except KitError:
        # What is wrong with the hosts may be why it failed.
        beside.warn(wait_s=0)
        raise
    beside.warn()
    return plan


def plan_of(context: Context, look: Look, *, force: bool, dry_run: bool = False, again: bool = False) -> Plan:
    """Return the plan from what the look finds, after all checks. Raises before anything is changed."""
    spec = context.spec
    observed = look.observed()
    tag = look.tag
    nodes, problems = nodes_of(observed, spec)
    problems += _gpu_problems(spec, look.context.spec.image, observed)
    image = Image(tag=tag)
    problems += plans.problems_of(observed, spec, nodes, image)
    problems += foreign_problems(observed, nodes, spec.name, record_of(observed[0]))
    if not problems and not force:
        # Before a build: it takes minutes, and may change the head.
        _spare_others(context, observed, nodes, dry_run=dry_run)
    if not problems and any(facts.image_id is None for facts in observed):
        # Only now, so that nobody waits for a build to learn of a problem. The image's size may be one more problem.
        by_gpus = spec.image.flavour == "auto"
        image, observed = _supplied(look.context, tag, observed, by_gpus=by_gpus, dry_run=dry_run, again=again)
        problems = plans.problems_of(observed, spec, nodes, image)
    plugin = None
    if spec.nccl.image is not None and not problems:
        from kit.flows.image.plugin import find_plugin  # noqa: PLC0415  (few clusters have one)

        plugin = find_plugin(look.context, spec.nccl.image, observed, dry_run=dry_run)
        problems = plugins.problems(observed, plugin)
    if problems:
        raise failed("nothing was changed", problems)
    if not again:
        before.warn_of_newer_kit(context, observed)
        before.warn_of_leavers(context, observed, nodes)
        _warn_of_heartbeat(context, observed[0])
        _warn_of_missing_sources(context, observed)
        _note_unstaged(context, observed)
        _warn_of_gpus(context, observed)
        _warn_of_images(context, image, observed)
        _warn_of_base(look.context, tag)
    keys = _keys(plans.dialect_of(spec).held_keys(observed), spec.name)
    digest = requirements_digest(spec)
    plan = plans.deploy_plan(spec, observed, nodes, image, keys, requirements=digest, plugin=plugin)
    if not dry_run and not force:
        _spare_runs(context, plan, observed)
        lines.spare_line(observed)
    elif dry_run:
        _warn_of_runs(context, plan, observed)
        for old in (old for old in lines.left_lines(observed) if old.waiting):
            text = f"{lines.line(old)}; kit deploy --force moves the line to {observed[0].host.name}"
            context.reporter.report(Warned(text=text, hint="see the line: kit queue"))
    return plan


def _gpu_problems(spec: ClusterSpec, image: ImageSpec, observed: Sequence[HostFacts]) -> list[KitError]:
    """Return which GPUs are lost, and which drivers and GPUs the image cannot use. `image` has a definite flavor."""
    lost = None
    if spec.image.flavour == "auto":
        lost = flavour.lost_gpus(flavour.ranked(spec, observed), _deployed_image(observed))
    problems: list[KitError] = [lost] if lost else []
    if any(facts.gpus for facts in observed):
        problems += flavour.driver_problems(image, observed)
        problems += flavour.model_problems(image, observed)
    return problems


def _spare_others(
    context: Context,
    observed: Sequence[HostFacts],
    nodes: Sequence[Node],
    *,
    dry_run: bool = False,
    changed: str = "nothing was changed",
) -> None:
    """Raise NotReadyError if ranks of another cluster run on a host, because its head cannot protect them.

    New keys would lock that head out, also where no container is recreated. A dry run only warns.
    """
    hosts = nodes_without_head(observed, nodes, context.spec.name)
    if not hosts:
        return
    from kit.flows.cluster.others import ranks_there  # noqa: PLC0415  (few deploys find such a host)

    outcome = ranks_there(context, hosts)
    if outcome.failures:
        raise failed(changed, list(outcome.failures.values()))
    living = {run for facts in observed for run in facts.living}
    source = context.inventory.source
    text = ranks_of_others(outcome.results, living, cluster=context.spec.name, source=source)
    if text is None:
        return
    hint = "if it is another cluster, set another name: in kit.yaml; if its head is lost: kit deploy --force"
    if not dry_run:
        raise NotReadyError(f"{text}; {changed}", hint=hint)
    context.reporter.report(Warned(text=f"{text}, and this deploy would end them", hint=hint))


def _spare_runs(context: Context, plan: Plan, observed: Sequence[HostFacts]) -> None:
    """Raise NotReadyError if the plan recreates or ends a node while a run is active: that would end the run."""
    if living := _ended_runs(plan, observed):
        raise _ends(context, living, observed, "nothing was changed")


def _warn_of_runs(context: Context, plan: Plan, observed: Sequence[HostFacts]) -> None:
    """Warn, in a dry run, of active runs that the plan would end."""
    if living := _ended_runs(plan, observed):
        text, hint = _ends_text(context, living, observed)
        context.reporter.report(Warned(text=text, hint=hint))


def _ended_runs(plan: Plan, observed: Sequence[HostFacts]) -> set[str]:
    """Return the active runs if the plan recreates or ends a node."""
    living = {run for facts in observed for run in facts.living}
    return living if living and _ends_nodes(list(plan.steps()), plan.cluster, observed) else set()


def _spare_new_runs(context: Context, observed: Sequence[HostFacts]) -> None:
    """Raise NotReadyError if a run has begun since the look. The image may have been on its way for minutes."""
    living: set[str] = set()
    # Only heads have runs: this one, and an earlier one.
    for head in _heads(observed):
        # One that cannot be reached fails in the round that is about to begin.
        with suppress(UnreachableError), closing(context.connect(head)) as transport:
            living |= set(living_runs(transport, folder=names.folder(context.spec.name)))
    if living:
        raise _ends(context, living, observed, "no container was changed")
    nodes, _ = nodes_of(observed, context.spec)
    _spare_others(context, observed, nodes, changed="no container was changed")


def _ends_nodes(steps: Sequence[tuple[str, Step]], cluster: str, observed: Sequence[HostFacts]) -> bool:
    """Return whether one of these steps (host, step) recreates or ends a container that runs."""
    from kit.plan.swarm.manager import leavers, role_changes  # noqa: PLC0415  (most deploys end nothing)

    touched = {host for host, step in steps if isinstance(step, ComposeUp | RemoveNode)}
    touched |= {host for _, step in steps if isinstance(step, StackDeploy) for host in step.restarts}
    touched |= set(role_changes(steps, cluster, observed[0]))
    stopped = {facts.host.name for facts in observed if not any(container.running for container in facts.containers)}
    stack_goes = any(isinstance(step, StackRemove) for _, step in steps)
    return bool(stack_goes or touched - stopped or leavers(steps, observed[0]))


def _heads(observed: Sequence[HostFacts]) -> list[Host]:
    return [facts.host for facts in observed if facts.record is not None]


def _ends(context: Context, living: Iterable[str], observed: Sequence[HostFacts], changed: str) -> NotReadyError:
    text, hint = _ends_text(context, living, observed)
    return NotReadyError(f"{text}; {changed}", hint=hint)


def _ends_text(context: Context, living: Iterable[str], observed: Sequence[HostFacts]) -> tuple[str, str]:
    """Return which active runs a deploy would end, and what to do."""
    from kit.flows.run.listing import with_owners  # noqa: PLC0415  (only where a run is active)

    runs = with_owners(context, living, _heads(observed))
    ends = ", and this deploy would end it" if len(runs) == 1 else ", and this deploy would end them"
    return f"{active(runs)}{ends}", "wait for it (kit wait), stop it (kit stop ID), or end it by: kit deploy --force"


def _deployed_image(observed: Sequence[HostFacts]) -> str:
    """Return the tag in the head's record, or ""."""
    record = record_of(observed[0])
    return record.image if record is not None else ""


def _warn_of_heartbeat(context: Context, head: HostFacts) -> None:
    text = swarm_checks.short_heartbeat(head) if context.spec.orchestrator == "swarm" else None
    if text is not None:
        hint = f"kit ssh {head.host.name} -- sudo docker swarm update --dispatcher-heartbeat {HEARTBEAT_S}s"
        context.reporter.report(Warned(text=text, hint=hint))


def _warn_of_missing_sources(context: Context, observed: Sequence[HostFacts]) -> None:
    for path in checks.missing_sources(observed, context.spec):
        text = f"no host has {path}, which volumes: in kit.yaml mounts; ranks will see an empty folder"
        context.reporter.report(Warned(text=text, hint="put the data there on every host, or correct the path"))


def _note_unstaged(context: Context, observed: Sequence[HostFacts]) -> None:
    for name, hosts in data.unstaged(observed, context.spec).items():
        where = "" if len(hosts) == len(observed) else f" on {fold(hosts)}"
        context.reporter.report(Note(text=f"the data set {name} is not staged yet{where}: kit data stage {name}"))
    for name in data.unmounted(observed, context.spec):
        context.reporter.report(Note(text=f"the data set {name} is not mounted yet: kit data mount {name}"))


def _warn_of_gpus(context: Context, observed: Sequence[HostFacts]) -> None:
    unused = flavour.unused_gpus(context.spec, observed)
    broken = flavour.broken_drivers(flavour.ranked(context.spec, observed))
    few = [
        (facts.host.name, f"{facts.host.name} has {note}", "write slots= as many as GPUs, or remove slots=")
        for facts in observed
        if (note := too_few(facts))
    ]
    bare = [
        (
            facts.host.name,
            f"{facts.host.name}: {note}",
            "make MIG devices, which a restart of the host removes: sudo nvidia-smi mig -i NUMBER -cgi PROFILE -C; or "
            "switch MIG off: sudo nvidia-smi -i NUMBER -mig 0; then: kit deploy",
        )
        for facts in observed
        if (note := unsplit(facts))
    ]
    if unused:
        context.reporter.report(Warned(text=unused[0], hint=unused[1]))
    for failure in alike(KitError(text, hint=hint, host=host) for host, text, hint in [*broken, *bare, *few]):
        context.reporter.report(Warned(text=failure.message, hint=failure.hint))


def _warn_of_images(context: Context, image: Image, observed: Sequence[HostFacts]) -> None:
    if text := differing(image, observed):
        hint = "to give all hosts the same image: kit down --images, then kit deploy"
        context.reporter.report(Warned(text=text, hint=hint))


def _warn_of_base(context: Context, tag: str) -> None:
    """Warn of a newer base in this machine's engine, also where all hosts have the image. A deploy needs no engine."""
    spec = context.spec
    if spec.image.base is None or spec.registry is not None or spec.builder == "head":
        return
    from kit.flows.image.base import warn_of_new_base  # noqa: PLC0415  (few clusters have their own base)
    from kit.remote.engine.client import Engine  # noqa: PLC0415

    with suppress(KitError), closing(Engine.connect()) as engine:
        warn_of_new_base(engine, spec, tag, reporter=context.reporter)


def _supplied(
    context: Context, tag: str, observed: Sequence[HostFacts], *, by_gpus: bool, dry_run: bool, again: bool
) -> tuple[Image, Sequence[HostFacts]]:
    """Return the image from the place that kit.yaml names, and the facts, which a build on the head changes.

    `by_gpus`: kit.yaml leaves the image's flavor to the GPUs of the hosts.
    """
    from kit.flows.image import source  # noqa: PLC0415  (only where a host lacks the image)

    spec = context.spec
    if spec.registry is not None:
        image = source.published(context, spec.registry, tag, observed, by_gpus=by_gpus, dry_run=dry_run, again=again)
        return image, observed
    if spec.builder == "head":
        return source.from_head(context, tag, observed, dry_run=dry_run)
    return _image(context, tag, dry_run=dry_run), observed


def _image(context: Context, tag: str, *, dry_run: bool) -> Image:
    """Return the image in this machine's engine, built if it is missing. A dry run builds nothing."""
    image = _local_image(tag)
    if image is None and not dry_run:
        from kit.flows.image.build import build_image  # noqa: PLC0415

        context.reporter.report(Note(text=f"{tag} is not on this machine yet: building it"))
        build_image(context.spec, reporter=context.reporter)
        image = _local_image(tag)
    return Image(tag=tag) if image is None else image


def _local_image(tag: str) -> Image | None:
    from kit.remote.engine.client import Engine  # noqa: PLC0415  (only where a host lacks the image)

    with closing(Engine.connect()) as engine:
        present = engine.image(tag)
    if present is None:
        return None
    arches = (present.arch,) if present.arch else ()
    return Image(tag=tag, id=present.ships_as, size=present.size_bytes, arches=arches)


def _keys(held: HeldKeys, cluster: str) -> ClusterKeys:
    """Return the keys that hosts hold, and new ones for those that are missing."""
    from kit.remote.cluster.keys import make_key  # noqa: PLC0415

    pairs = {
        owner: KeyPair(public=held.hosts[owner]) if owner in held.hosts else make_key(f"kit-{cluster}-{owner}")
        for owner in dict.fromkeys(held.owners.values())
    }
    return ClusterKeys(
        client=KeyPair(public=held.client) if held.client else make_key(f"kit-{cluster}"),
        hosts={host: pairs[owner] for host, owner in held.owners.items()},
    )


def _results(plan: Plan) -> tuple[HostResult, ...]:
    """Return what was done to each host. The check at the end changes none."""
    counts = Counter(host for host, _ in plan.steps(without=VERIFY))
    return tuple(
        HostResult(host=host, status="ok", text=f"{counts[host]} steps")
        if counts[host]
        else HostResult(host=host, status="unchanged", text="")
        for host in plan.hosts
    )
