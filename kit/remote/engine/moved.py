"""How far an engine's push or pull of an image is, in bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from kit.model.answer import OddAnswer
from kit.remote.engine.events import count, events, failure, part, text

# Engines allow 127. A layer counts twice while its size is not known.
_MOST_LAYERS = 2048

# Called with what happens now, and how far it is (0..1, or None).
OnProgress = Callable[[str, float | None], None]


class Way(Struct, frozen=True, kw_only=True):
    """An engine's words for a layer whose bytes move, have moved, and what follows; and a word for people (`done`)."""

    moving: str
    moved: tuple[str, ...]
    after: str
    done: str


PUSH = Way(moving="Pushing", moved=("Pushed",), after="", done="pushed")
PULL = Way(moving="Downloading", moved=("Download complete", "Pull complete"), after="Extracting", done="pulled")


class _Layers:
    """How far each layer is: bytes moved, and bytes in total.

    `whole` is the most that a push can move, 0 for a pull: the size of a pulled layer is known once its turn comes.
    """

    def __init__(self, way: Way, on_progress: OnProgress, whole: int) -> None:
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


def followed(
    messages: Iterator[object], way: Way, on_progress: OnProgress, whole: int = 0
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


def pulled(messages: Iterator[object], on_progress: OnProgress) -> None:
    """Follow a pull to its end. Raises the SDK's APIError for an error that the engine reports, and ConnectionError."""
    complete = False
    for message in followed(messages, PULL, on_progress):
        complete = complete or text(message, "status").startswith("Status: ")
    if not complete:
        raise ConnectionError("the pull broke off")
