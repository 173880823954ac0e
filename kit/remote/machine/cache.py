"""kit's folder in your cache. Nothing in it is needed: kit writes again what is missing or broken.

kit runs and sends what it finds there, and some of it is secret. So the folder must be yours, and closed to others.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def cache(environ: Mapping[str, str]) -> Path | None:
    """Return kit's folder in your cache. None if there is no home, or if somebody else owns or can write the folder."""
    if environ.get("XDG_CACHE_HOME"):
        folder = Path(environ["XDG_CACHE_HOME"], "kit")
    elif environ.get("HOME"):
        folder = Path(environ["HOME"], ".cache", "kit")
    else:
        return None
    return folder if _is_private(folder) else None


def _is_private(folder: Path) -> bool:
    """Return whether the folder is yours, or missing. Close it to your group, which may be yours alone."""
    try:
        status = os.stat(folder)  # noqa: PTH116
        if status.st_uid != os.getuid() or status.st_mode & stat.S_IWOTH:
            return False
        if status.st_mode & 0o077:
            os.chmod(folder, 0o700)  # noqa: PTH101
    except OSError:
        # What is missing is made when it is written. What cannot be read is no danger.
        return True
    return True


def make(folder: Path) -> None:
    """Make the folder, and those around it that are missing, closed to others. Raises OSError."""
    if not folder.is_dir():
        make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def write(file: Path, parts: Iterable[bytes]) -> None:
    """Replace a file at once, so that another kit sees the old or the new one. Ignore a failure."""
    import tempfile  # noqa: PLC0415  (slow to import, and mostly a file is only read)

    beside = None
    try:
        make(file.parent)
        descriptor, beside = tempfile.mkstemp(prefix=".", dir=file.parent)
        with os.fdopen(descriptor, "wb") as stream:
            stream.writelines(parts)
        os.replace(beside, file)  # noqa: PTH105
    except OSError:
        if beside:
            with contextlib.suppress(OSError):
                os.unlink(beside)  # noqa: PTH108


def keep_latest(folder: Path, count: int) -> None:
    """Remove all files of the folder except the `count` that were written last."""
    with contextlib.suppress(OSError):
        times = sorted(((entry.stat().st_mtime_ns, entry.path) for entry in os.scandir(folder)), reverse=True)
        for _, path in times[count:]:
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108
