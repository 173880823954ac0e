"""Connects to the head before the hosts file and kit.yaml are validated: ssh starts while Python still reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kit.config.glance import glance
from kit.model import names
from kit.remote.run.door import Door


def dial(folder: Path, *, flags: Mapping[str, object], environ: Mapping[str, str]) -> Door | None:
    """Return a door that is connecting, or None. `run` uses it only if the validated files lead to the same head."""
    target = glance(folder, flags=flags, environ=environ)
    if target is None:
        return None
    door = Door(target.head, names.container(target.cluster, names.HEAD))
    door.start()
    return door
