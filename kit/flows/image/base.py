"""The image that a build starts from: found, pulled, or made from its distribution's packages once you agree."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable

from kit.errors import ImageError
from kit.events import HostDone, HostStep, Note, Reporter, Warned
from kit.flows.image.content import locked_bases
from kit.model.spec import ClusterSpec
from kit.plan.bases import LOCK, UNLOCKED, without_digest
from kit.remote.engine.client import Engine
from kit.remote.machine import bases, prepare

# Asks the person a question, and returns whether the answer is yes.
Consent = Callable[[str], bool]

_DEBIAN = re.compile(r"debian:([a-z]+)-slim")


def _made_of(name: str) -> tuple[str, str] | None:
    """Return the distribution and its suite if scripts/base can make the image."""
    if debian := _DEBIAN.fullmatch(name):
        return "Debian", debian[1]
    return ("Ubuntu", "noble") if name == "ubuntu:24.04" else None


def bring_bases(
    engine: Engine,
    names: Iterable[str],
    *,
    task: str,
    reporter: Reporter,
    consent: Consent | None,
    own: str | None = None,
) -> bool:
    """Make sure that `engine` has these base images. `task` is the name under which progress is reported.

    Without a registry, and with your consent, kit takes a base that this machine has or makes, and remembers that.
    Return whether one is another image than the lock names: what is built from it then has another tag.
    `own` is the base as kit.yaml names it. Its digest is yours, so kit takes no other image in its place.

    Raises ImageError if an image cannot be had.
    """
    others = [_bring(engine, name, own=own, task=task, reporter=reporter, consent=consent) for name in names]
    return any(others)


def warn_of_new_base(engine: Engine, spec: ClusterSpec, tag: str, *, reporter: Reporter) -> None:
    """Warn if the engine has another image under the name of your own base than the one that `tag` was built on.

    The name is part of the image's definition, and so of its tag, but the content of a base is not.
    """
    base = spec.image.base
    if base is None or "@" in base or base in locked_bases():
        return
    image, now = engine.image(tag), engine.image(base)
    if image is None or now is None or image.layers[: len(now.layers)] == now.layers:
        return
    # kit down --images also removes the head's image, so a build there comes after it, as a part of kit deploy.
    build = "" if engine.host else "kit image build --force, "
    reporter.report(
        Warned(
            text=f"{tag} was built on another {base} than {engine.host or 'this machine'} has now",
            hint=f"to build it on the new one: {build}kit down --images, kit deploy; "
            "with another tag for each build of your base, kit deploy is enough",
        )
    )


def _bring(
    engine: Engine, name: str, *, own: str | None, task: str, reporter: Reporter, consent: Consent | None
) -> bool:
    if engine.image(name) is not None:
        return False
    reporter.report(HostStep(host=task, text=f"pulling {name}"))

    def on_progress(text: str, fraction: float | None) -> None:
        reporter.report(HostStep(host=task, text=f"{name}: {text}", fraction=fraction))

    try:
        engine.pull(name, on_progress=on_progress)
    except ImageError as error:
        base = name if name == own else without_digest(name)
        locked = base != name
        # What this machine makes, or gets by docker load, never has the digest of a registry.
        here = locked and engine.image(base) is not None
        made_of = _made_of(base)
        if engine.host is not None or not (here or made_of):
            if locked:
                error.hint = (
                    f"let that engine reach a registry that has it, or ignore the lock: with {UNLOCKED}=1 kit takes "
                    f"any {base}, and the image has another tag"
                )
            raise
        make = None if here else made_of
        what = _offer(base, make, locked=locked)
        if consent is None or not consent(f"{error.message}\nkit can {what}\nDo that now?"):
            if consent is None:
                way = "; to agree: kit image build, which asks, or kit image build --yes; then repeat the command"
            else:
                way = "; or repeat the command with --yes" if make else "; repeat the command with --yes"
            error.hint = f"kit can {what}{way}"
            raise
        reporter.report(Note(text=error.message))
        if make:
            _make(engine, base, *make, task=task, reporter=reporter, error=error)
        if locked:
            file = bases.agree(base, os.environ)
            reporter.report(Note(text=f"kit takes {base} without the digest of its lock from now on: {file} names it"))
        return locked
    return False


def _offer(base: str, make: tuple[str, str] | None, *, locked: bool) -> str:
    """Return what kit can do without a registry."""
    without = f"without the digest of kit's lock ({LOCK})"
    if make is None:
        return f"take {base} as this machine has it, {without}"
    distribution, suite = make
    command = prepare.command_line("base", suite)
    made = f"make {base} from {distribution}'s packages, with mmdebstrap as root (about a minute): {command}"
    return f"{made}, and take it {without}" if locked else made


def _make(
    engine: Engine, base: str, distribution: str, suite: str, *, task: str, reporter: Reporter, error: ImageError
) -> None:
    command = prepare.command_line("base", suite)
    reporter.report(Note(text=f"kit makes it now: {command}"))
    failure = prepare.run(
        "base", "--no-pull", suite, on_line=lambda line: reporter.report(HostStep(host=task, text=line))
    )
    if failure is not None or engine.image(base) is None:
        why = failure or "the engine does not have it"
        raise ImageError(f"{base} cannot be made: {why}", hint=f"by hand: {command}") from error
    reporter.report(HostDone(host=task, text=f"{base} made from {distribution}'s packages"))
