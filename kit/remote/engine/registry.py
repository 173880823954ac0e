"""What an engine does with a registry: look up, push and pull an image, with progress in bytes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from kit.errors import AnswerError
from kit.model.answer import OddAnswer, convert
from kit.model.plan import Pull
from kit.model.registry import Published, RegistryLogin, address_of, name_of
from kit.remote.engine.client import Engine, auth_config
from kit.remote.engine.events import MOST_TEXT, count, events, failure, part, text
from kit.remote.engine.registry_faults import Doing, fault

_DIGEST = re.compile(r"[a-z0-9]+:[0-9a-f]{2,128}")
_PUSHED = re.compile(rf"\S{{1,128}}: digest: ({_DIGEST.pattern}) size: [0-9]+", re.ASCII)
_ARCH = re.compile(r"[0-9a-z_]{1,32}")
# Engines allow 127. A layer counts twice while its size is not known.
_MOST_LAYERS = 2048

# Called with what happens now, and how far it is (0..1, or None).
OnProgress = Callable[[str, float | None], None]


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
            for message in _followed(messages, _PUSH, on_progress, image.size_bytes if image else 0):
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
    """Pull `step.source` at its digest, and tag it with kit's name. The engine keeps no other name of it."""
    repository = name_of(step.source)
    pinned = f"{repository}@{step.digest}"
    foreign = not step.source.endswith(f"/{step.image}")
    with _faults(engine, step.source, "pull", login, foreign=foreign):
        messages = engine.api.pull(
            repository, tag=step.digest, stream=True, decode=True, auth_config=auth_config(login)
        )
        complete = False
        for message in _followed(messages, _PULL, on_progress):
            complete = complete or text(message, "status").startswith("Status: ")
        if not complete:
            raise ConnectionError("the pull broke off")
        engine.api.tag(pinned, *step.image.rsplit(":", 1))
        # This also removes the name that a killed kit left.
        _forget(engine, pinned)


def _forget(engine: Engine, name: str) -> None:
    """Remove the name. The image stays under its other one."""
    from docker.errors import DockerException  # noqa: PLC0415

    with contextlib.suppress(DockerException, OSError):
        engine.api.remove_image(name, noprune=True)


class _Way(Struct, frozen=True, kw_only=True):
    """An engine's words for a layer whose bytes move, have moved, and what follows; and a word for people (`done`)."""

    moving: str
    moved: tuple[str, ...]
    after: str
    done: str


_PUSH = _Way(moving="Pushing", moved=("Pushed",), after="", done="pushed")
_PULL = _Way(moving="Downloading", moved=("Download complete", "Pull complete"), after="Extracting", done="pulled")


class _Layers:
    """How far each layer is: bytes moved, and bytes in total.

    `whole` is the most that a push can move, 0 for a pull: the size of a pulled layer is known once its turn comes.
    """

    def __init__(self, way: _Way, on_progress: OnProgress, whole: int) -> None:
        self._way = way
        self._on_progress = on_progress
        self._most = whole
        self._moved: dict[str, int] = {}
        self._whole: dict[str, int] = {}
        self._unknown: set[str] = set()
        self._reported = ""

    def take(self, message: Mapping[str, Any]) -> None:
        layer, status = text(message, "id"), text(message, "status")
        if len(self._whole) + len(self._unknown) > _MOST_LAYERS:
            raise OddAnswer("it reports more layers than an image can have", layer)
        detail = part(message, "progressDetail")
        moved = count(detail, "current")
        if status == "Pulling fs layer":
            self._unknown.add(layer)
            return
        if status == self._way.moving and moved is not None:
            # The total may be an estimate that the last bytes exceed.
            self._moved[layer] = moved
            self._whole[layer] = max(count(detail, "total") or 0, moved)
        elif status in self._way.moved:
            self._moved[layer] = self._whole.setdefault(layer, 0)
        elif status != self._way.after:
            return
        self._unknown -= self._whole.keys()
        self._report(status)

    def _report(self, status: str) -> None:
        moved, whole = sum(self._moved.values()), self._most or sum(self._whole.values())
        fraction = None
        if self._unknown or not whole:
            text = f"{self._way.done} {_megabytes(moved)}"
        elif moved < whole:
            text, fraction = f"{self._way.done} {_megabytes(moved)} of {_megabytes(whole)}", moved / whole
        elif status == self._way.after:
            text, fraction = "engine unpacks the image", 1.0
        else:
            return
        if text != self._reported:
            self._reported = text
            self._on_progress(text, fraction)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.0f} MB"


def _followed(
    messages: Iterator[object], way: _Way, on_progress: OnProgress, whole: int = 0
) -> Iterator[Mapping[str, Any]]:
    """Yield the engine's messages, and report progress as bytes move. Raise an error among them as the SDK does."""
    from docker.errors import APIError  # noqa: PLC0415

    layers = _Layers(way, on_progress, whole)
    try:
        for message in events(messages):
            error = failure(message)
            if error is not None:
                raise APIError(error, explanation=error)
            layers.take(message)
            yield message
    finally:
        # Whatever ends this early, Ctrl-C too: the engine stops when we hang up.
        if hasattr(messages, "close"):
            messages.close()


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
