"""Where a deploy's image comes from if not from this machine's engine: a registry, or the head that built it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from kit.errors import HostsFailed, KitError, RegistryLoginError
from kit.events import HostDone, HostStep, Note, Phase
from kit.flows.context import Context
from kit.flows.image.build import build_on_head, head_engine
from kit.flows.image.login import login_to
from kit.model.host import Host
from kit.model.observed import HostFacts
from kit.model.registry import Published, RegistryLogin, address_of, reference
from kit.model.values import replace
from kit.plan.cluster.supply import Image
from kit.plan.flavour import flavour_of
from kit.remote.engine import registry
from kit.remote.ssh import fanout


def published(
    context: Context,
    name: str,
    tag: str,
    observed: Sequence[HostFacts],
    *,
    by_gpus: bool = False,
    dry_run: bool = False,
    again: bool = False,
) -> Image:
    """Return the image as the registry `name` has it. Each host that lacks it asks, which shows that it can pull it.

    `by_gpus`: the GPUs of the hosts chose its flavor. A dry run sends no login. If the registry requires one, the
    image's digest is unknown. `again`: kit has warned of a login that it keeps back. Raises the hosts' failures before
    anything is changed.
    """
    lacking = [facts.host for facts in observed if facts.image_id is None]
    wanted = reference(name, tag)
    login = None if dry_run else login_to(name, None if again else context.reporter)
    # Without these words, `kit image push` takes the flavor that fits the GPUs of the machine that it runs on.
    push = f"KIT_IMAGE_FLAVOUR={flavour_of(tag)} kit image push {name}" if by_gpus else ""
    first = ask(context, wanted, lacking, login, dry_run=dry_run, push=push)
    return Image(tag=tag, source=wanted, digest=first.digest, arches=first.arches)


def ask(
    context: Context,
    wanted: str,
    hosts: Sequence[Host],
    login: RegistryLogin | None,
    *,
    dry_run: bool,
    foreign: bool = False,
    push: str = "",
) -> Published:
    """Let these hosts ask the registry for `wanted`. Return what the first one sees.

    A dry run has no login. If the registry requires one, the digest is ''. `foreign`: it is no image of kit. `push` is
    the command that pushes it, if that needs more words than usual. Raises the hosts' failures.
    """
    address = address_of(wanted)
    context.reporter.report(Phase(name="registry", hosts=tuple(host.name for host in hosts)))

    def one(host: Host) -> Published:
        context.reporter.report(HostStep(host=host.name, text=f"asking {address}"))
        with closing(context.engine_of(context.login(host))) as engine:
            image = registry.look_up(engine, wanted, login, foreign=foreign, push=push)
        context.reporter.report(HostDone(host=host.name, text="can pull the image"))
        return image

    outcome = fanout.each(hosts, one)
    failures = list(outcome.failures.values())
    if dry_run and any(isinstance(failure, RegistryLoginError) for failure in failures):
        text = f"{address} requires a login, which a dry run does not send: kit deploy asks it for the image"
        context.reporter.report(Note(text=text))
        return Published(digest="")
    if failures:
        raise failures[0] if len(failures) == 1 else HostsFailed(_nothing(failures), failures)
    return outcome.results[hosts[0].name]


def _nothing(failures: Sequence[KitError]) -> str:
    return f"nothing was changed: {len(failures)} hosts cannot pull the image"


def from_head(
    context: Context, tag: str, observed: Sequence[HostFacts], *, dry_run: bool
) -> tuple[Image, Sequence[HostFacts]]:
    """Return the image in the head's engine, built if it is missing, and the facts after that."""
    head = context.inventory.head
    if dry_run and observed[0].image_id is None:
        context.reporter.report(Note(text=f"{tag} is not on {head.name} yet: kit deploy builds it there first"))
        return Image(tag=tag, builder=head.name), [replace(observed[0], image_id=""), *observed[1:]]
    if observed[0].image_id is None:
        context.reporter.report(Note(text=f"{tag} is not on {head.name} yet: building it there"))
        build_on_head(context)
    with head_engine(context) as engine:
        present = engine.image(tag)
    if present is None:
        raise KitError(f"{tag} disappeared from the engine", hint="run kit deploy again", host=head.name)
    image = Image(
        tag=tag,
        id=present.ships_as,
        size=present.size_bytes,
        builder=head.name,
        arches=(present.arch,) if present.arch else (),
    )
    return image, [replace(observed[0], image_id=present.image_id), *observed[1:]]
