"""`kit image push`: push the image to a registry, from the engine that builds it. Build it first if it is missing."""

from __future__ import annotations

import time
from contextlib import closing

from msgspec import Struct

from kit.events import HostDone, HostStep, Phase, Reporter
from kit.flows.context import Context
from kit.flows.image.build import TASK, build_with, head_engine, head_spec
from kit.flows.image.login import login_to
from kit.model.registry import RegistryLogin, address_of, reference
from kit.model.spec import ClusterSpec
from kit.remote.engine import registry
from kit.remote.engine.client import Engine


class PushResult(Struct, frozen=True, kw_only=True):
    """`image` is its name at the registry, `digest` that of the image there, `seconds` the flow's time."""

    image: str
    digest: str
    tag: str
    size_bytes: int
    built: bool
    seconds: float


def push_image(spec: ClusterSpec, name: str, *, reporter: Reporter, login: RegistryLogin | None = None) -> PushResult:
    """Push to the registry `name` from this machine's engine. Without `login`, use docker's or the environment's.

    Raises ImageError with the cause, and UnreachableError without an engine.
    """
    with closing(Engine.connect()) as engine:
        return _push(engine, spec, name, reporter, login)


def push_from_head(context: Context, name: str, *, login: RegistryLogin | None = None) -> PushResult:
    """Push from the head's engine."""
    with head_engine(context) as engine:
        return _push(engine, head_spec(context), name, context.reporter, login)


def _push(engine: Engine, spec: ClusterSpec, name: str, reporter: Reporter, login: RegistryLogin | None) -> PushResult:
    start = time.monotonic()
    # First: an incomplete login should not cost the time of a build.
    login = login or login_to(name, reporter)
    image = build_with(engine, spec, reporter=reporter)
    wanted = reference(name, image.tag)
    task = engine.host or TASK
    reporter.report(Phase(name=f"push to {address_of(name)}", hosts=(engine.host,) if engine.host else ()))

    def on_progress(text: str, fraction: float | None) -> None:
        reporter.report(HostStep(host=task, text=text, fraction=fraction))

    on_progress("asking the registry", None)
    digest = registry.push(engine, image.tag, wanted, login, on_progress)
    reporter.report(HostDone(host=task, text=wanted))
    return PushResult(
        image=wanted,
        digest=digest,
        tag=image.tag,
        size_bytes=image.size_bytes,
        built=image.built,
        seconds=time.monotonic() - start,
    )
