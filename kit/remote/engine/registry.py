"""What an engine does with a registry: look up, push and pull an image, with progress in bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kit.model.plan import Pull
from kit.model.registry import Published, RegistryLogin
from kit.remote.engine.client import Engine
from kit.remote.engine.registry_faults import Doing, fault

# Called with what happens now, and how far it is (0..1, or None).
OnProgress = Callable[[str, float | None], None]


def look_up(engine: Engine, reference: str, login: RegistryLogin | None) -> Published:
    """Return what the registry has at `reference`, as that engine sees it. Raises ImageError with cause and fix."""
    with _faults(engine, reference, "look", login):
        facts = engine.api.inspect_distribution(reference, auth_config=_auth(login))
    platforms = facts.get("Platforms") or []
    arches = tuple(dict.fromkeys(str(p["architecture"]) for p in platforms if p.get("architecture")))
    return Published(
        digest=str(facts["Descriptor"]["digest"]),
        # Attestations and the like, which builders add, have no architecture.
        arches=tuple(arch for arch in arches if arch != "unknown"),
    )


def push(engine: Engine, tag: str, reference: str, login: RegistryLogin | None, on_progress: OnProgress) -> str:
    """Push the engine's `tag` as `reference`, a name that is removed after the push. Return its digest."""
    repository, _, name = reference.rpartition(":")
    existed = engine.image(reference) is not None
    image = engine.image(tag)
    digest = ""
    with _faults(engine, reference, "push", login):
        try:
            engine.api.tag(tag, repository, name)
            messages = engine.api.push(repository, tag=name, stream=True, decode=True, auth_config=_auth(login))
            for message in _followed(messages, _PUSH, on_progress, image.size_bytes if image else 0):
                digest = str((message.get("aux") or {}).get("Digest") or digest)
        finally:
            if not existed:
                _forget(engine, reference)
    return digest


def pull(engine: Engine, step: Pull, login: RegistryLogin | None, on_progress: OnProgress) -> None:
    """Pull `step.source` at its digest, and tag it with kit's name. The engine keeps no other name of it."""
    repository = step.source.rpartition(":")[0]
    pinned = f"{repository}@{step.digest}"
    with _faults(engine, step.source, "pull", login):
        messages = engine.api.pull(repository, tag=step.digest, stream=True, decode=True, auth_config=_auth(login))
        complete = False
        for message in _followed(messages, _PULL, on_progress):
            complete = complete or str(message.get("status", "")).startswith("Status: ")
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


def _auth(login: RegistryLogin | None) -> dict[str, str]:
    """Return the login as engines expect it. An empty one means none; with None the SDK would look for one."""
    if login is None:
        return {}
    secret = login.secret.reveal().decode()
    return {"identitytoken": secret} if login.is_token else {"username": login.user, "password": secret}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Way:
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
        layer, status = str(message.get("id", "")), str(message.get("status", ""))
        detail = message.get("progressDetail") or {}
        if status == "Pulling fs layer":
            self._unknown.add(layer)
            return
        if status == self._way.moving and detail.get("current") is not None:
            # The total may be an estimate that the last bytes exceed.
            self._moved[layer] = int(detail["current"])
            self._whole[layer] = max(int(detail.get("total") or 0), self._moved[layer])
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
    messages: Iterator[Mapping[str, Any]], way: _Way, on_progress: OnProgress, whole: int = 0
) -> Iterator[Mapping[str, Any]]:
    """Yield the engine's messages, and report progress as bytes move. Raise an error among them as the SDK does."""
    from docker.errors import APIError  # noqa: PLC0415

    layers = _Layers(way, on_progress, whole)
    try:
        for message in messages:
            if "error" in message:
                raise APIError(str(message["error"]), explanation=str(message["error"]))
            layers.take(message)
            yield message
    finally:
        # Whatever ends this early, Ctrl-C too: the engine stops when we hang up.
        if hasattr(messages, "close"):
            messages.close()


@contextlib.contextmanager
def _faults(engine: Engine, reference: str, doing: Doing, login: RegistryLogin | None) -> Iterator[None]:
    from docker.errors import APIError  # noqa: PLC0415

    with engine.errors():
        try:
            yield
        except APIError as error:
            words = str(error.explanation or error)
            raise fault(words, reference=reference, doing=doing, login=login, host=engine.host) from error
