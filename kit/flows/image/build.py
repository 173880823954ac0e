"""`kit image build`: build the image that the spec defines, unless the engine has it.

The engine is this machine's, or the head's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from kit.errors import ImageError
from kit.events import HostDone, HostStep, Note, Phase, Reporter, Warned
from kit.flows.context import Context
from kit.flows.image.base import Consent, bring_bases, warn_of_new_base
from kit.flows.image.content import content, wheel_files
from kit.model.image import ImageContent
from kit.model.logins import without_logins
from kit.model.spec import ClusterSpec
from kit.model.values import replace
from kit.plan.flavour import OPEN
from kit.plan.image import CA_PATH, needed_bases
from kit.remote.engine.build import BuildStep, OnStep
from kit.remote.engine.client import Engine
from kit.remote.machine.trust import elsewhere, extra_certificates, proxy_arguments

# What the reporter calls this task where it is on no host.
TASK = "image"


class ImageResult(Struct, frozen=True, kw_only=True):
    """The image: `image_id` is sha256:…; `built` is False when it was there; `seconds` is the flow's time."""

    tag: str
    image_id: str
    size_bytes: int
    built: bool
    seconds: float


@contextmanager
def head_engine(context: Context) -> Iterator[Engine]:
    engine = context.engine_of(context.login(context.inventory.head))
    try:
        yield engine
    finally:
        engine.close()


def head_spec(context: Context) -> ClusterSpec:
    """Return the spec with a definite flavor: that of the head's GPUs, if kit.yaml leaves it open."""
    if context.spec.image.flavour not in OPEN:
        return context.spec
    from kit.flows.cluster.look import Look  # noqa: PLC0415

    inventory = replace(context.inventory, hosts=(context.inventory.head,))
    look = Look(replace(context, inventory=inventory))
    look.observed()
    return look.context.spec


def build_on_head(context: Context, *, force: bool = False) -> ImageResult:
    """Build with the head's engine. This machine needs none."""
    context.reporter.report(Phase(name="build", hosts=(context.inventory.head.name,)))
    with head_engine(context) as engine:
        return build_with(engine, head_spec(context), reporter=context.reporter, force=force)


def build_image(
    spec: ClusterSpec, *, reporter: Reporter, force: bool = False, consent: Consent | None = None
) -> ImageResult:
    """Build `spec`'s image; `force` builds every step again. Raises InputError, UnreachableError and ImageError.

    `consent` is asked before kit makes a base image that no registry gives.
    """
    engine = Engine.connect()
    try:
        return build_with(engine, spec, reporter=reporter, force=force, consent=consent)
    finally:
        engine.close()


def build_with(
    engine: Engine, spec: ClusterSpec, *, reporter: Reporter, force: bool = False, consent: Consent | None = None
) -> ImageResult:
    """Build with an engine that the caller closes."""
    start = time.monotonic()
    wanted = content(spec)
    task = engine.host or TASK
    before = engine.image(wanted.tag)
    image = None if force else before
    if image is None:
        needed = needed_bases(wanted)
        if bring_bases(engine, needed, task=task, reporter=reporter, consent=consent, own=spec.image.base):
            wanted = content(spec)
            before = engine.image(wanted.tag)
            image = None if force else before
    built = image is None
    if image is None:
        _check_architecture(engine, wanted)
        certificates = extra_certificates(os.environ)
        if certificates:
            count = certificates.count(b"BEGIN CERTIFICATE")
            reporter.report(Note(text=f"the build trusts {count} certificates of this machine; the image will not"))

        image = engine.build(
            wanted,
            beside={CA_PATH: certificates, **wheel_files(spec, wanted)},
            arguments=_proxies(reporter),
            on_step=report_steps(reporter, task),
            fresh=force,
        )
    else:
        warn_of_new_base(engine, spec, wanted.tag, reporter=reporter)
    if before is not None and before.image_id != image.image_id:
        reporter.report(
            Warned(
                text=f"hosts that have {wanted.tag} keep the image that they have, because the tag is the same",
                hint=f"to replace it there: {_replacing(engine, spec)}, then kit deploy",
            )
        )
    reporter.report(HostDone(host=task, text=f"{wanted.tag} ({'built' if built else 'unchanged'})"))
    return ImageResult(
        tag=wanted.tag,
        image_id=image.image_id,
        size_bytes=image.size_bytes,
        built=built,
        seconds=time.monotonic() - start,
    )


def _replacing(engine: Engine, spec: ClusterSpec) -> str:
    """Return the commands before a deploy that gives all hosts the image that `engine` built again under its tag."""
    if spec.registry:
        return f"kit image push {spec.registry}, kit down --images"
    if engine.host:
        # That removes the new image from the head as well, and an engine may then build the old one from its cache.
        return f"kit down --images (which also removes it from {engine.host}), kit image build --force"
    return "kit down --images"


def _check_architecture(engine: Engine, wanted: ImageContent) -> None:
    """Raise ImageError if a flavor of kit's own recipes would start from a base for another processor."""
    if wanted.flavour == "ssh-layer":
        return
    for name in needed_bases(wanted):
        base = engine.image(name)
        if base is not None and base.arch not in ("amd64", ""):
            raise ImageError(
                f"the flavor {wanted.flavour} is for x86-64, and this engine is for {base.arch}",
                hint="build it on an x86-64 machine, such as the head with kit deploy --builder head; "
                "or put kit's layer on an image of yours: flavour: ssh-layer",
                host=engine.host,
            )


def _proxies(reporter: Reporter) -> dict[str, str]:
    """Return this machine's proxies that a build reaches. It has its own loopback, on this machine, too."""
    proxies = proxy_arguments(os.environ)
    usable = elsewhere(proxies)
    for name in proxies.keys() - usable.keys():
        reporter.report(Note(text=f"the build does without {name}: it cannot reach this machine's loopback"))
    return usable


def report_steps(reporter: Reporter, task: str) -> OnStep:
    """Return what a build calls with each step, to report it as progress of `task`."""

    def on_step(step: BuildStep) -> None:
        # kit.yaml may have no login. One in a form that its rules do not know must not be printed.
        text = f"step {step.number}/{step.total} {without_logins(step.instruction)}"
        reporter.report(HostStep(host=task, text=text, fraction=step.number / step.total))

    return on_step
