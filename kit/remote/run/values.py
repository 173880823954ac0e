"""The variables that you typed after -x, so that `kit run --again` has them. One without a value has None.

They may be secrets, so they are in no record on the cluster. They are in your cache, in files that only you can read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from kit.model.run import RUN_ID
from kit.remote.machine.cache import cache, keep_latest, write

_KEPT = 200


def remember(run: str, values: Mapping[str, str | None]) -> None:
    """Keep the variables of a run. A cache that cannot be written is no error."""
    file = _file(run)
    if file and values:
        write(file, [json.dumps(dict(values)).encode()])
        keep_latest(file.parent, _KEPT)


def recall(run: str) -> dict[str, str | None]:
    """Return the variables of a run; empty if this machine did not start it."""
    file = _file(run)
    try:
        values = json.loads(file.read_bytes()) if file else {}
    except (OSError, ValueError):
        return {}
    if not isinstance(values, dict):
        return {}
    return {str(name): None if value is None else str(value) for name, value in values.items()}


def _file(run: str) -> Path | None:
    root = cache(os.environ)
    # The id may come from the head.
    return root / "variables" / run if root and RUN_ID.fullmatch(run) else None
