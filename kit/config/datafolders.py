"""The rules for a data set's folder in the nodes, for its folder on the VMs, and for the options of its mount."""

from __future__ import annotations

import posixpath
import re

from kit.config.kinds import FieldError
from kit.config.words import shown
from kit.model import names

_OPTION = re.compile(r"[a-z][a-z0-9_]{0,31}(?:=[A-Za-z0-9._:/@-]{1,64})?", re.ASCII)
_OURS = frozenset({"addr", "port", "device", "ro", "rw"})
# Folders of the container that are hidden by a mount on them. Below these, nothing may be mounted, either.
_CLOSED = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys",
    "/usr/bin", "/usr/include", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/sbin", "/var/run",
    names.ROOT, names.MOUNT, names.STATE_MOUNT, names.NCCL_PLUGIN,
)  # fmt: skip
_FULL = ("/", "/home", "/opt", "/root", "/tmp", "/usr", "/usr/local", "/usr/share", "/var", "/var/lib", "/var/tmp")  # noqa: S108
# On the VMs: `dir` is for data, and these are not on a disk of theirs or belong to the system.
_NOT_FOR_DATA = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var/tmp",  # noqa: S108
    names.ROOT,
)  # fmt: skip


def to(value: str) -> str:
    """Return the folder in the nodes, in normal form."""
    folder = _folder(value, "write a whole path of the nodes, such as /data/imagenet")
    hidden = next((closed for closed in _CLOSED if is_in(folder, closed)), folder if folder in _FULL else "")
    if hidden:
        what = f"is a part of {hidden}, which the nodes need" if hidden != folder else "hides what the nodes need there"
        raise FieldError(f"{folder} {what}", write="write a folder such as /data/imagenet")
    return folder


def on_vms(value: str) -> str:
    """Return the folder of the VMs, in normal form."""
    folder = _folder(value, "write a whole path of the VMs, such as /nvme")
    if any(is_in(folder, other) for other in _NOT_FOR_DATA):
        raise FieldError(
            f"{folder} belongs to the system of a VM, or is lost after a reboot",
            write="write a folder for data, such as /nvme, or remove dir:",
        )
    return folder


def mount_options(value: str) -> str:
    words = value.split(",")
    wrong = next((word for word in words if not _OPTION.fullmatch(word)), None)
    if wrong is not None:
        raise FieldError(
            f"{shown(wrong)} is not an option of a mount", write="separate them by commas alone: nfsvers=3,nolock,hard"
        )
    ours = next((word for word in words if word.partition("=")[0] in _OURS), None)
    if ours is not None:
        raise FieldError(
            f"kit itself sets {ours.partition('=')[0]}",
            write="remove it: from: has the server and its port, and write: says whether nodes may write",
        )
    return value


def _folder(value: str, write: str) -> str:
    if not value.startswith("/"):
        raise FieldError("is not a whole path", write=write)
    if ".." in value.split("/") or ":" in value or not value.isprintable():
        raise FieldError("has .., a colon or an unprintable character in it", write=write)
    # normpath keeps a second slash at the beginning.
    return f"/{posixpath.normpath(value).lstrip('/')}"


def overlap(one: str, other: str) -> bool:
    """Return whether one folder is the other, or in it. Both are in normal form."""
    return is_in(one, other) or is_in(other, one)


def is_in(path: str, folder: str) -> bool:
    return f"{path.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")
