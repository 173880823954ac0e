"""Code as a porter's cargo: a pack of files, unpacked into the cluster's store on this host (store.py).

While the pack comes, it is in the store's folder `incoming`.

A pack is a line of JSON, {"kit-pack", "digest", "base", "remove", "add", "objects"}; the paths that the base's manifest
loses, and the lines that it gains, each a line; `<sha256> <size>` for each object, each a line; and their bytes.
"""

import contextlib
import hashlib
import json
import os
import re
import time
from typing import Any, BinaryIO, Callable, Dict, List, Optional, Tuple

from . import delta, manifest, names
from .layers import Layers
from .store import Needed, Store

FOLDER = "incoming"
# Longer than an order is on its way (START_S of lead.py), and than from the end of a ship to the begin of its run.
MARGIN_S = 120.0
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
    """The code of one ship. Its order is {"digest", "base", "store"}; its only layer is the pack.

    `needed` are the snapshots that runs need, so they stay, however old they are. By default, all stay.
    """

    def __init__(self, order: Dict[str, Any], layers: List[Any], needed: Optional[Needed] = None) -> None:
        self.chain = [names.digest(layer) for layer in layers]
        self.loaded = 0
        self._digest = _digest(order["digest"])
        self._base = _digest(order["base"]) if order["base"] else ""
        self._store = Store(str(order["store"]))
        # How many bytes of files the pack has brought, or None if the snapshot was here.
        self._added: Optional[int] = None
        self._needed = (needed or Needed()).also(self._digest)
        self.folder = names.below(self._store.folder, FOLDER)

    def held(self) -> int:
        """Return 1 if the snapshot is here. Raises Refused if neither it nor the base of the pack is."""
        if self._store.is_whole(self._digest):
            self.loaded = len(self.chain)
            self._store.touch(self._digest)
        elif self._base and not self._store.outlived(self._base):
            # A crash of this host may have cut its files. The pack would not bring them, so let everything come.
            raise Refused("base", "the snapshot {} is not here".format(self._base[:12]))
        return self.loaded

    def make_room(self, size: int) -> None:
        """Remove old snapshots if this disk is too full for a pack of `size` bytes and the files in it."""
        self._store.make_room(self._needed.also(self._base), 2 * size)

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
        self._store.prune(self._needed, added=self._added or 0)
        return time.monotonic() - start

    def pack(self) -> Tuple[str, int]:
        """Write the snapshot of this host's store as a pack on its base, a layer of a ship that begins now.

        Return its SHA-256 and its size in bytes. Raises Refused if the snapshot is not here with all its bytes, or its
        base is not.
        """
        if not self._store.is_whole(self._digest):
            raise Refused("base", "the snapshot {} is not here".format(self._digest[:12]))
        change = delta.between(self._base_text(), self._text(self._digest))
        seen = hashlib.sha256()
        # A name that no layer has, so what a killed porter left of it goes with the next ship.
        partial = names.below(self.folder, "pack.part")
        try:
            with open(partial, "wb") as pack:

                def write(data: bytes) -> None:
                    seen.update(data)
                    pack.write(data)

                write(delta.pack_head(self._digest, self._base or None, change))
                for digest, size in change.objects:
                    self._copy_object(digest, size, write)
                total = pack.tell()
            os.rename(partial, names.below(self.folder, seen.hexdigest()))
        except BaseException:
            # A full disk needs its room, and a ship that fails now may have no next one.
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise
        return seen.hexdigest(), total

    def _text(self, digest: str) -> bytes:
        """Return the manifest of a snapshot. Raises Refused if it is not here, or is damaged."""
        try:
            with open(self._store.manifest(digest), "rb") as file:
                text = file.read()
        except FileNotFoundError:
            text = b""
        if manifest.digest(text) != digest:
            raise Refused("base", "the snapshot {} is not here".format(digest[:12]))
        return text

    def _base_text(self) -> bytes:
        return self._text(self._base) if self._base else manifest.EMPTY

    def _copy_object(self, digest: str, size: int, write: Callable[[bytes], None]) -> None:
        """Pass the bytes of an object to `write`. Forget it if they are not what its name says. Raises Refused."""
        seen = hashlib.sha256()
        left = size
        with open(self._store.object(digest), "rb") as file:
            while left:
                data = file.read(min(left, _CHUNK))
                if not data:
                    break
                left -= len(data)
                seen.update(data)
                write(data)
        if seen.hexdigest() != digest:
            os.unlink(self._store.object(digest))
            raise Refused("corrupt", "its copy of {} has wrong bytes".format(digest[:12]))

    def confirm(self, hosts: List[str]) -> None:
        """Write down, on the head, which hosts have the snapshot. A head that gave it took no pack, and prunes now."""
        self._store.confirm(self._digest, hosts)
        if self._added is None:
            self._store.prune(self._needed)

    def _unpack(self, pack: BinaryIO) -> None:
        head = _head(pack.readline(4096))
        if head.get("kit-pack") != delta.PACK or head.get("digest") != self._digest:
            raise Refused("code", "this is a pack of something else")
        removed = [_line(pack) for _ in range(head["remove"])]
        added = [_line(pack) for _ in range(head["add"])]
        objects = [_object(_line(pack)) for _ in range(head["objects"])]
        base = manifest.EMPTY
        if head["base"]:
            base = self._text(_digest(str(head["base"])))
        try:
            text = delta.merge(base, removed, added)
        except manifest.BadManifest as error:
            raise Refused("code", "the pack is wrong: {}".format(error)) from error
        if hashlib.sha256(text).hexdigest() != self._digest:
            # The operator also sends a name alone, on the snapshot of an empty folder. `held` refuses that one unless
            # an empty folder was code here. So the host says that it lacks the snapshot, and gets all of it.
            kind = "base" if head["base"] else "code"
            raise Refused(kind, "the pack makes another snapshot than {}".format(self._digest[:12]))
        for digest, size in objects:
            self._store_object(pack, digest, size)
        self._store.add(text)
        self._added = sum(size for _, size in objects)

    def _store_object(self, pack: BinaryIO, digest: str, size: int) -> None:
        if self._store.has_object(digest, size):
            pack.seek(size, os.SEEK_CUR)
            return
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
        self._store.add_object(partial, digest)


def needed(order: Dict[str, Any], now: float) -> Needed:
    """Return what an order's {"digests", "age_s"} names: a list of the head, so many seconds old when the order went.

    `now` is the time of this host's clock, when it got the order.
    """
    return Needed(frozenset(_digest(name) for name in order["digests"]), now - float(order["age_s"]) - MARGIN_S)


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
