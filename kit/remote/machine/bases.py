"""Your list of bases that kit may take without the digest of the lock, because you agreed to that on this machine.

It is a file of your configuration, with a base in each line: `debian:bookworm-slim`. Without the line, the lock holds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from kit.errors import ImageError
from kit.remote.machine import cache

if TYPE_CHECKING:
    from collections.abc import Mapping


def path(environ: Mapping[str, str]) -> Path | None:
    """Return where the list is: $XDG_CONFIG_HOME/kit/bases, or ~/.config/kit/bases. None without a home."""
    if environ.get("XDG_CONFIG_HOME"):
        return Path(environ["XDG_CONFIG_HOME"], "kit", "bases")
    if environ.get("HOME"):
        return Path(environ["HOME"], ".config", "kit", "bases")
    return None


def agreed(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the bases of the list. A list that is missing, not yours, or writable by others is empty."""
    file = path(environ)
    if file is None:
        return frozenset()
    try:
        with file.open("rb") as stream:
            status = os.fstat(stream.fileno())
            if status.st_uid != os.getuid() or status.st_mode & 0o022:
                return frozenset()
            text = stream.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return frozenset()
    return frozenset(line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#"))


def agree(base: str, environ: Mapping[str, str]) -> Path:
    """Add a base to the list, and return where the list is. Raises ImageError if it cannot be written."""
    file = path(environ)
    if file is None:
        raise ImageError("kit cannot remember which base to take: no HOME", hint="set HOME, or XDG_CONFIG_HOME")
    cache.write(file, [_HEADER, *(f"{name}\n".encode() for name in sorted(agreed(environ) | {base}))])
    if base not in agreed(environ):
        raise ImageError(f"{file} cannot be written", hint="make it a file of yours that no one else can write")
    return file


_MOST_BYTES = 65536
_HEADER = (
    b"# Bases that kit takes as this machine has them, without the digest of its lock. Remove a line to go back.\n"
)
