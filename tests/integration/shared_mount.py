"""Mounts a folder of this machine in the nodes of lab hosts, as shared storage would be. It runs in a container.

Arguments: SOURCE PLACE PID mounts SOURCE at PLACE for the process PID and its container; `-` PLACE PID unmounts it. The
container has the PIDs of the lab host, and may mount.
"""

import ctypes
import os
import sys

OPEN_TREE, MOVE_MOUNT = 428, 429
HERE, CLONE, EMPTY_PATH, DETACH, MOUNTS = -100, 1, 4, 2, 0x20000

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def main(source: str, place: str, pid: str) -> None:
    tree = -1 if source == "-" else checked(libc.syscall(OPEN_TREE, HERE, source.encode(), CLONE))
    checked(libc.setns(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY), MOUNTS))
    if tree < 0:
        checked(libc.umount2(place.encode(), DETACH))
    else:
        checked(libc.syscall(MOVE_MOUNT, tree, b"", HERE, place.encode(), EMPTY_PATH))


if __name__ == "__main__":
    main(*sys.argv[1:])
