"""The operator's end of a ship: this machine's engine as a source of layers, and the folder that holds them."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kit.errors import ImageError, KitError, UnreachableError
from kit.remote.engine import sdk
from kit.remote.ship.packs import answer_with, locked_folder
from kit.remote.ship.porter import capture, source
from kit.remote.ship.porter.archive import config_of, layers_of
from kit.remote.ship.porter.engine import EngineError, failure, size_of, sizes_of, tags_of
from kit.remote.ship.porter.layers import Layers, Stopped
from kit.remote.ship.porter.wire import CHUNK

# Longer than it may take to end a push.
END_S = capture.END_S + 5.0


# An engine that saves an image writes all of it to its disk before the first byte. kit cannot distinguish a slow disk
# from an engine that hangs, so the limit is that of a disk that copies this many bytes in a second.
_SLOW_DISK = 10_000_000


def patience_s(size: int) -> float:
    """Return how many seconds the engine may be silent while it gives an image of `size` bytes."""
    return max(float(sdk.TIMEOUT_S), size / _SLOW_DISK)


class SdkEngine:
    """This machine's engine, through the Docker SDK, with the methods that the porter's source calls."""

    def __init__(self, client: Any) -> None:
        self._api = client.api
        # Set while this engine has no tag of ours.
        self.still = threading.Event()
        self.still.set()

    def inspect(self, image: str) -> dict[str, Any]:
        with _engine_errors():
            facts = self._api.inspect_image(image)
        if not isinstance(facts, dict):
            raise EngineError("the engine answered something that is no object")
        return facts

    def sizes(self, image: str) -> list[int]:
        with _engine_errors():
            return sizes_of(self._api.history(image))

    def tags(self) -> list[str]:
        with _engine_errors():
            return tags_of(self._api.images())

    @contextlib.contextmanager
    def save(self, image: str) -> Iterator[Any]:
        with _engine_errors():
            stream = self._api.get_image(image, chunk_size=4 * CHUNK)
            yield _Reading(stream)

    def tag(self, image: str, repository: str, tag: str) -> None:
        self.still.clear()
        try:
            with _engine_errors():
                self._api.tag(image, repository, tag)
        except EngineError:
            self.still.set()
            raise

    def push(self, repository: str, tag: str) -> str:
        with _engine_errors():
            # An empty login: without one the SDK sends the user's, and this registry needs none.
            return failure(self._api.push(repository, tag, auth_config={"username": "", "password": ""}).encode())

    def remove(self, image: str) -> None:
        with contextlib.suppress(EngineError), _engine_errors():
            self._api.remove_image(image, noprune=True)
        self.still.set()


class _NoEngineError(EngineError):
    """The engine does not answer. `error` is what the person reads."""

    def __init__(self, error: UnreachableError) -> None:
        super().__init__(str(error))
        self.error = error


def _engine_errors() -> contextlib.AbstractContextManager[None]:
    """Turn the SDK's exceptions into the porter's, which its source understands."""
    return sdk.errors(
        refused=lambda error: EngineError(sdk.reply(error)),
        silent=lambda error: _NoEngineError(sdk.no_engine(error)),
        odd=lambda error: EngineError(f"kit cannot read its answer: {error}"),
    )


class _Reading:
    """Read from an iterator of byte strings."""

    def __init__(self, stream: Iterator[bytes]) -> None:
        self._stream = stream
        self._rest = b""

    def read(self, count: int) -> bytes:
        parts, have = [self._rest], len(self._rest)
        while have < count:
            chunk = next(self._stream, b"")
            if not chunk:
                break
            parts.append(chunk)
            have += len(chunk)
        data = b"".join(parts)
        self._rest = data[count:]
        return data[:count]


class Spool:
    """The layers of an image that this machine sends. `failed(error)` is called, from a thread, if the engine fails.

    `close` removes its folder. The next spool removes one that a killed kit left. Raises ImageError if the engine does
    not have the image, and UnreachableError if it does not answer.
    """

    def __init__(self, image: str, failed: Callable[[KitError], None]) -> None:
        self._image = image
        self._failed = failed
        self._client = sdk.connect()
        self._engine = SdkEngine(self._client)
        try:
            facts = self._engine.inspect(image)
            self.sizes = self._engine.sizes(image)
            self.size = size_of(facts)
            self.config = config_of(facts).decode()
            self.chain = layers_of(facts)
            self._client.api.timeout = patience_s(self.size)
        except EngineError as error:
            self._client.close()
            if isinstance(error, _NoEngineError):
                raise error.error from error
            raise ImageError(f"this machine's engine has no {image}: {error}", hint="build it: kit deploy") from error
        self._folder, self._lock = locked_folder("the layers of the image")
        self.layers = Layers(self._folder)
        self._requested: set[str] = set()
        self._filling = threading.Lock()

    def provide(self, wanted: set[str]) -> None:
        """Take these layers out of the engine, in the background, unless an earlier call did."""
        new = wanted - self._requested
        self._requested |= new
        if new:
            threading.Thread(target=self._fill, args=(new,), daemon=True).start()

    def _fill(self, wanted: set[str]) -> None:
        try:
            with self._filling:
                source.fill(self._engine, self._image, self.chain, wanted, self.layers)
        except Stopped:
            pass
        except Exception as error:
            # After `close`, what still reads or writes fails in many ways.
            if not self.layers.stopped:
                self._failed(self._why(error))

    def _why(self, error: Exception) -> KitError:
        if isinstance(error, _NoEngineError):
            return error.error
        reason = f"this machine's engine did not give the image's layers: {error}"
        if isinstance(error, OSError):
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            why = f"no space left in {Path(self._folder).parent}" if full else str(error)
            reason = f"the image's layers cannot be written on this machine: {why}"
        return ImageError(reason, hint="fix that, then: kit deploy")

    def answer(self, need: dict[str, int], put: Callable[[bytes], None]) -> None:
        """Send what an asker lacks, in frames. `need` maps a layer to the bytes it has. End if `put` raises OSError."""
        answer_with(self.layers, need, put)

    def close(self) -> None:
        self.layers.stop()
        # A push that has brought enough still removes its tag. A save just breaks off.
        self._engine.still.wait(END_S)
        self._client.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock)
