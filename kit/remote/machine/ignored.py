"""Keeps kit's folder of a project, .kit, out of git: a project's own .gitignore may not name it."""

from __future__ import annotations

import contextlib
from pathlib import Path

_IGNORE = ".gitignore"
_EVERYTHING = b"*\n"


def ignore(folder: Path) -> None:
    """Make the folder if it is missing, and let git ignore all in it. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError), (folder / _IGNORE).open("xb") as file:
        file.write(_EVERYTHING)


def remove_empty(folder: Path) -> None:
    """Remove the folder if nothing but what `ignore` wrote is in it. Raises OSError."""
    file = folder / _IGNORE
    if [path.name for path in folder.iterdir()] == [_IGNORE] and file.is_file() and file.read_bytes() == _EVERYTHING:
        file.unlink()
    folder.rmdir()
