"""kit deploy: observe, plan, show, execute, verify."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing

from kit.errors import Interrupted, KitError
from kit.events import Note, Warned
from kit.flows.cluster import before, lines
from kit.flows.cluster.concerns import warn, warn_of_base
from kit.flows.cluster.drift import requirements_digest
from kit.flows.cluster.ended import (
    ends_nodes,
    spare_new_runs,
    spare_others,
    spare_runs,
    spare_runs_of_leavers,
    takes_hosts_out,
    warn_of_runs,
)
from kit.flows.cluster.look import Look, failed
from kit.flows.context import Context
from kit.model.keys import ClusterKeys, KeyPair
from kit.model.observed import HostFacts
from kit.model.plan import VERIFY, Plan, Round
from kit.model.result import DeployResult, HostResult
from kit.model.spec import ClusterSpec, ImageSpec
from kit.plan import flavour
from kit.plan.cluster import deploy as plans
from kit.plan.cluster import plugin as plugins
from kit.plan.cluster.dialect import HeldKeys
from kit.plan.cluster.foreign import foreign_problems
from kit.plan.cluster.nodes import nodes_of
from kit.plan.cluster.record import record_of
from kit.plan.cluster.supply import Image


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
        if spared:
            return
        if ends_nodes(steps, context.spec.name, look.observed()):
            # Once: after this round, a head without its container may have no Python that could answer.
            spared = True
            spare_new_runs(context, look.observed())
        elif takes_hosts_out(steps):
            spare_runs_of_leavers(context, look.observed(), "no container was changed")

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
        spare_others(context, observed, nodes, dry_run=dry_run)
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
        warn(context, image, observed)
        warn_of_base(look.context, tag)
    keys = _keys(plans.dialect_of(spec).held_keys(observed), spec.name)
    digest = requirements_digest(spec)
    plan = plans.deploy_plan(spec, observed, nodes, image, keys, requirements=digest, plugin=plugin)
    if not dry_run and not force:
        spare_runs(context, plan, observed)
        lines.spare_line(observed)
    elif dry_run:
        warn_of_runs(context, plan, observed)
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


def _deployed_image(observed: Sequence[HostFacts]) -> str:
    """Return the tag in the head's record, or ""."""
    record = record_of(observed[0])
    return record.image if record is not None else ""


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
