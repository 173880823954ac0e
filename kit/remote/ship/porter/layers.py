"""Layers on this machine's disk: each a file that grows while others read it, named by the SHA-256 it must have.

A whole layer is `<sha256>`. One that is still incomplete is `<sha256>.part`. The next ship continues with what an
interrupted one left, and verifies it first. A reader gets the last byte of a layer only once the layer is verified, so
that one host's wrong bytes never make a whole layer on the next.
"""

import hashlib
import os
import stat
import tempfile
import threading
import time
from typing import BinaryIO, Callable, Dict, List, Optional, Set, Tuple, cast

from . import names
from .hold import LOCK
from .wire import CHUNK

PART = ".part"


class Corrupt(Exception):
    """A layer's bytes do not match its name. They were removed, and must come again."""


class Withdrawn(Exception):
    """The layer that is being read was corrupt, and was removed."""


class Stopped(Exception):
    """This end is closing, and no more bytes will come."""


class _Layer:
    def __init__(self, have: int, size: Optional[int], whole: bool) -> None:
        self.have = have
        self.size = size
        self.whole = whole
        # Counts how often the layer started again from its first byte.
        self.life = 0


class Layers:
    """The folder of layers, and waiting for them. Safe for one writer a layer and any number of readers."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._changed = threading.Condition()
        self._layers: Dict[str, _Layer] = {}
        # The order in which layers started to arrive, which is the order in which they are passed on.
        self._order: List[str] = []
        self._stopped = False
        # What an earlier ship left under a whole layer's name. Its bytes may have changed on the disk.
        self._unverified: Set[str] = set()
        self._verifying = threading.Lock()
        names.private(folder)

    def adopt(self, wanted: Set[str]) -> None:
        """Take over what an earlier ship left of these layers, and remove what it left of others."""
        for name in sorted(os.listdir(self.folder)):
            layer = name[: -len(PART)] if name.endswith(PART) else name
            if name == LOCK:
                continue
            if layer not in wanted or not stat.S_ISREG(os.lstat(self.file(name)).st_mode):
                # It belongs to another image, or never got its name.
                os.unlink(self.file(name))
                continue
            size = os.path.getsize(self.file(name))
            whole = not name.endswith(PART)
            with self._changed:
                self._layers[layer] = _Layer(size, size if whole else None, False)
                if whole:
                    self._unverified.add(layer)

    def verify(self) -> List[str]:
        """Read what an earlier ship left whole, and return the layers whose bytes are wrong. Those are removed.

        A second caller waits for the first, and gets an empty list.
        """
        wrong = []
        with self._verifying:
            for layer in sorted(self._unverified):
                right = digest_of(self.path(layer), lambda: self._stopped) == layer
                with self._changed:
                    self._admits()
                    self._unverified.remove(layer)
                    if right:
                        self._layers[layer].whole = True
                        self._order.append(layer)
                        self._changed.notify_all()
                        continue
                self.forget(layer)
                wrong.append(layer)
        return wrong

    def file(self, name: str) -> str:
        """Return the path of a file of the folder. Raises BadName."""
        return names.below(self.folder, name)

    def path(self, layer: str) -> str:
        """Return where the whole layer is. Raises BadName if it is no SHA-256."""
        return self.file(names.digest(layer))

    def part(self, layer: str) -> str:
        """Return where the layer is while it comes. Raises BadName if it is no SHA-256."""
        return self.file(names.digest(layer) + PART)

    def have(self, layer: str) -> int:
        """Return how many of the layer's bytes are here."""
        with self._changed:
            known = self._layers.get(layer)
            return known.have if known else 0

    def whole(self, layer: str) -> bool:
        with self._changed:
            known = self._layers.get(layer)
            return known is not None and known.whole

    def total(self) -> int:
        """Return how many bytes of all layers are here."""
        with self._changed:
            return sum(known.have for known in self._layers.values())

    def stop(self) -> None:
        """Wake all waiting threads with Stopped. Writers raise it as well, so nothing new appears in the folder."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    @property
    def stopped(self) -> bool:
        return self._stopped

    def wait_whole(self, layer: str, patience: float) -> bool:
        """Wait up to `patience` seconds for the layer, and return whether it is whole."""
        end = time.monotonic() + patience
        with self._changed:
            while True:
                if self._stopped:
                    raise Stopped
                known = self._layers.get(layer)
                if known is not None and known.whole:
                    return True
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)

    def forget(self, layer: str) -> None:
        """Remove the layer's bytes, because they are wrong."""
        with self._changed:
            known = self._layers.get(layer)
            if known is not None:
                known.have, known.whole, known.life = 0, False, known.life + 1
            if layer in self._order:
                self._order.remove(layer)
            for path in (self.path(layer), self.part(layer)):
                if os.path.exists(path):
                    os.unlink(path)
            self._changed.notify_all()

    # For writers. Files get their names under the lock, so that a folder that is removed after a stop stays removed.

    def _admits(self) -> None:
        if self._stopped:
            raise Stopped

    def opened(self, layer: str) -> BinaryIO:
        """Open the layer's file to continue it."""
        with self._changed:
            self._admits()
            return cast(BinaryIO, open(self.part(layer), "ab", buffering=0))

    def nameless(self) -> Tuple[int, str]:
        """Create a file in the folder for bytes that may be a layer. Return its descriptor and path."""
        with self._changed:
            self._admits()
            return tempfile.mkstemp(prefix="incoming-", dir=self.folder)

    def begun(self, layer: str, size: int, have: int) -> None:
        names.digest(layer)
        with self._changed:
            known = self._layers.setdefault(layer, _Layer(0, None, False))
            known.size, known.have = size, have
            if layer not in self._order:
                self._order.append(layer)
            self._changed.notify_all()

    def grown(self, layer: str, have: int) -> None:
        with self._changed:
            self._layers[layer].have = have
            self._changed.notify_all()

    def ended(self, layer: str, path: str) -> None:
        """Mark the layer as whole, in this file of the folder."""
        with self._changed:
            self._admits()
            # Under the lock, because a reader looks first and then opens what it saw.
            os.rename(path, self.path(layer))
            self._layers[layer].whole = True
            self._changed.notify_all()

    def admit(self, path: str, layer: str) -> None:
        """Accept a file of this folder as this layer."""
        size = os.path.getsize(path)
        with self._changed:
            self.begun(layer, size, size)
            self.ended(layer, path)

    # For readers.

    def next_of(self, wanted: Dict[str, int], patience: float) -> Optional[str]:
        """Return the first layer of `wanted` that can be sent on from the byte where the asker is.

        `wanted` maps a layer to the bytes that the asker has. Returns None if `patience` seconds pass without one.
        """
        end = time.monotonic() + patience
        with self._changed:
            while True:
                if self._stopped:
                    raise Stopped
                for layer in self._order:
                    known = self._layers[layer]
                    if layer in wanted and (known.whole or known.have >= wanted[layer]):
                        return layer
                left = end - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)

    def reader(self, layer: str) -> "Reader":
        with self._changed:
            known = self._layers[layer]
            path = self.path(layer) if known.whole else self.part(layer)
            # Under the lock, because it could be renamed between the two.
            return Reader(self, layer, open(path, "rb"), known.life, known.size or 0)

    def wait_beyond(self, layer: str, at: int, life: int, patience: float) -> int:
        """Return how many bytes are here once more than `at` are, or `at` if none came within `patience` seconds."""
        end = time.monotonic() + patience
        with self._changed:
            while True:
                known = self._layers[layer]
                if known.life != life:
                    raise Withdrawn(layer)
                if self._stopped:
                    raise Stopped
                left = end - time.monotonic()
                # The last byte waits until the layer is verified.
                have = known.have if known.whole else min(known.have, (known.size or 1) - 1)
                if have > at or left <= 0:
                    return max(have, at)
                self._changed.wait(left)


