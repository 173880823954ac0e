"""Writes a file that the user named so that the earlier one is lost only when the new one is whole."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path


def replace_file(path: Path, content: Iterable[bytes]) -> None:
    """Write a file, or replace it at once. It keeps its mode. Raises OSError.

    Ctrl-C and a full disk leave the earlier file, or none. A pipe or a device gets the bytes as they come, and so does
    an earlier file in a folder where you cannot make another one.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = 0
    # /dev/stdout may be a file that a shell has open.
    if (mode and not stat.S_ISREG(mode)) or path.is_relative_to("/dev") or path.is_relative_to("/proc"):
        _write(path, content, "wb")
        return
    # A link stays.
    path = path.resolve()
    part = path.with_name(f".kit-{secrets.token_hex(8)}.part")
    try:
        try:
            part.touch(exist_ok=False)
        except PermissionError:
            if not mode:
                raise
            _write(path, content, "wb")
            return
        if mode:
            part.chmod(stat.S_IMODE(mode))
        _write(part, content, "r+b")
        _move(part, path)
    finally:
        part.unlink(missing_ok=True)


def _write(path: Path, content: Iterable[bytes], mode: str) -> None:
    with path.open(mode) as file:
        file.writelines(content)


def _move(part: Path, path: Path) -> None:
    try:
        os.replace(part, path)  # noqa: PTH105
    except OSError:
        # A mount of one file, or a file of somebody else in a folder such as /tmp, cannot be replaced, but written.
        shutil.copyfile(part, path)
