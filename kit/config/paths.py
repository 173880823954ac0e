"""Paths of hosts and kit.yaml: relative to the file's folder, with ~ for the home folder."""

from __future__ import annotations

import os
from pathlib import Path


def expanded(path: str) -> Path:
    """Return the path with ~ replaced by a home folder."""
    # Path.expanduser raises for an unknown login; os.path.expanduser keeps the ~, and the file is then not found.
    # Validation reports a NUL with its line.
    return Path(path if "\0" in path else os.path.expanduser(path))  # noqa: PTH111


def absolute(path: str, base: Path) -> str:
    """Return an absolute path; a relative one starts at `base`."""
    return os.path.normpath(base / expanded(path))
