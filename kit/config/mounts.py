"""The rules for what nodes get from their VMs: volumes, devices and NCCL's plugin. Each raises FieldError."""

from __future__ import annotations

import posixpath
import re

from kit.config.kinds import FieldError, checked_items
from kit.config.ports import check_port
from kit.config.words import shown
from kit.model import names
from kit.model.nccl import plugin_image
from kit.model.spec import PROPAGATIONS

_VOLUME_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]+", re.ASCII)
_DEVICE = re.compile(r"(/dev(?:/[A-Za-z0-9._-]+)*)/?(?::(/[A-Za-z0-9._/-]+)(?::[rwm]{1,3})?)?", re.ASCII)
# Devices that are the whole VM.
_WHOLE_VM = frozenset({"/dev", "/dev/mem", "/dev/kmem", "/dev/port"})
# What kit needs in a container: its programs, the keys, and the folder of the runs, which it reads on the VM.
_OWN = (names.ROOT, names.MOUNT, names.STATE_MOUNT, names.RUNS_MOUNT)
_VOLUME_MODES = frozenset({"ro", "rw", "z", "Z", "nocopy"}) | PROPAGATIONS


def volumes(value: tuple[str, ...]) -> tuple[str, ...]:
    targets: set[str] = set()

    def check(volume: str) -> str:
        target = _volume_target(volume)
        own = next((folder for folder in _OWN if _is_below(folder, target)), None)
        own = own or next((folder for folder in (names.ROOT, names.MOUNT) if _is_below(target, folder)), None)
        if own is not None:
            raise FieldError(
                f"{volume!r} would hide {own} of the nodes, which kit needs", write="give it a target such as /data"
            )
        if target in targets:
            raise FieldError(f"two volumes have the target {target!r}", write="give each volume another target")
        targets.add(target)
        return volume

    return checked_items(value, check)


def devices(value: tuple[str, ...]) -> tuple[str, ...]:
    targets: set[str] = set()

    def check(device: str) -> str:
        match = _DEVICE.fullmatch(device)
        if match is None or {".", ".."} & set(device.split("/")):
            raise FieldError(
                f"{device!r} is not a device of the VMs",
                write="write /dev/NAME, or /dev/NAME:/dev/OTHER:rw as in Compose",
            )
        if match[1] in _WHOLE_VM:
            raise FieldError(
                f"{match[1]} would give every rank all of the VM's memory or devices",
                write="name the one device that the ranks need, such as /dev/gdrdrv",
            )
        target = match[2] or match[1]
        if target in targets:
            raise FieldError(f"two devices have the target {target!r}", write="give each device another target")
        targets.add(target)
        return device

    return checked_items(value, check)


def nccl_plugin(value: str) -> str:
    try:
        image = plugin_image(value)
    except ValueError as error:
        message, write = error.args
        raise FieldError(f"{shown(value)} {message}", write=write) from error
    if image is not None:
        check_port(value.partition("/")[0])
        return value
    if ":" in value:
        raise FieldError(f"{value!r} has a colon, which no mounted folder can have")
    _volume_target(f"{value}:{names.NCCL_PLUGIN}:ro")
    return value


def _volume_target(volume: str) -> str:
    parts = volume.split(":")
    if len(parts) not in (2, 3) or not all(parts) or not parts[1].startswith("/"):
        raise FieldError(f"{volume!r} is not SOURCE:TARGET or SOURCE:TARGET:ro")
    source, target = parts[0], parts[1]
    if source.startswith("~"):
        raise FieldError(
            f"{volume!r} starts with ~, which may be another folder on each VM",
            write="write the whole path: /home/ubuntu/data:/data",
        )
    if not source.startswith(("/", "./", "../")) and not _VOLUME_NAME.fullmatch(source):
        raise FieldError(f"{volume!r} has a source that is neither a path (/data, ./data) nor the name of a volume")
    if source.startswith("/") and _is_below(source, names.ROOT):
        raise FieldError(
            f"{volume!r} mounts kit's own folder {names.ROOT}, which has the keys of the clusters on a VM",
            write="name another folder of the VMs, such as /data:/data",
        )
    for mode in parts[2].split(",") if len(parts) == 3 else ():
        if mode not in _VOLUME_MODES:
            raise FieldError(f"{volume!r} has {mode!r} where only a mode such as ro or rw can be")
    return _plain(target)


def _is_below(path: str, folder: str) -> bool:
    """Return whether a path is this folder or below it, however the path is written."""
    return f"{_plain(path)}/".startswith(f"{folder.rstrip('/')}/")


def _plain(path: str) -> str:
    """Return an absolute path without what changes nothing: ., .. and more slashes."""
    # normpath keeps a second slash at the beginning.
    return f"/{posixpath.normpath(path).lstrip('/')}"
