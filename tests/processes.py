"""The processes of this machine, for tests that look for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def files_of_processes(name: str) -> Iterator[Path]:
    """Yield `/proc/PID/name` of each process. Some end before you open it: OSError.

    Path.glob looks at each path, and raises ProcessLookupError for a process that has ended by then.
    """
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            yield folder / name
