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
import re
import time
from typing import Any, BinaryIO, Callable, Dict, List, Set, Tuple

from . import delta, manifest, names
from .layers import Layers

FOLDER = "incoming"
# How many snapshots a host keeps. Above the upper number, the oldest go until the lower one is left.
MOST, KEPT = 64, 48
_CHUNK = 1 << 20
_SIZE = re.compile("[0-9]{1,18}")


class Refused(Exception):
    """The code cannot be stored here, or not be given.

    `kind`: base (a snapshot is not here), code (the pack is wrong), corrupt (what is here has wrong bytes).
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Cargo:
    """The code of one ship. Its order is {"digest", "base", "store", "keep"}; its only layer is the pack.

    `keep`: digests of snapshots that runs need, so they stay, however old they are.
    """

    def __init__(self, order: Dict[str, Any], layers: List[Any]) -> None:
        self.chain = [names.digest(layer) for layer in layers]
        self.loaded = 0
        self._digest = _digest(order["digest"])
        self._base = _digest(order["base"]) if order["base"] else ""
        self._store = str(order["store"])
        self._keep = {self._digest, *(_digest(name) for name in order.get("keep") or ())}
        self.folder = names.below(self._store, FOLDER)

    def held(self) -> int:
        """Return 1 if the snapshot is here. Raises Refused if neither it nor the base of the pack is."""
        if self._is_whole():
            self.loaded = len(self.chain)
            # A snapshot that is used stays when older ones go.
            with contextlib.suppress(OSError):
                os.utime(self._path(self._digest))
        elif self._base and not os.path.exists(self._path(self._base)):
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

    def pack(self) -> Tuple[str, int]:
        """Write the snapshot of this host's store as a pack without a base, a layer of a ship that begins now.

        Return its SHA-256 and its size in bytes. Raises Refused if the snapshot is not here with all its bytes.
        """
        if not self._is_whole():
            raise Refused("base", "the snapshot {} is not here".format(self._digest[:12]))
        with open(self._path(self._digest), "rb") as file:
            change = delta.between(manifest.EMPTY, file.read())
        seen = hashlib.sha256()
        # A name that no layer has, so what a killed porter left of it goes with the next ship.
        partial = names.below(self.folder, "pack.part")
        with open(partial, "wb") as pack:

            def write(data: bytes) -> None:
                seen.update(data)
                pack.write(data)

            write(delta.pack_head(self._digest, None, change))
            for digest, size in change.objects:
                self._copy_object(digest, size, write)
            total = pack.tell()
        os.rename(partial, names.below(self.folder, seen.hexdigest()))
        return seen.hexdigest(), total

    def _copy_object(self, digest: str, size: int, write: Callable[[bytes], None]) -> None:
        """Pass the bytes of an object to `write`. Forget it if they are not what its name says. Raises Refused."""
        seen = hashlib.sha256()
        left = size
        with open(self._object(digest), "rb") as file:
            while left:
                data = file.read(min(left, _CHUNK))
                if not data:
                    break
                left -= len(data)
                seen.update(data)
                write(data)
        if seen.hexdigest() != digest:
            os.unlink(self._object(digest))
            raise Refused("corrupt", "its copy of {} has wrong bytes".format(digest[:12]))

    def confirm(self, hosts: List[str]) -> None:
        """Write down, on the head, which hosts have the snapshot."""
        path = names.below(self._store, "confirmed", self._digest)
        names.private(os.path.dirname(path))
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
        return names.below(self._store, "manifests", digest)

    def _unpack(self, pack: BinaryIO) -> None:
        head = _head(pack.readline(4096))
        if head.get("kit-pack") != delta.PACK or head.get("digest") != self._digest:
            raise Refused("code", "this is a pack of something else")
        removed = [_line(pack) for _ in range(head["remove"])]
        added = [_line(pack) for _ in range(head["add"])]
        objects = [_object(_line(pack)) for _ in range(head["objects"])]
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
        names.private(os.path.dirname(self._path(self._digest)))
        _write(self._path(self._digest), text)

    def _object(self, digest: str) -> str:
        return names.below(self._store, "objects", digest[:2], digest)

    def _store_object(self, pack: BinaryIO, digest: str, size: int) -> None:
        path = self._object(digest)
        if os.path.exists(path):
            pack.seek(size, os.SEEK_CUR)
            return
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        partial = names.below(self.folder, "object.part")
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
        """Remove the oldest snapshots that no run needs, and the objects that no other one has."""
        folder = names.below(self._store, "manifests")
        by_age = sorted(os.listdir(folder), key=lambda name: os.stat(names.below(folder, name)).st_mtime)
        if len(by_age) <= MOST:
            return
        # A run that waits in line may need a snapshot that is older than those of all runs since.
        unneeded = [name for name in by_age if name not in self._keep]
        for name in unneeded[: len(by_age) - KEPT]:
            os.unlink(names.below(folder, name))
            with contextlib.suppress(OSError):
                os.unlink(names.below(self._store, "confirmed", name))
        # Snapshots have most of their lines in common, and there may be 50,000 in each.
        lines: Set[bytes] = set()
        for name in os.listdir(folder):
            with open(names.below(folder, name), "rb") as file:
                lines.update(file.read().split(b"\n"))
        used = {line[manifest.DIGEST] for line in lines if line.startswith(b"f")}
        for path, _, files in os.walk(names.below(self._store, "objects")):
            for name in files:
                if name.encode() not in used:
                    os.unlink(names.below(path, name))


def _digest(word: str) -> str:
    """Return the word if it is a SHA-256. It becomes a name in the store."""
    try:
        return names.digest(word)
    except names.BadName as error:
        raise Refused("code", str(error)) from error


def _head(line: bytes) -> Dict[str, Any]:
    """Return the first line of a pack, with its counts."""
    try:
        head = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise Refused("code", "the pack has no first line") from error
    counts = [head.get(word) for word in ("remove", "add", "objects")] if isinstance(head, dict) else [None]
    # Each of them is a line of the pack, so a count that is too large ends with the pack.
    if not all(type(count) is int and count >= 0 for count in counts) or "base" not in head:
        raise Refused("code", "the first line of the pack is wrong")
    return dict(head)


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
    if not _SIZE.fullmatch(size):
        raise Refused("code", "this is not an object: {!r}".format(line[:80]))
    return _digest(digest), int(size)


def _write(path: str, data: bytes) -> None:
    """Write a file completely or not at all."""
    with open(path + ".part", "wb") as file:
        file.write(data)
    os.rename(path + ".part", path)
