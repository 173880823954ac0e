"""A private folder for the socket of a connection that nobody keeps. The next kit removes what a killed one left."""

from __future__ import annotations

import contextlib
import os
import re
import time
from functools import cache
from pathlib import Path

# Sockets have short paths, so not TMPDIR.
_PARENT = Path("/tmp")  # noqa: S108  (mkdtemp makes a folder that only we may enter)
_NAME = re.compile(r"kit-(\d+)-[a-z0-9_]{8}")
# A process of another container that has the same /tmp is not seen here. It has used its folder by then.
_OLD_S = 86400.0


def make_folder(parent: Path = _PARENT) -> str:
    """Make a folder, and return its path. The caller removes it."""
    import tempfile  # noqa: PLC0415  (slow to import, and kept connections have a folder)

    _tidy(parent)
    return tempfile.mkdtemp(prefix=f"kit-{os.getpid()}-", dir=parent)


@cache
def _tidy(parent: Path) -> None:
    """Remove the empty folders of kits that were killed, once in each process."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for path in [Path(entry.path) for entry in entries if _NAME.fullmatch(entry.name)]:
            with contextlib.suppress(OSError):
                if _is_abandoned(path):
                    # Fails if the folder has the socket of a connection that still lives.
                    path.rmdir()


def _is_abandoned(path: Path) -> bool:
    """Return whether the folder is ours and old, and the process that made it has ended."""
    status, match = path.lstat(), _NAME.fullmatch(path.name)
    if match is None or status.st_uid != os.getuid() or time.time() - status.st_mtime < _OLD_S:
        return False
    try:
        os.kill(int(match[1]), 0)
    except (ProcessLookupError, PermissionError, OverflowError):
        # If we may not ask, another user's process has this number by now.
        return True
    return False
