"""Dials the head before the files are validated: the connection is made while Python still reads (about 0.15 s)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kit.config.glance import glance
from kit.events import Reporter
from kit.plan import stack
from kit.remote.launch import Launch


def dial(folder: Path, *, flags: Mapping[str, object], environ: Mapping[str, str], reporter: Reporter) -> Launch | None:
    """A launcher on its way up, or None. The run takes it only if the validated files lead to the very same place."""
    found = glance(folder, flags=flags, environ=environ)
    if found is None:
        return None
    launch = Launch(found.head, stack.container_name(found.cluster, stack.HEAD), reporter)
    launch.start()
    return launch
