"""Paths as the two files state them: relative to the file's folder, with ~ for the home."""

from __future__ import annotations

import os
from pathlib import Path


def expanded(path: str) -> Path:
    # Path.expanduser raises where the login is not known; this one leaves the ~ and the file is then not found.
    # A NUL is told of where each value is looked at, with its line.
    return Path(path if "\0" in path else os.path.expanduser(path))  # noqa: PTH111


def absolute(path: str, base: Path) -> str:
    return os.path.normpath(base / expanded(path))
