"""The ids of the runs that kit last showed, in a file of your cache: completion offers them without asking the head."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from kit.remote.machine.cache import cache, write

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KEPT = 20


def runs(folder: Path, environ: Mapping[str, str]) -> list[str]:
    """Return the ids, the latest first. Raises OSError if there is no such file."""
    file = _file(folder, environ)
    return file.read_text().split() if file else []


def remember(ids: Iterable[str], folder: Path, environ: Mapping[str, str]) -> None:
    """Put the ids before the known ones, and keep the latest. A cache that cannot be written is no error."""
    file = _file(folder, environ)
    if file is None:
        return
    try:
        known = file.read_text().split() if file.exists() else []
    except (OSError, ValueError):
        known = []
    # Ids begin with their time, so that the order of their text is the order of their start.
    latest = sorted({*ids, *known}, reverse=True)[:KEPT]
    write(file, [f"{run}\n".encode() for run in latest])


def _file(folder: Path, environ: Mapping[str, str]) -> Path | None:
    root = cache(environ)
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    return root / "runs" / name if root else None
