"""The image that a build starts from: found, pulled, or made from its distribution's packages once you agree."""

from __future__ import annotations

import re
from collections.abc import Callable

from kit.errors import ImageError
from kit.events import HostDone, HostStep, Note, Reporter
from kit.plan.bases import UNLOCKED, without_digest
from kit.remote.engine.client import Engine
from kit.remote.machine import prepare

# Asks the person a question, and returns whether the answer is yes.
Consent = Callable[[str], bool]

_DEBIAN = re.compile(r"debian:([a-z]+)-slim")


def _made_of(name: str) -> tuple[str, str] | None:
    """Return the distribution and its suite if scripts/base can make the image."""
    if debian := _DEBIAN.fullmatch(name):
        return "Debian", debian[1]
    return ("Ubuntu", "noble") if name == "ubuntu:24.04" else None


def bring_base(engine: Engine, name: str, *, task: str, reporter: Reporter, consent: Consent | None) -> None:
    """Make sure that `engine` has the base image `name`. `task` is the name under which progress is reported.

    Without `consent`, kit makes no image. Raises ImageError if the image cannot be had.
    """
    if engine.image(name) is not None:
        return
    reporter.report(HostStep(host=task, text=f"pulling {name}"))
    try:
        engine.pull(name)
    except ImageError as error:
        unlocked = without_digest(name)
        if unlocked != name:
            # What this machine makes, or gets by docker load, never has the digest of a registry.
            error.hint = (
                f"let that engine reach a registry that has it, or ignore the lock: with {UNLOCKED}=1 kit takes any "
                f"{unlocked}, and the image has another tag"
            )
            raise
        made_of = _made_of(name)
        if made_of is None or engine.host is not None:
            raise
        distribution, suite = made_of
        command = prepare.command_line("base", suite)
        what = f"make {name} from {distribution}'s packages, with mmdebstrap as root (about a minute): {command}"
        if consent is None or not consent(f"{error.message}\nkit can {what}\nDo that now?"):
            error.hint = what + ("" if consent is None else "; or repeat the command with --yes")
            raise
        reporter.report(Note(text=f"{error.message}\nkit makes it now: {command}"))
        failure = prepare.run(
            "base", "--no-pull", suite, on_line=lambda line: reporter.report(HostStep(host=task, text=line))
        )
        if failure is not None or engine.image(name) is None:
            why = failure or "the engine does not have it"
            raise ImageError(f"{name} cannot be made: {why}", hint=f"by hand: {command}") from error
        reporter.report(HostDone(host=task, text=f"{name} made from {distribution}'s packages"))
