"""The operator's end of a ship: this machine's engine as a source of layers, and the folder where they lie."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from kit.errors import ImageError
from kit.remote.ship.porter import capture, source
from kit.remote.ship.porter.archive import config_of, layers_of
from kit.remote.ship.porter.engine import EngineError, failure
from kit.remote.ship.porter.layers import Layers, Stopped, Withdrawn
from kit.remote.ship.porter.serve import Packing, send
from kit.remote.ship.porter.wire import CHUNK, Broken

_PREFIX = "kit-ship-"
# Longer than it may take to end a push.
END_S = capture.END_S + 5.0


class SdkEngine:
    """This machine's engine, by the docker SDK, with the methods that the porter's source wants."""

    def __init__(self, client: Any) -> None:
        self._api = client.api
        # Set while this engine has no tag that is ours to take away.
        self.still = threading.Event()
        self.still.set()

    def inspect(self, image: str) -> dict[str, Any]:
        with _engine_errors():
            return dict(self._api.inspect_image(image))

    def sizes(self, image: str) -> list[int]:
        with _engine_errors():
            return [int(step["Size"]) for step in self._api.history(image) if step.get("Size")]

    def tags(self) -> list[str]:
        with _engine_errors():
            return [str(tag) for summary in self._api.images() for tag in summary.get("RepoTags") or []]

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
            # As given: the SDK would look for a login of the user's, and this registry wants none.
            return failure(self._api.push(repository, tag, auth_config={"username": "", "password": ""}).encode())

    def remove(self, image: str) -> None:
        with contextlib.suppress(EngineError), _engine_errors():
            self._api.remove_image(image, noprune=True)
        self.still.set()


@contextlib.contextmanager
def _engine_errors() -> Iterator[None]:
    import docker  # noqa: PLC0415
    import requests  # noqa: PLC0415

    try:
        yield
    except docker.errors.APIError as error:
        raise EngineError(str(error.explanation or error)) from error
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise EngineError(f"this machine's engine does not answer: {error}") from error


class _Reading:
    """An iterator of byte strings as something that can be read from."""

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
    """What this machine hands out of an image. `failed(text)` is called, from a thread, when the engine gives no more.

    Close it: its folder goes. One that a killed kit left goes with the next.
    """

    def __init__(self, image: str, failed: Callable[[str], None]) -> None:
        import docker  # noqa: PLC0415

        self._image = image
        self._failed = failed
        try:
            with _engine_errors():
                self._client = docker.from_env(timeout=600)
            self._engine = SdkEngine(self._client)
            facts = self._engine.inspect(image)
        except EngineError as error:
            raise ImageError(
                f"this machine's engine has no {image}: {error}", hint="kit image build, then the same again"
            ) from error
        self.config = config_of(facts).decode()
        self.chain = layers_of(facts)
        self.sizes = self._engine.sizes(image)
        self._folder, self._lock = _folder()
        self.layers = Layers(self._folder)
        self._asked: set[str] = set()
        self._filling = threading.Lock()

    def provide(self, wanted: set[str]) -> None:
        """Take these layers out of the engine, in the background, unless that was asked for before."""
        new = wanted - self._asked
        self._asked |= new
        if new:
            threading.Thread(target=self._fill, args=(new,), daemon=True).start()

    def _fill(self, wanted: set[str]) -> None:
        try:
            with self._filling:
                source.fill(self._engine, self._image, self.chain, wanted, self.layers)
        except Stopped:
            pass
        except Exception as error:
            # Whatever is hung up on, or finds its folder gone, breaks in its own way.
            if not self.layers.stopped:
                self._failed(self._why(error))

    def _why(self, error: Exception) -> str:
        if isinstance(error, OSError):
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            why = f"no space left in {Path(self._folder).parent}" if full else str(error)
            return f"the image's layers cannot be laid down on this machine: {why}"
        return f"this machine's engine did not give the image's layers: {error}"

    def answer(self, need: dict[str, int], put: Callable[[bytes], None]) -> None:
        """Sends `need` (the bytes that are there of each layer) in frames. Ends when `put` raises OSError."""
        with contextlib.suppress(Stopped, Withdrawn, OSError, Broken):
            send(need, cast(BinaryIO, _Writing(put)), self.layers, Packing())

    def close(self) -> None:
        self.layers.stop()
        # A push that has brought enough still has to take its tag away; a save is hung up on.
        self._engine.still.wait(END_S)
        self._client.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock)


class _Writing:
    def __init__(self, put: Callable[[bytes], None]) -> None:
        self._put = put

    def write(self, data: bytes) -> int:
        self._put(data)
        return len(data)

    def flush(self) -> None:
        pass


def _folder() -> tuple[str, int]:
    """A new folder and the lock that says that it is in use. On a disk: /tmp may be memory."""
    parent = os.environ.get("TMPDIR") or ("/var/tmp" if Path("/var/tmp").is_dir() else tempfile.gettempdir())  # noqa: S108
    for old in Path(parent).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(old / "lock", os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(old, ignore_errors=True)
            finally:
                os.close(lock)
    while True:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        lock = os.open(Path(folder) / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another kit that begins may have taken it for one that was left, before this lock was held.
            if os.fstat(lock).st_nlink:
                return folder, lock
        os.close(lock)
