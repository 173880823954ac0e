"""Paths of hosts and kit.yaml: relative to the file's folder, with ~ for the home folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kit.errors import InputError

HOSTS_VARIABLE = "KIT_HOSTS"
CONFIG_VARIABLE = "KIT_CONFIG"


def environ_of_files(folder: str | None, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment, without KIT_HOSTS and KIT_CONFIG if a flag (-C) gives the folder of the two files.

    A flag overrides the environment: with -C of one cluster, kit must not use the hosts of another one.
    """
    if not folder:
        return environ
    return {name: value for name, value in environ.items() if name not in (HOSTS_VARIABLE, CONFIG_VARIABLE)}


def expanded(path: str) -> Path:
    """Return the path with ~ replaced by a home folder."""
    # Path.expanduser raises for an unknown login; os.path.expanduser keeps the ~, and the file is then not found.
    # Validation reports a NUL with its line.
    return Path(path if "\0" in path else os.path.expanduser(path))  # noqa: PTH111


def absolute(path: str, base: Path) -> str:
    """Return an absolute path; a relative one starts at `base`."""
    return os.path.normpath(base / expanded(path))


def whole(path: Path) -> Path:
    """Return an absolute path; a relative one starts at the current folder. Raises InputError if that was deleted."""
    try:
        return path.absolute()
    except FileNotFoundError:
        raise InputError("the current folder no longer exists", hint="cd to another one") from None
