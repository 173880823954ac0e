"""The variables that you typed after -x, so that `kit run --again` has them. One without a value has None.

They may be secrets, so they are in no record on the cluster. They are in your cache, in files that only you can read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from kit.model.run import RUN_ID
from kit.remote.machine.cache import cache, keep_latest, write

_KEPT = 200


def remember(run: str, values: Mapping[str, str | None], *, members: Sequence[str] = ()) -> None:
    """Keep the variables of a run, or of an array with these runs. A cache that cannot be written is no error."""
    file = _file(run)
    if file and values:
        kept = [dict(values), list(members)] if members else dict(values)
        write(file, [json.dumps(kept).encode()])
        keep_latest(file.parent, _KEPT)


def recall(run: str, array: str = "") -> dict[str, str | None]:
    """Return the variables of a run, of this array if it has one; empty if this machine did not start it."""
    values = _read(run)
    if values is None and array:
        shared = _read(array)
        # The array's id comes from the head, where ranks can write any. They must get no values of other runs.
        if isinstance(shared, list) and len(shared) == 2 and isinstance(shared[1], list) and run in shared[1]:
            values = shared[0]
    if not isinstance(values, dict):
        return {}
    return {str(name): None if value is None else str(value) for name, value in values.items()}


def _read(run: str) -> object:
    """Return what a file has, or None."""
    file = _file(run)
    try:
        return json.loads(file.read_bytes()) if file else None
    except (OSError, ValueError):
        return None


def _file(run: str) -> Path | None:
    root = cache(os.environ)
    # The id may come from the head.
    return root / "variables" / run if root and RUN_ID.fullmatch(run) else None
