"""What scripts find on a machine that has little."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path


def bare_path(folder: Path, tools: Iterable[str]) -> Path:
    """A new folder for PATH with these tools of this machine, and no others."""
    folder.mkdir()
    for tool in tools:
        program = shutil.which(tool)
        assert program, tool
        (folder / tool).symlink_to(program)
    return folder
