"""Reads the kernel's list of mounts: where files come from, and what is not a run's."""

import os
import re
from typing import List, Tuple

from .paths import text

MOUNTS = "/proc/self/mountinfo"
# File systems whose mounts name a server. With the same server and folder, two hosts see the same files.
SERVED = (b"nfs", b"nfs4", b"cifs", b"smb3", b"ceph", b"lustre")
# An object store that kit has mounted: kitdata.fuse names it as kit.yaml does. Others name it as each user likes.
STORED, SCHEME = b"fuse.rclone", b"://"


def mount_of(path: bytes) -> Tuple[bytes, str]:
    """Return the kind of the file system of a path, and the server and folder that its files come from, or ''."""
    best, kind, store = -1, b"", ""
    with open(MOUNTS, "rb") as file:
        for line in file:
            mount, _, device = line.partition(b" - ")
            root, place = (plain(word) for word in mount.split(b" ")[3:5])
            inside = (path + b"/").startswith(place.rstrip(b"/") + b"/")
            # The last one of several at the same place is the one that counts.
            if not inside or len(place) < best:
                continue
            kind, source = device.split(b" ")[:2]
            here = source.startswith((b"localhost:", b"127.", b"[::1]"))
            served = (kind in SERVED and not here) or (kind == STORED and SCHEME in source)
            rest = path[len(place.rstrip(b"/")) :]
            best, store = len(place), text(b" ".join((source, root.rstrip(b"/") + rest))) if served else ""
    return kind, store


def mounts(path: str) -> List[str]:
    """Return where disks and shares are mounted at or below a path: what is on them is not the run's."""
    with open(MOUNTS, "rb") as file:
        places = [line.split(b" ")[4] for line in file]
    return [text(place) for place in map(plain, places) if (place + b"/").startswith(os.fsencode(path) + b"/")]


def plain(word: bytes) -> bytes:
    """Return a path of the kernel's list of mounts. It has a space, a tab, a newline and a backslash as numbers."""
    return re.sub(rb"\\([0-7]{3})", lambda code: bytes([int(code.group(1), 8)]), word)