def digest_of(path: str, stopped: Callable[[], bool] = lambda: False) -> str:
    """Return the SHA-256 of a file, or "" once `stopped` returns true."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(4 * CHUNK), b""):
            if stopped():
                return ""
            digest.update(chunk)
    return digest.hexdigest()


class Reader:
    """Read one layer while it grows."""

    def __init__(self, layers: Layers, layer: str, file: object, life: int, size: int) -> None:
        self._layers = layers
        self._layer = layer
        self._file = file
        self._life = life
        self.size = size

    def read(self, at: int, patience: float) -> bytes:
        """Return at most a chunk from `at` on, or b"" after `patience` seconds without one. Raises Withdrawn."""
        have = self._layers.wait_beyond(self._layer, at, self._life, patience)
        if have <= at:
            return b""
        self._file.seek(at)  # type: ignore[attr-defined]
        data = self._file.read(min(CHUNK, have - at))  # type: ignore[attr-defined]
        return bytes(data)

    def close(self) -> None:
        self._file.close()  # type: ignore[attr-defined]


class Writer:
    """Write one layer, starting where an earlier ship stopped, and verify it at its end."""

    def __init__(self, layers: Layers, layer: str, size: int) -> None:
        self._layers = layers
        self.layer = layer
        self.size = size
        self._hash = hashlib.sha256()
        self._path = layers.part(layer)
        self.at = 0
        if os.path.exists(self._path):
            with open(self._path, "rb") as file:
                for chunk in iter(lambda: file.read(4 * CHUNK), b""):
                    self._hash.update(chunk)
                    self.at += len(chunk)
        self._file = layers.opened(layer)
        layers.begun(layer, size, self.at)

    def write(self, data: bytes) -> None:
        """Append bytes. Raises OSError if the disk is full, and Corrupt instead of writing more than the layer has."""
        if self.at + len(data) > self.size:
            self._wrong()
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) :]
        self._hash.update(data)
        self.at += len(data)
        self._layers.grown(self.layer, self.at)

    @property
    def complete(self) -> bool:
        return self.at >= self.size

    def finish(self) -> None:
        """Give the layer its name. Raises Corrupt if its bytes do not match it."""
        if self.at != self.size or self._hash.hexdigest() != self.layer:
            self._wrong()
        self.close()
        self._layers.ended(self.layer, self._path)

    def _wrong(self) -> None:
        self.close()
        self._layers.forget(self.layer)
        raise Corrupt(self.layer)

    def close(self) -> None:
        self._file.close()
