"""The list of what an unfinished staging has written: coming/done, so that the next one continues after any kill.

The first line is the machine's boot. Each further line lists the extents of one piece: [[key, number, checksum], …].
"""

import contextlib
import json
import os
from typing import Any, Dict, Iterable, List, Tuple

NAME = "done"
BOOT = "/proc/sys/kernel/random/boot_id"

Row = Tuple[str, int, bytes]


def read(folder: str) -> Tuple[Dict[str, Dict[int, bytes]], bool]:
    """Return ({key: {number of extent: checksum}}, whether the machine has run ever since)."""
    result: Dict[str, Dict[int, bytes]] = {}
    same_boot = True
    try:
        with open(os.path.join(folder, NAME)) as file:
            same_boot = file.readline().strip() == boot()
            for line in file:
                for key, part, digest in json.loads(line):
                    result.setdefault(str(key), {})[int(part)] = bytes.fromhex(digest)
    except FileNotFoundError:
        pass
    except (ValueError, TypeError):
        # A kill may have cut the last line. What it listed comes again.
        pass
    return result, same_boot


class Journal:
    """Writes the list. It begins with `rows`, in place of the list before it."""

    def __init__(self, folder: str, rows: Iterable[List[Row]]) -> None:
        path = os.path.join(folder, NAME)
        self._file: Any = open(path + ".new", "w")  # noqa: SIM115
        self._file.write(boot() + "\n")
        for some in rows:
            self.add(some)
        os.rename(path + ".new", path)

    def add(self, rows: List[Row]) -> None:
        """List extents that are written. They must be written before."""
        if rows:
            self._file.write(json.dumps([[key, part, digest.hex()] for key, part, digest in rows]) + "\n")
            self._file.flush()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()


def boot() -> str:
    """Return what is the same until the machine restarts."""
    try:
        with open(BOOT) as file:
            return file.readline().strip()
    except OSError:
        return ""
