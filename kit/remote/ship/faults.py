"""What ends a host's part of a ship, as an error with its next step."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from kit.errors import AnswerError, ImageError, KitError, StepError, UnreachableError
from kit.model import names
from kit.model.answer import OddAnswer
from kit.model.host import Login
from kit.remote.ship.porters import FarProgram
from kit.remote.ssh.program import INSTALL_PYTHON
from kit.remote.ssh.refusals import distrusted, dropped, dropped_error, no_session, reason

_SSH_FAILED = 255
_NO_SUCH_COMMAND = 127


class Words(Struct, frozen=True, kw_only=True):
    """How messages name the cargo of a ship, and what to do again after a failure."""

    cargo: str
    failed: str
    not_taken: str
    unpacking: str
    waiting: str
    # The command of the user that ships, and what to do if it fails.
    verb: str

    @property
    def again(self) -> str:
        return f"run {self.verb} again; it does not send again what has arrived"


IMAGE = Words(
    cargo="image",
    failed="the image did not arrive",
    not_taken="cannot take the image from",
    unpacking="the engine unpacks the last layer",
    waiting="waiting: another kit deploy sends an image here",
    verb="kit deploy",
)
CODE = Words(
    cargo="code",
    failed="the code did not arrive",
    not_taken="cannot take the code from",
    unpacking="unpacking the code",
    waiting="waiting: another run sends code here",
    verb="the command",
)


class BaseMissingError(StepError):
    """A host does not have the snapshot that a pack of code builds on."""


def silent(host: str, seconds: float, words: Words) -> KitError:
    """Return the error for a porter that reports nothing."""
    return UnreachableError(f"it sent nothing for {seconds:.0f} s", hint=words.again, host=host)


def odd(host: str, answer: OddAnswer) -> KitError:
    """Return the error for a porter that reports something that kit cannot read."""
    return AnswerError(
        f"kit cannot read what its porter reports: {answer}",
        hint=f"another program may answer there; look: kit ssh {host}",
        host=host,
    )


def lost(host: str, upstream: str | None, why: str, words: Words) -> KitError:
    """Return the error for a host that cannot get layers from its last upstream (None: this machine)."""
    text = f"the connection that brings the {words.cargo} broke: {why}"
    if upstream is not None:
        text = f"{words.not_taken} {upstream}: {why}"
    hint = "open TCP between the VMs (firewall, security group); then " + words.again
    return UnreachableError(text, hint=hint, host=host)


def not_given(host: str, name: str, cause: KitError, words: Words, *, renewal: str = "") -> KitError:
    """Return the error for a source that does not give the image or the code of this name.

    Its hint is that of `cause`. If that only says to try again, `renewal` is the command for when this does not help.
    """
    text = f"does not give {name}: {cause.message.removeprefix(f'{words.failed}: ')}"
    hint = cause.hint or words.again
    if renewal and hint == words.again:
        hint = f"{hint}. If {host} fails again, first: {renewal}"
    return (StepError if words is CODE else ImageError)(text, hint=hint, host=host)


def failed(host: str, text: str, kind: str, words: Words) -> KitError:
    """Return the error for a failure of this `kind` that the porter reported."""
    if kind == "base":
        return BaseMissingError(text, hint=words.again, host=host)
    hint = words.again
    if kind == "disk":
        free = "free space (docker system prune)"
        if words is CODE:
            # kit has removed the old code there that no run needs. docker's files may be on another disk.
            free = f"free space there (kit ssh {host} -- df -h {names.ROOT})"
        text, hint = f"no space left on its disk: {text}", f"{free}, then run {words.verb} again"
    elif kind == "corrupt":
        hint = f"its disk or memory may be faulty: check dmesg there, then run {words.verb} again"
    return StepError(f"{words.failed}: {text}", hint=hint, host=host)


def ended(login: Login, porter: FarProgram[Any] | None, words: Words) -> KitError:
    """Return the error for a porter that ended by itself: what ssh or the program there wrote last."""
    host = login.host
    output = porter.complaint() if porter else ""
    code = porter.exit_code if porter else None
    last = output.splitlines()[-1] if output else f"exit code {code}"
    if code == _NO_SUCH_COMMAND or "python3" in last:
        return StepError(
            f"the host cannot receive the {words.cargo}: {last}",
            hint=INSTALL_PYTHON,
            host=host,
        )
    if code == _SSH_FAILED and dropped(output):
        return dropped_error("its sshd", output, host)
    if code == _SSH_FAILED and distrusted(output):
        return no_session(login, output)
    if code == _SSH_FAILED:
        return UnreachableError(f"the connection broke: {reason(output) or last}", hint=words.again, host=host)
    return StepError(f"{words.failed}: {last}", hint=words.again, host=host)
