"""Paths of this machine that begin with ~."""

from __future__ import annotations

import os
from pathlib import Path


def expanded(path: str) -> Path:
    """Return the path with ~ replaced by your home folder. Return it unchanged if you have none.

    Without HOME, and for a user id that /etc/passwd lacks, Path.expanduser raises RuntimeError. So does ~ before an
    unknown login. With the ~ kept, the file is then missing.
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111
