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
from typing import List, Set

from . import manifest, names

# How many snapshots a host keeps. Above the upper number, the oldest go until the lower one is left.
MOST, KEPT = 64, 48
UPTIME = "/proc/uptime"


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
                booted = time.time() - float(file.read().split()[0])
        except (OSError, ValueError, IndexError):
            return self.is_whole(digest)
        if used.st_size and used.st_mtime > booted:
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

    def prune(self, keep: Set[str]) -> None:
        """Remove the oldest snapshots without those that runs need, and the objects that no other one has."""
        folder = names.below(self.folder, "manifests")
        by_age = sorted(os.listdir(folder), key=lambda name: os.stat(names.below(folder, name)).st_mtime)
        if len(by_age) <= MOST:
            return
        # A run that waits in line may need a snapshot that is older than those of all runs since.
        unneeded = [name for name in by_age if name not in keep]
        for name in unneeded[: len(by_age) - KEPT]:
            os.unlink(names.below(folder, name))
            with contextlib.suppress(OSError):
                os.unlink(names.below(self.folder, "confirmed", name))
        # Snapshots have most of their lines in common, and there may be 50,000 in each.
        lines: Set[bytes] = set()
        for name in os.listdir(folder):
            with open(names.below(folder, name), "rb") as file:
                lines.update(file.read().split(b"\n"))
        used = {line[manifest.DIGEST] for line in lines if line.startswith(b"f")}
        for path, _, files in os.walk(names.below(self.folder, "objects")):
            for name in files:
                if name.encode() not in used:
                    os.unlink(names.below(path, name))


def _write(path: str, data: bytes, *, to_disk: bool = False) -> None:
    """Write a file completely or not at all. `to_disk`: also if this host crashes soon after."""
    with open(path + ".part", "wb") as file:
        file.write(data)
        if to_disk:
            file.flush()
            os.fsync(file.fileno())
    os.rename(path + ".part", path)
