"""What kit pull stored in a folder of this machine. With that, it notices what you have changed there since.

It is in your cache. If it is missing there, kit compares the times of files.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple

from kit.remote.machine.cache import cache, keep_latest, write

_FOLDERS = 100


class Kept(NamedTuple):
    """A file as kit stored it: its size and time (ns) at home, the run, and the time that it has at its host."""

    size: int
    time: int
    run: str
    source: int

    def is_state(self, state: tuple[int, int]) -> bool:
        """Return whether a file of this size and time is the one that kit stored."""
        return self.size == state[0] and is_time(state[1], self.time)


def is_time(stored: int, time: int) -> bool:
    """Return whether a disk at home stored this time (ns). It may have coarser ones: 100 ns, 10 ms, 1 s or 2 s."""
    return stored == time or any(
        stored % grain == 0 and abs(stored - time) < grain for grain in (100, 10**7, 10**9, 2 * 10**9)
    )


def load(folder: Path) -> dict[str, Kept]:
    """Return what `save` has kept, by the path below the folder."""
    file = _file(folder)
    try:
        rows = json.loads(file.read_bytes()) if file else {}
        return {str(target): Kept(int(size), int(at), str(run), int(there)) for target, (size, at, run, there) in rows}
    except (OSError, ValueError, TypeError):
        return {}


def save(folder: Path, kept: dict[str, Kept]) -> None:
    """Keep what `load` returns next time."""
    file = _file(folder)
    if file:
        # A name that is no text has lone surrogates, which JSON escapes.
        write(file, [json.dumps(list(kept.items())).encode()])
        keep_latest(file.parent, _FOLDERS)


def _file(folder: Path) -> Path | None:
    root = cache(os.environ)
    try:
        name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    except (OSError, RuntimeError):
        return None
    return root / "pulled" / name if root else None
