"""Where a deploy's image comes from when it is not this machine's engine: a registry, or the head that built it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from kit.errors import HostsFailed, KitError
from kit.events import HostDone, HostStep, Note, Phase
from kit.flows.context import Context
from kit.flows.image.build import build_on_head, head_engine
from kit.model.host import Host
from kit.model.observed import HostFacts
from kit.model.plan import Plan, Pull
from kit.model.registry import Published, address_of, reference
from kit.plan.cluster.deploy import Image
from kit.remote.engine import registry
from kit.remote.machine.credentials import find_login
from kit.remote.ssh import fanout


def published(context: Context, name: str, tag: str, observed: Sequence[HostFacts]) -> Image:
    """The image as the registry `name` has it. Each host that lacks it asks, and so shows that it can pull it.

    Raises what keeps them from it, before anything is changed.
    """
    lacking = [facts.host for facts in observed if facts.image_id is None]
    wanted = reference(name, tag)
    login = find_login(address_of(name), os.environ)
    context.reporter.report(Phase(name="registry", hosts=tuple(host.name for host in lacking)))

    def ask(host: Host) -> Published:
        context.reporter.report(HostStep(host=host.name, text=f"asking {address_of(name)}"))
        engine = context.engine_of(context.login(host))
        try:
            found = registry.look_up(engine, wanted, login)
        finally:
            engine.close()
        context.reporter.report(HostDone(host=host.name, text="can pull the image"))
        return found

    found = fanout.each(lacking, ask)
    failures = list(found.failures.values())
    if failures:
        raise failures[0] if len(failures) == 1 else HostsFailed(_nothing(failures), failures)
    first = found.results[lacking[0].name]
    return Image(tag=tag, source=wanted, digest=first.digest, arches=first.arches)


def _nothing(failures: Sequence[KitError]) -> str:
    return f"nothing was changed: {len(failures)} hosts cannot pull the image"


def puller(context: Context, plan: Plan) -> Callable[[Host, Pull], None] | None:
    """What the executor does for a Pull; None where the plan has none, and no login is looked for."""
    name = context.spec.registry
    if name is None or not any(isinstance(step, Pull) for each in plan.hosts for step in each.steps):
        return None
    login = find_login(address_of(name), os.environ)

    def pull(host: Host, step: Pull) -> None:
        def on_progress(text: str, fraction: float | None) -> None:
            context.reporter.report(HostStep(host=host.name, text=text, fraction=fraction))

        on_progress("asking the engine", None)
        engine = context.engine_of(context.login(host))
        try:
            registry.pull(engine, step, login, on_progress)
        finally:
            engine.close()

    return pull


def from_head(
    context: Context, tag: str, observed: Sequence[HostFacts], *, dry_run: bool
) -> tuple[Image, Sequence[HostFacts]]:
    """The image in the head's engine, built there if it is not; and the facts as they are then."""
    head = context.inventory.head
    if dry_run and observed[0].image_id is None:
        context.reporter.report(Note(text=f"{tag} is not on {head.name} yet: kit deploy builds it there first"))
        return Image(tag=tag, builder=head.name), [replace(observed[0], image_id=""), *observed[1:]]
    if observed[0].image_id is None:
        context.reporter.report(Note(text=f"{tag} is not on {head.name} yet: building it there"))
        build_on_head(context)
    with head_engine(context) as engine:
        found = engine.image(tag)
    if found is None:
        raise KitError(f"{tag} is gone from the engine again", hint="kit deploy once more", host=head.name)
    image = Image(
        tag=tag, id=found.ships_as, size=found.size_bytes, builder=head.name, arches=(found.arch,) if found.arch else ()
    )
    return image, [replace(observed[0], image_id=found.image_id), *observed[1:]]
