"""FUSE mounts of rclone: what is mounted at a path, how to detach it, and the program fusermount3 that rclone calls.

rclone never mounts by itself. It calls fusermount3, which the images do not have, so bin/kit-data is that program too.
"""

import array
import contextlib
import ctypes
import os
import re
import socket
import sys
from typing import List

# The only path at which fusermount3 mounts, and, if it is set, that programs may write there.
POINT, WRITE = "KIT_DATA_MOUNT", "KIT_DATA_MOUNT_WRITE"
# What the list of mounts calls the source. With the same name, two hosts have mounted the same store.
NAME, _MOST_NAME = "KIT_DATA_MOUNT_NAME", 1000
DEVICE = "/dev/fuse"
KIND = "fuse.rclone"
# Linux: include/uapi/linux/mount.h, and UMOUNT_NOFOLLOW and MNT_DETACH in include/linux/fs.h.
_RDONLY, _NOSUID, _NODEV = 1, 2, 4
_DETACH, _NOFOLLOW = 2, 8
_ESCAPED = re.compile(rb"\\([0-7]{3})")


def kinds(point: str) -> List[str]:
    """Return the types of the file systems that are mounted at this path. This never waits for one of them."""
    wanted, result = os.fsencode(point), []
    with open("/proc/self/mountinfo", "rb") as lines:
        for line in lines:
            # After the fields with optional ones comes a dash, and then the type.
            words = line.split()
            if _ESCAPED.sub(lambda match: bytes([int(match.group(1), 8)]), words[4]) == wanted:
                result.append(words[words.index(b"-", 6) + 1].decode())
    return result


def detach(point: str) -> None:
    """Detach what rclone has mounted at this path, also if rclone has died. Raises OSError."""
    while KIND in kinds(point):
        if _libc().umount2(os.fsencode(point), _DETACH | _NOFOLLOW):
            raise _error()


def main(arguments: List[str]) -> int:
    """Mount for rclone, as `fusermount3 -o OPTIONS -- PATH` does. Return the exit code.

    The file of the connection to the kernel goes to rclone through a socket. The environment names the only path, and
    says whether the mount is read-only; rclone's options say nothing.
    """
    point, channel = os.environ.get(POINT, ""), os.environ.get("_FUSE_COMMFD", "")
    if not point or not channel.isdigit() or "-u" in arguments or arguments[-2:] != ["--", point]:
        print("this program mounts only for kit-data", file=sys.stderr)
        return 1
    _close_all_but(int(channel))
    try:
        connection = os.open(DEVICE, os.O_RDWR)
        _mount(point, connection)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=int(channel)) as peer:
                peer.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [connection]))])
        except OSError:
            # rclone has ended meanwhile. Nobody would ever serve this mount.
            with contextlib.suppress(OSError):
                detach(point)
            raise
    except OSError as error:
        print("%s cannot be mounted: %s" % (point, error.strerror), file=sys.stderr)
        return 1
    return 0


def _close_all_but(channel: int) -> None:
    """Close the files that rclone has left open. Its end of the socket is one: with it, a send would always succeed."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != channel:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _mount(point: str, connection: int) -> None:
    options = "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions" % connection
    flags = _NOSUID | _NODEV | (0 if os.environ.get(WRITE) else _RDONLY)
    name = os.fsencode(os.environ.get(NAME, "rclone"))[:_MOST_NAME]
    if _libc().mount(name, os.fsencode(point), KIND.encode(), ctypes.c_ulong(flags), options.encode()):
        raise _error()


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
