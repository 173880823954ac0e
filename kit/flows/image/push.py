"""`kit image push`: puts the image into a registry, from the engine that builds it; built first if it is not there."""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import dataclass

from kit.events import HostDone, HostStep, Phase, Reporter
from kit.flows.context import Context
from kit.flows.image.build import TASK, build_with, head_engine
from kit.model.registry import RegistryLogin, address_of, reference
from kit.model.spec import ClusterSpec
from kit.remote.engine import registry
from kit.remote.engine.client import Engine
from kit.remote.machine.credentials import find_login


@dataclass(frozen=True, kw_only=True, slots=True)
class PushResult:
    """`image` is its name at the registry, `digest` what that name stands for there, `seconds` the flow's time."""

    image: str
    digest: str
    tag: str
    size_bytes: int
    built: bool
    seconds: float


def push_image(spec: ClusterSpec, name: str, *, reporter: Reporter, login: RegistryLogin | None = None) -> PushResult:
    """Push to the registry `name` from this machine's engine. Without `login`, the one that docker or the environment
    has. Raises ImageError with the cause, UnreachableError without an engine.
    """
    with closing(Engine.connect()) as engine:
        return _push(engine, spec, name, reporter, login)


def push_from_head(context: Context, name: str, *, login: RegistryLogin | None = None) -> PushResult:
    """The same from the head's engine."""
    with head_engine(context) as engine:
        return _push(engine, context.spec, name, context.reporter, login)


def _push(engine: Engine, spec: ClusterSpec, name: str, reporter: Reporter, login: RegistryLogin | None) -> PushResult:
    start = time.monotonic()
    # First of all: nobody should wait for a build to be told that a login is half given.
    login = login or find_login(address_of(name), os.environ)
    made = build_with(engine, spec.image, reporter=reporter)
    wanted = reference(name, made.tag)
    task = engine.host or TASK
    reporter.report(Phase(name=f"push to {address_of(name)}", hosts=(engine.host,) if engine.host else ()))

    def on_progress(text: str, fraction: float | None) -> None:
        reporter.report(HostStep(host=task, text=text, fraction=fraction))

    on_progress("asking the registry", None)
    digest = registry.push(engine, made.tag, wanted, login, on_progress)
    reporter.report(HostDone(host=task, text=wanted))
    return PushResult(
        image=wanted,
        digest=digest,
        tag=made.tag,
        size_bytes=made.size_bytes,
        built=made.built,
        seconds=time.monotonic() - start,
    )
