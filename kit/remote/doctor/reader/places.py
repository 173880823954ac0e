"""What is at a place of the VM: a file, a mount, room on a disk, the addresses of a name.

Files are read only if they are regular: opening a device may change it, and a pipe may wait forever. Of mounts, only
the folders are opened.
"""

import errno
import glob
import itertools
import json
import os
import re
import shutil
import socket
import stat
from typing import Dict, List, Optional

DAEMON_JSON = "/etc/docker/daemon.json"
# In bytes.
FILE = 64 << 10
# Of a pattern.
FILES = 1024
MOUNT_TABLE = "/proc/self/mountinfo"
# Spaces and the like in a path.
ESCAPED = re.compile(rb"\\([0-7]{3})")


def has(name: str) -> bool:
    """Return whether the VM has this path or program. "" needs nothing."""
    return not name or (os.path.lexists(name) if name.startswith("/") else shutil.which(name) is not None)


def shown(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "replace")


def matching(pattern: str) -> List[str]:
    return list(itertools.islice(glob.iglob(pattern), FILES))


def content(path: str, most: int) -> Optional[bytes]:
    """Return the beginning of a regular file, or None."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = b""
        while len(data) < most:
            piece = os.read(descriptor, most - len(data))
            if not piece:
                break
            data += piece
        return data
    except OSError:
        # The kernel has no value, for example no speed of a network card that is down.
        return None
    finally:
        os.close(descriptor)


def mounted(kind: str) -> Optional[Dict[str, str]]:
    """Return where file systems of a type are mounted, each with its device. The last one hides others in its place."""
    devices = {}
    try:
        with open(MOUNT_TABLE, "rb") as lines:
            for line in lines:
                # After the optional fields comes a dash, and then the type.
                before, _, after = line.partition(b" - ")
                words = before.split()
                if len(words) > 4 and is_of(after.split()[:1], kind.encode()):
                    place = ESCAPED.sub(lambda match: bytes([int(match.group(1), 8) & 255]), words[4])
                    devices[os.fsdecode(place)] = words[2].decode("ascii", "replace")
    except OSError:
        return None
    return devices


def is_of(kinds: List[bytes], wanted: bytes) -> bool:
    """Return whether the type is the wanted one. If that ends with a dot, it is the beginning of several."""
    return any(kind == wanted or (wanted.endswith(b".") and kind.startswith(wanted)) for kind in kinds)


def fault_of(place: str) -> str:
    """Return the name of the error with which a folder opens, or "". It waits for the file system, maybe forever."""
    try:
        os.close(os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "EIO")
    return ""


def data_root() -> str:
    """Return where the engine keeps images if its settings name a place, or ""."""
    try:
        value = json.loads(content(DAEMON_JSON, FILE) or b"{}")
    except (ValueError, RecursionError):
        return ""
    path = value.get("data-root") if isinstance(value, dict) else None
    return path if isinstance(path, str) and path.startswith("/") else ""


def room(path: str) -> Optional[List[int]]:
    """Return the room at a path. Any other text means the engine's data-root."""
    try:
        disk = os.statvfs(path if path.startswith("/") else data_root())
    except (OSError, ValueError):
        return None
    return [disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize, disk.f_files, disk.f_favail]


def addresses(name: str) -> List[str]:
    try:
        rows = socket.getaddrinfo(name or socket.gethostname(), None, 0, socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return sorted({str(row[4][0]) for row in rows})
