"""kit's folder in your cache. Nothing in it is needed: kit writes again what is missing or broken."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def cache(environ: Mapping[str, str]) -> Path | None:
    """Return kit's folder in your cache, or None if the environment does not say where your home is."""
    if environ.get("XDG_CACHE_HOME"):
        return Path(environ["XDG_CACHE_HOME"], "kit")
    return Path(environ["HOME"], ".cache", "kit") if environ.get("HOME") else None


def write(file: Path, parts: Iterable[bytes]) -> None:
    """Replace a file at once, so that another kit sees the old or the new one. Ignore a failure."""
    import tempfile  # noqa: PLC0415  (slow to import, and mostly a file is only read)

    beside = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
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
