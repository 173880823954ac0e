"""Code as a porter's cargo: a pack of files, unpacked into the cluster's store on this host.

    objects/<2 digits>/<sha256>   the bytes of one file
    manifests/<digest>            one snapshot: its files, with their objects. Its SHA-256 is its name
    confirmed/<digest>            on the head: the hosts that have the snapshot, a name a line
    incoming/                     the pack while it comes

A manifest gets its name after all of its objects are here. So a manifest that is here is complete, and what its name
promises. Containers see the store read-only.

A pack is a line of JSON, {"kit-pack", "digest", "base", "remove", "add", "objects"}; the paths that the base's manifest
loses, and the lines that it gains, each a line; `<sha256> <size>` for each object, each a line; and their bytes.
"""

import contextlib
import hashlib
import json
import os
import time
from typing import Any, BinaryIO, Dict, List, Set, Tuple

from . import delta, manifest
from .layers import Layers

FOLDER = "incoming"
PACK = 1
# How many snapshots a host keeps. Above the upper number, the oldest go until the lower one is left.
MOST, KEPT = 64, 48
_CHUNK = 1 << 20
_HEX = frozenset("0123456789abcdef")


class Refused(Exception):
    """The code cannot be stored here. `kind`: base (the base is not here), code (the pack is wrong)."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Cargo:
    """The code of one ship. Its order is {"digest", "base", "store"}; its only layer is the pack."""

    def __init__(self, order: Dict[str, Any], layers: List[Any]) -> None:
        self.chain = [str(layer) for layer in layers]
        self.loaded = 0
        self._digest = _digest(str(order["digest"]))
        self._base = str(order["base"] or "")
        self._store = str(order["store"])
        self.folder = os.path.join(self._store, FOLDER)

    def held(self) -> int:
        """Return 1 if the snapshot is here. Raises Refused if neither it nor the base of the pack is."""
        if self._is_whole():
            self.loaded = len(self.chain)
            # A snapshot that is used stays when older ones go.
            with contextlib.suppress(OSError):
                os.utime(self._path(self._digest))
        elif self._base and not os.path.exists(self._path(_digest(self._base))):
            raise Refused("base", "the snapshot {} is not here".format(self._base[:12]))
        return self.loaded

    def load(self, layers: Layers) -> float:
        """Unpack the pack when it is whole. Return the seconds that it took."""
        if self.loaded == len(self.chain):
            return 0.0
        while not layers.wait_whole(self.chain[0], 60.0):
            pass
        start = time.monotonic()
        with open(layers.path(self.chain[0]), "rb") as pack:
            self._unpack(pack)
        self.loaded = 1
        self._prune()
        return time.monotonic() - start

    def confirm(self, hosts: List[str]) -> None:
        """Write down, on the head, which hosts have the snapshot."""
        folder = os.path.join(self._store, "confirmed")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = os.path.join(folder, self._digest)
        with contextlib.suppress(OSError), open(path) as file:
            hosts = sorted(set(hosts) | set(file.read().split()))
        _write(path, "".join(host + "\n" for host in hosts).encode())

    def _is_whole(self) -> bool:
        """Return whether the snapshot is here with all its objects. Forget what is damaged, so that it comes again."""
        path = self._path(self._digest)
        try:
            with open(path, "rb") as file:
                text = file.read()
        except OSError:
            return False
        whole = hashlib.sha256(text).hexdigest() == self._digest
        for entry in manifest.parse(text) if whole else ():
            if entry.kind == manifest.FILE and not _has_size(self._object(entry.digest), entry.size):
                whole = False
                with contextlib.suppress(OSError):
                    os.unlink(self._object(entry.digest))
        if not whole:
            os.unlink(path)
        return whole

    def _path(self, digest: str) -> str:
        return os.path.join(self._store, "manifests", digest)

    def _unpack(self, pack: BinaryIO) -> None:
        head = json.loads(pack.readline(4096).decode())
        if head.get("kit-pack") != PACK or head.get("digest") != self._digest:
            raise Refused("code", "this is a pack of something else")
        removed = [_line(pack) for _ in range(int(head["remove"]))]
        added = [_line(pack) for _ in range(int(head["add"]))]
        objects = [_object(_line(pack)) for _ in range(int(head["objects"]))]
        base = manifest.EMPTY
        if head["base"]:
            with open(self._path(_digest(str(head["base"]))), "rb") as file:
                base = file.read()
        try:
            text = delta.merge(base, removed, added)
        except manifest.BadManifest as error:
            raise Refused("code", "the pack is wrong: {}".format(error)) from error
        if hashlib.sha256(text).hexdigest() != self._digest:
            raise Refused("code", "the pack makes another snapshot than {}".format(self._digest[:12]))
        for digest, size in objects:
            self._store_object(pack, digest, size)
        os.makedirs(os.path.join(self._store, "manifests"), mode=0o700, exist_ok=True)
        _write(self._path(self._digest), text)

    def _object(self, digest: str) -> str:
        return os.path.join(self._store, "objects", digest[:2], digest)

    def _store_object(self, pack: BinaryIO, digest: str, size: int) -> None:
        path = self._object(digest)
        if os.path.exists(path):
            pack.seek(size, os.SEEK_CUR)
            return
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        partial = os.path.join(self._store, FOLDER, "object.part")
        seen = hashlib.sha256()
        with open(partial, "wb") as file:
            left = size
            while left:
                data = pack.read(min(left, _CHUNK))
                if not data:
                    raise Refused("code", "the pack ends too early")
                seen.update(data)
                file.write(data)
                left -= len(data)
        if seen.hexdigest() != digest:
            raise Refused("code", "the pack has wrong bytes for {}".format(digest[:12]))
        os.rename(partial, path)

    def _prune(self) -> None:
        """Remove the oldest snapshots, and the objects that no other one has."""
        folder = os.path.join(self._store, "manifests")
        by_age = sorted(os.listdir(folder), key=lambda name: os.stat(os.path.join(folder, name)).st_mtime)
        if len(by_age) <= MOST:
            return
        for name in by_age[: len(by_age) - KEPT]:
            os.unlink(os.path.join(folder, name))
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._store, "confirmed", name))
        used: Set[str] = set()
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), "rb") as file:
                used.update(entry.digest for entry in manifest.parse(file.read()))
        for path, _, names in os.walk(os.path.join(self._store, "objects")):
            for name in names:
                if name not in used:
                    os.unlink(os.path.join(path, name))


def _digest(word: str) -> str:
    """Return the word if it is a SHA-256. It becomes a name in the store."""
    if len(word) != 64 or not _HEX.issuperset(word):
        raise Refused("code", "this is not a digest: {!r}".format(word[:80]))
    return word


def _has_size(path: str, size: int) -> bool:
    try:
        return os.stat(path).st_size == size
    except OSError:
        return False


def _line(pack: BinaryIO) -> bytes:
    line = pack.readline(1 << 16)
    if not line.endswith(b"\n"):
        raise Refused("code", "the pack ends too early")
    return line[:-1]


def _object(line: bytes) -> Tuple[str, int]:
    digest, _, size = line.decode("ascii", "replace").partition(" ")
    if not size.isdigit():
        raise Refused("code", "this is not an object: {!r}".format(line[:80]))
    return _digest(digest), int(size)


def _write(path: str, data: bytes) -> None:
    """Write a file completely or not at all."""
    with open(path + ".part", "wb") as file:
        file.write(data)
    os.rename(path + ".part", path)
