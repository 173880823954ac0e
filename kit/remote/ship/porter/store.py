"""The store of a cluster's code on this host: snapshots, and the bytes of their files.

    objects/<2 digits>/<sha256>   the bytes of one file
    manifests/<digest>            one snapshot: its files, with their objects. Its SHA-256 is its name
    confirmed/<digest>            on the head: the hosts that have the snapshot, a name a line

A manifest gets its name after all of its objects are here. So a manifest that is here is complete, and what its name
promises, unless the host has crashed since. Containers see the store read-only.
"""

import contextlib
import hashlib
import os
import time
from typing import Dict, FrozenSet, List, NamedTuple, Set

from . import manifest, names

# How many snapshots a host keeps, and how many bytes of their files. Above an upper number, the oldest go until the
# lower ones are left.
MOST, KEPT = 64, 48
MOST_BYTES, KEPT_BYTES = 4_000_000_000, 3_000_000_000
# However large they are, as many of the newest stay: the run that one was sent for may not have begun.
LEAST = 4
# Bytes are not counted after less than this, so that an edit of a large folder arrives soon: MOST of these are little.
LITTLE = 1 << 20
UPTIME = "/proc/uptime"


class Needed(NamedTuple):
    """The snapshots that runs need, by a list of the head.

    A run that began after the list was made needs another one, which came or was used at the time `since` or later.
    Times are seconds of this host's clock. By default, nobody knows what runs need.
    """

    digests: FrozenSet[str] = frozenset()
    since: float = 0.0

    def also(self, digest: str) -> "Needed":
        return self._replace(digests=self.digests | {digest})

    def of(self, used: Dict[str, float], now: float) -> Set[str]:
        """Return which of these snapshots must stay. `used` has the time when each one came or was last used."""
        # A time that is still to come is from a clock that was wrong then.
        return {name for name, at in used.items() if name in self.digests or self.since <= at <= now}


