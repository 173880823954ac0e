"""What scripts find on a machine that has little."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path


def bare_path(folder: Path, tools: Iterable[str]) -> Path:
    """A new folder for PATH with these tools of this machine, and no others."""
    folder.mkdir()
    for tool in tools:
        found = shutil.which(tool)
        assert found, tool
        (folder / tool).symlink_to(found)
    return folder
