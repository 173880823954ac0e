"""Where kit keeps large temporary files on this machine: on a disk, because /tmp may be memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

FREE_IT = "free space there, or set TMPDIR to a folder on another disk"


def scratch_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder TMPDIR if it exists, or else /var/tmp, or else the system's temporary folder."""
    named = environ.get("TMPDIR", "")
    # As other programs do, leave a TMPDIR that is not there. Path.is_dir raises an error for one in another user's
    # closed home, as after su.
    if os.path.isdir(named):  # noqa: PTH112
        return Path(named)
    return Path("/var/tmp" if Path("/var/tmp").is_dir() else tempfile.gettempdir())  # noqa: S108