class Store:
    """The store in a folder of this host. A program that changes it holds the folder of a ship (hold.py)."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def manifest(self, digest: str) -> str:
        """Return the path of a snapshot's manifest."""
        return names.below(self.folder, "manifests", digest)

    def object(self, digest: str) -> str:
        """Return the path of the bytes with this SHA-256."""
        return names.below(self.folder, "objects", digest[:2], digest)

    def is_whole(self, digest: str) -> bool:
        """Return whether a snapshot is here with all its objects. Forget what is damaged, so that it comes again."""
        path = self.manifest(digest)
        try:
            with open(path, "rb") as file:
                text = file.read()
        except OSError:
            return False
        whole = hashlib.sha256(text).hexdigest() == digest
        # Its name says that kit wrote these lines. To look at 50,000 objects takes less than half a second.
        for line in text.split(b"\n") if whole else ():
            if line.startswith(b"f") and not self.has_object(manifest.digest_of(line), manifest.size_of(line)):
                whole = False
                with contextlib.suppress(OSError):
                    os.unlink(self.object(manifest.digest_of(line)))
        if not whole:
            os.unlink(path)
        return whole

    def outlived(self, digest: str) -> bool:
        """Return whether a snapshot that was whole once still is. Only a crash of this host can have cut its files.

        So its objects are looked at once after each start of the host, and not at each edit of code.
        """
        try:
            used = os.stat(self.manifest(digest))
            with open(UPTIME) as file:
                now = time.time()
                booted = now - float(file.read().split()[0])
        except (OSError, ValueError, IndexError):
            return self.is_whole(digest)
        # A time that is still to come is from a clock that was wrong then.
        if used.st_size and booted < used.st_mtime <= now:
            return True
        whole = self.is_whole(digest)
        self.touch(digest)
        return whole

    def touch(self, digest: str) -> None:
        """Let a snapshot stay when older ones go, because it is used."""
        with contextlib.suppress(OSError):
            os.utime(self.manifest(digest))

    def has_object(self, digest: str, size: int) -> bool:
        """Return whether there is a file of this name and size."""
        try:
            return os.stat(self.object(digest)).st_size == size
        except OSError:
            return False

    def add_object(self, path: str, digest: str) -> None:
        """Move a file of this disk, whose bytes have this SHA-256, into the store."""
        os.makedirs(os.path.dirname(self.object(digest)), mode=0o700, exist_ok=True)
        os.rename(path, self.object(digest))

    def add(self, text: bytes) -> None:
        """Write a manifest, all of whose objects are here.

        If this host crashes now, objects may be cut though the manifest is there. To write all objects to the disk
        before it could wait for gigabytes that ranks write. So sizes are compared when a ship relies on a snapshot
        (`is_whole`, `outlived`), and only the manifest goes to the disk.
        """
        path = self.manifest(manifest.digest(text))
        names.private(os.path.dirname(path))
        _write(path, text, to_disk=True)

    def confirm(self, digest: str, hosts: List[str]) -> None:
        """Write down, on the head, which hosts have the snapshot."""
        path = names.below(self.folder, "confirmed", digest)
        names.private(os.path.dirname(path))
        with contextlib.suppress(OSError), open(path) as file:
            hosts = sorted(set(hosts) | set(file.read().split()))
        _write(path, "".join(host + "\n" for host in hosts).encode())

    def prune(self, needed: Needed, *, added: int = LITTLE) -> None:
        """Remove the oldest snapshots without those that runs need, and the objects that no other one has.

        `added`: how many bytes of files have come since the last time.
        """
        if len(self._used()) > MOST or (added >= LITTLE and self._bytes() > MOST_BYTES):
            self._thin(needed, KEPT_BYTES)

    def make_room(self, needed: Needed, size: int) -> None:
        """Remove what `prune` may remove if this disk has less room than `size` bytes. The newest snapshots stay."""
        disk = os.statvfs(self.folder)
        if disk.f_bavail * disk.f_frsize < size:
            self._thin(needed, 0)

    def _used(self) -> Dict[str, float]:
        """Return the snapshots that are here, and when each one came or was last used."""
        folder = names.below(self.folder, "manifests")
        try:
            return {name: os.stat(names.below(folder, name)).st_mtime for name in os.listdir(folder)}
        except FileNotFoundError:
            return {}

    def _bytes(self) -> int:
        """Return how many bytes all objects have."""
        paths = os.walk(names.below(self.folder, "objects"))
        return sum(os.stat(names.below(path, name)).st_size for path, _, files in paths for name in files)

    def _thin(self, needed: Needed, most_bytes: int) -> None:
        """Let the oldest snapshots go until the others have no more than KEPT and `most_bytes`, if enough may go."""
        used_at = self._used()
        by_age = sorted(used_at, key=lambda name: used_at[name])
        keep = needed.of(used_at, time.time())
        # A run that waits in line may need a snapshot that is older than those of all runs since.
        unneeded = [name for name in by_age if name not in keep]
        gone = set(unneeded[: max(0, len(by_age) - KEPT)])
        used: Dict[bytes, int] = {}
        # Snapshots have most of their lines in common, and there may be 50,000 in each.
        seen: Set[bytes] = set()
        left = [name for name in reversed(by_age) if name not in gone]
        certain = keep.union(left[:LEAST])
        is_full = False
        # Those that stay in any case come first, and then the newest.
        for name in sorted(left, key=lambda name: name not in certain):
            with open(names.below(self.folder, "manifests", name), "rb") as file:
                lines = set(file.read().split(b"\n")) - seen
            objects = {line[manifest.DIGEST]: _size(line) for line in lines if line.startswith(b"f")}
            size = sum(used.values()) + sum(objects[digest] for digest in objects.keys() - used.keys())
            is_full = name not in certain and (is_full or size > most_bytes)
            if is_full:
                gone.add(name)
                continue
            used.update(objects)
            seen |= lines
        for name in gone:
            os.unlink(names.below(self.folder, "manifests", name))
            with contextlib.suppress(OSError):
                os.unlink(names.below(self.folder, "confirmed", name))
        for path, _, files in os.walk(names.below(self.folder, "objects")):
            for name in files:
                if name.encode() not in used:
                    os.unlink(names.below(path, name))


def _size(line: bytes) -> int:
    """Return the size in the line of a file, or 0 if a crash of this host has cut the line."""
    try:
        return manifest.size_of(line)
    except (ValueError, IndexError):
        return 0


def _write(path: str, data: bytes, *, to_disk: bool = False) -> None:
    """Write a file completely or not at all. `to_disk`: also if this host crashes soon after."""
    with open(path + ".part", "wb") as file:
        file.write(data)
        if to_disk:
            file.flush()
            os.fsync(file.fileno())
    os.rename(path + ".part", path)
