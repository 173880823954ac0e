"""The image of nccl.plugin, which comes to the hosts as the nodes' own image does.

Hosts pull it if kit.yaml has `registry:`. Otherwise this machine's engine has it, or with `builder: head` the head's,
and kit ships it from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from kit.errors import ImageError
from kit.events import HostStep, Note
from kit.flows.context import Context
from kit.flows.image.build import TASK, head_engine
from kit.flows.image.login import login_to
from kit.flows.image.source import ask
from kit.model.nccl import PluginImage
from kit.model.observed import HostFacts
from kit.model.values import replace
from kit.plan.cluster import plugin as plans
from kit.plan.cluster.plugin import Plugin
from kit.plan.cluster.supply import Image
from kit.remote.engine.client import Engine


def find_plugin(
    context: Context, wanted: PluginImage, observed: Sequence[HostFacts], *, dry_run: bool = False
) -> Plugin:
    """Return the plugin's image from the place that kit.yaml names, and its content.

    kit looks up what a tag means in each deploy. With a digest, it only does that if a host lacks the plugin. A dry run
    pulls nothing, and sends no login.
    """
    spec = context.spec
    if wanted.digest:
        known = _plugin(context, wanted, wanted.digest, Image(tag=""))
        if not any(plans.lacks(facts, known) for facts in observed):
            return known
    if spec.registry is not None:
        return _published(context, wanted, observed, dry_run=dry_run)
    if spec.builder == "head":
        with head_engine(context) as engine:
            return _held(context, wanted, engine, dry_run=dry_run)
    with closing(Engine.connect()) as engine:
        return _held(context, wanted, engine, dry_run=dry_run)


def _held(context: Context, wanted: PluginImage, engine: Engine, *, dry_run: bool) -> Plugin:
    """Return the image of an engine, pulled if it is missing."""
    present = engine.image(wanted.image)
    if present is None:
        where = engine.host or "this machine"
        next_step = "kit deploy pulls it there first" if dry_run else "pulling it there"
        context.reporter.report(Note(text=f"{wanted.image} is not on {where} yet: {next_step}"))
        if dry_run:
            return _plugin(context, wanted, "", Image(tag="", builder=engine.host or ""))

        def on_progress(text: str, fraction: float | None) -> None:
            step = HostStep(host=engine.host or TASK, text=f"{wanted.image}: {text}", fraction=fraction)
            context.reporter.report(step)

        context.reporter.report(HostStep(host=engine.host or TASK, text=f"pulling {wanted.image}"))
        engine.pull(wanted.image, on_progress=on_progress, what="nccl.plugin's image")
        present = engine.image(wanted.image)
    if present is None:
        raise ImageError(f"{wanted.image} disappeared from the engine", hint="run kit deploy again", host=engine.host)
    image = Image(
        tag="",
        id=present.ships_as,
        size=present.size_bytes,
        builder=engine.host or "",
        # By its id: meanwhile, somebody may give its name to another image.
        origin=present.image_id,
        arches=(present.arch,) if present.arch else (),
    )
    return _plugin(context, wanted, wanted.digest or present.ships_as, image)


def _published(context: Context, wanted: PluginImage, observed: Sequence[HostFacts], *, dry_run: bool) -> Plugin:
    """Return the image as its registry has it. Each host that lacks the plugin asks: that shows that it can pull."""
    login = None if dry_run else login_to(wanted.repository, None)
    content = wanted.digest
    arches: tuple[str, ...] = ()
    if not content:
        # What a tag means now.
        published = ask(context, wanted.image, [observed[0].host], login, dry_run=dry_run, foreign=True)
        content, arches = published.digest, published.arches
    plugin = _plugin(context, wanted, content, Image(tag="", source=wanted.image, digest=content, arches=arches))
    others = [facts.host for facts in observed[0 if wanted.digest else 1 :] if plans.lacks(facts, plugin)]
    if content and others:
        answer = ask(context, wanted.image, others, login, dry_run=dry_run, foreign=True)
        plugin = replace(plugin, image=replace(plugin.image, arches=arches or answer.arches))
    return plugin


def _plugin(context: Context, wanted: PluginImage, content: str, image: Image) -> Plugin:
    tag = plans.tag_of(context.spec.name, content, wanted.path)
    return Plugin(wanted=wanted, content=content, image=replace(image, tag=tag, name=wanted.image))
