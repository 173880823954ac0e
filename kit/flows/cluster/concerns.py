"""What a deploy warns of before it changes anything."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress

from kit.errors import KitError
from kit.events import Note, Warned
from kit.flows.context import Context
from kit.model.failures import alike
from kit.model.observed import HostFacts
from kit.model.swarm import HEARTBEAT_S
from kit.model.text import fold
from kit.plan import flavour
from kit.plan.cluster import checks, data
from kit.plan.cluster.gpus import too_few, unsplit
from kit.plan.cluster.supply import Image, differing
from kit.plan.swarm import checks as swarm_checks


def warn(context: Context, image: Image, observed: Sequence[HostFacts]) -> None:
    """Warn of what a user may want to change, and continue."""
    _warn_of_heartbeat(context, observed[0])
    _warn_of_missing_sources(context, observed)
    _note_unstaged(context, observed)
    warn_of_gpus(context, observed)
    _warn_of_images(context, image, observed)


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


def warn_of_gpus(context: Context, observed: Sequence[HostFacts]) -> None:
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


def warn_of_base(context: Context, tag: str) -> None:
    """Warn of a newer base in this machine's engine, also where all hosts have the image. A deploy needs no engine."""
    spec = context.spec
    if spec.image.base is None or spec.registry is not None or spec.builder == "head":
        return
    from kit.flows.image.base import warn_of_new_base  # noqa: PLC0415  (few clusters have their own base)
    from kit.remote.engine.client import Engine  # noqa: PLC0415

    with suppress(KitError), closing(Engine.connect()) as engine:
        warn_of_new_base(engine, spec, tag, reporter=context.reporter)
