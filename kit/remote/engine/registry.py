"""What an engine does with a registry: look up, push and pull an image of kit."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from kit.errors import AnswerError
from kit.model.answer import OddAnswer, convert
from kit.model.plan import Pull
from kit.model.registry import Published, RegistryLogin, address_of, name_of
from kit.remote.engine import moved
from kit.remote.engine.client import Engine, auth_config
from kit.remote.engine.events import MOST_TEXT, part, text
from kit.remote.engine.moved import OnProgress
from kit.remote.engine.registry_faults import Doing, fault

_DIGEST = re.compile(r"[a-z0-9]+:[0-9a-f]{2,128}")
_PUSHED = re.compile(rf"\S{{1,128}}: digest: ({_DIGEST.pattern}) size: [0-9]+", re.ASCII)
_ARCH = re.compile(r"[0-9a-z_]{1,32}")


def look_up(
    engine: Engine, reference: str, login: RegistryLogin | None, *, foreign: bool = False, push: str = ""
) -> Published:
    """Return what the registry has at `reference`, as that engine sees it. Raises ImageError with cause and fix.

    `foreign`: it is no image of kit. `push` is the command that pushes it, if that needs more words than usual.
    """
    with _faults(engine, reference, "look", login, foreign=foreign, push=push):
        answer = engine.api.inspect_distribution(reference, auth_config=auth_config(login))
        facts: _Distribution = convert(answer, _Distribution)
        digest = _digest(facts.Descriptor.digest)
    # Attestations and the like, which builders add, have no architecture.
    arches = dict.fromkeys(platform.architecture or "" for platform in facts.Platforms or ())
    return Published(
        digest=digest, arches=tuple(arch for arch in arches if arch != "unknown" and _ARCH.fullmatch(arch))
    )


class _Descriptor(Struct, frozen=True, kw_only=True):
    digest: str


class _Platform(Struct, frozen=True, kw_only=True):
    architecture: str | None = None


class _Distribution(Struct, frozen=True, kw_only=True):
    """What a registry has under a name, by the engine's words."""

    Descriptor: _Descriptor
    Platforms: list[_Platform] | None = None


def _digest(word: str) -> str:
    """Return the word if it is a digest. It becomes a part of an image's name."""
    if not _DIGEST.fullmatch(word):
        raise OddAnswer("it is no digest", word)
    return word


def push(engine: Engine, tag: str, reference: str, login: RegistryLogin | None, on_progress: OnProgress) -> str:
    """Push the engine's `tag` as `reference`, a name that is removed after the push. Return its digest."""
    repository, _, name = reference.rpartition(":")
    existed = engine.image(reference) is not None
    image = engine.image(tag)
    digest = ""
    with _faults(engine, reference, "push", login):
        try:
            engine.api.tag(tag, repository, name)
            messages = engine.api.push(repository, tag=name, stream=True, decode=True, auth_config=auth_config(login))
            for message in moved.followed(messages, moved.PUSH, on_progress, image.size_bytes if image else 0):
                word = _pushed(message)
                digest = _digest(word) if word else digest
        finally:
            if not existed:
                _forget(engine, reference)
    return digest


def _pushed(message: Mapping[str, Any]) -> str:
    """Return the digest of a push that has ended, or '' if the message is another one.

    With containerd's image store, an engine only gives it in a line for people: `TAG: digest: DIGEST size: 528`.
    """
    line = _PUSHED.fullmatch(text(message, "status"))
    return text(part(message, "aux"), "Digest") or (line[1] if line else "")


def pull(engine: Engine, step: Pull, login: RegistryLogin | None, on_progress: OnProgress) -> None:
    """Pull `step.source` at its digest, and tag it with kit's name. The engine gets no other name of it."""
    repository = name_of(step.source)
    pinned = f"{repository}@{step.digest}"
    foreign = not step.source.endswith(f"/{step.image}")
    # Somebody may have pulled a plugin's image, and its last name takes the image with it.
    kept = foreign and engine.image(pinned) is not None
    with _faults(engine, step.source, "pull", login, foreign=foreign):
        messages = engine.api.pull(
            repository, tag=step.digest, stream=True, decode=True, auth_config=auth_config(login)
        )
        moved.pulled(messages, on_progress)
        engine.api.tag(pinned, *step.image.rsplit(":", 1))
        if not kept:
            # Of kit's own images, this also removes the name that a killed kit left.
            _forget(engine, pinned)


def _forget(engine: Engine, name: str) -> None:
    """Remove the name. The image stays under its other one."""
    from docker.errors import DockerException  # noqa: PLC0415

    with contextlib.suppress(DockerException, OSError):
        engine.api.remove_image(name, noprune=True)


@contextlib.contextmanager
def _faults(
    engine: Engine,
    reference: str,
    doing: Doing,
    login: RegistryLogin | None,
    *,
    foreign: bool = False,
    push: str = "",
) -> Iterator[None]:
    from docker.errors import APIError  # noqa: PLC0415

    with engine.errors():
        try:
            yield
        except APIError as error:
            words = str(error.explanation or error)[:MOST_TEXT]
            raise fault(
                words, reference=reference, doing=doing, login=login, host=engine.host, foreign=foreign, push=push
            ) from error
        except OddAnswer as odd:
            raise AnswerError(
                f"kit cannot read what the engine reports about {reference}: {odd}",
                hint=f"another program may answer at {address_of(reference)}; try: docker pull {reference}",
                host=engine.host,
            ) from None
