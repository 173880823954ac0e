"""Writes files that come in frames."""

import binascii
import hashlib
import json
import os
import stat
import sys
from typing import Any, Dict, Tuple

from .frames import read_frame
from .paths import inner, say, text


def write(path: str, name: str, kind: str) -> None:
    """Write a file or a folder to a path, as cp does: into it if it is a folder, else with that name."""
    path = os.fsdecode(path.encode("latin-1"))
    if os.path.isdir(path):
        path = os.path.join(path, os.fsdecode(name.encode("latin-1")))
    elif path.endswith("/") and kind == "f":
        sys.exit("there is no folder %s" % path)
    base = os.fsencode(path.rstrip("/") or "/")
    if kind == "f" and os.path.isdir(base):
        sys.exit("%s is a folder" % path)
    if kind == "d" and os.path.exists(base) and not os.path.isdir(base):
        sys.exit("%s is a file" % path)
    count = 0
    while True:
        code, payload = read_frame(sys.stdin.buffer)
        if code != b"H":
            break
        write_entry(base, json.loads(payload.decode()))
        count += 1
    if code != b"E":
        sys.exit("the connection ended early")
    say({"path": text(base), "count": count})


def write_entry(base: bytes, header: Dict[str, Any]) -> None:
    below = header["path"].encode("latin-1")
    if not below and header["kind"] == "d":
        # The person named it, so its links count.
        if not os.path.isdir(base):
            os.mkdir(base, folder_mode(header))
        return
    fd, name = parent(base, below)
    try:
        if header["kind"] == "d":
            make_folder(fd, name, folder_mode(header))
        elif header["kind"] == "l":
            remove_file(fd, name)
            os.symlink(header["target"].encode("latin-1"), name, dir_fd=fd)
        else:
            write_file(fd, name, header)
    finally:
        os.close(fd)


def parent(base: bytes, below: bytes) -> Tuple[int, bytes]:
    """Open the folder of an entry. Return it with the entry's name.

    Links above `base` and `base` itself count, because the person named them. Below it, a rank may have put one.
    """
    if not below:
        return os.open(os.path.dirname(base) or b".", os.O_RDONLY | os.O_DIRECTORY), os.path.basename(base)
    fd = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    folders = below.split(b"/")
    for name in folders[:-1]:
        fd = inner(fd, name)
    return fd, folders[-1]


def folder_mode(header: Dict[str, Any]) -> int:
    """Return the permissions of a folder that comes. This program must write into it."""
    return int(header["mode"]) & 0o777 | 0o700


def make_folder(fd: int, name: bytes, mode: int) -> None:
    try:
        os.mkdir(name, mode, dir_fd=fd)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
            raise


def remove_file(fd: int, name: bytes) -> None:
    try:
        os.unlink(name, dir_fd=fd)
    except FileNotFoundError:
        pass


def write_file(fd: int, name: bytes, header: Dict[str, Any]) -> None:
    """Write a file under another name, which nobody can guess, check it, and rename it."""
    partial = b".kit-cp-" + binascii.hexlify(os.urandom(8))
    digest = hashlib.sha256()
    try:
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=fd)
        with os.fdopen(handle, "wb") as file:
            while True:
                kind, payload = read_frame(sys.stdin.buffer)
                if kind != b"D":
                    break
                digest.update(payload)
                file.write(payload)
            if kind != b"E" or json.loads(payload.decode())["sha256"] != digest.hexdigest():
                sys.exit("%s did not arrive whole" % text(name))
            file.flush()
            os.fchmod(handle, int(header["mode"]) & 0o777)
            os.utime(handle, ns=(header["time"], header["time"]))
        os.rename(partial, name, src_dir_fd=fd, dst_dir_fd=fd)
    except BaseException:
        remove_file(fd, partial)
        raise
