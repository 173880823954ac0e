"""What kit sends to kit-launch (kitrun.front): lines of JSON."""

import json
import os
import select
from typing import Any, Dict, List, Optional

Request = Dict[str, Any]

# Options of a run that launchers of an earlier kit ignore (kit.plan.run.known).
OPTIONS = ("cpus", "elastic", "idle_gpu", "memory")


class Input:
    """Lines of JSON from standard input, unbuffered, so that select sees all of it."""

    def __init__(self) -> None:
        # The pieces of a line that has not ended. That of an array has 25 MB on 256 hosts, and comes in 32 KiB.
        self._pieces: List[bytes] = []
        self.over = False

    def lines(self, patience: Optional[float]) -> List[Any]:
        """Return the values of the lines that come within `patience` seconds; None for a line that is not JSON."""
        if self.over or not select.select([0], [], [], patience)[0]:
            return []
        data = os.read(0, 65536)
        if not data:
            self.over = True
            return []
        end, *further = data.split(b"\n")
        self._pieces.append(end)
        if not further:
            return []
        *lines, rest = [b"".join(self._pieces), *further]
        self._pieces = [rest]
        values = []
        for text in lines:
            try:
                value = json.loads(text.decode("utf-8"))
            except ValueError:
                value = None
            values.append(value)
        return values

    def first(self) -> Optional[Request]:
        """Return the request, or None if the stream ends before one."""
        while not self.over:
            for value in self.lines(None):
                return value if isinstance(value, dict) else {}
        return None
