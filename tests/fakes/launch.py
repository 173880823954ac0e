"""The program that launcher.argv starts: launch.py SETTINGS launch|guard|sweep [RUN].

SETTINGS is JSON: {"record": path, "runs": folder, "set": {"module.NAME": value}}. Beside the record, the files
clock-launch and clock-guard hold how many seconds the clock of the supervisor or the guard is ahead. So a test never
waits for a limit. It starts hundreds of times, so it imports only what the programs of images/ import themselves.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

LIB = os.path.realpath(os.path.join(os.path.dirname(__file__), "../../images/lib"))

# After this number of looks at the time, a process that looks several times in each turn has had a whole turn.
LOOKS = 6


class Clock:
    """The module `time`, ahead by the seconds in a file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._ahead = ""
        self._looks = 0

    def monotonic(self) -> float:
        try:
            with open(self._path) as file:
                ahead = file.read()
        except FileNotFoundError:
            return time.monotonic()
        self._count(ahead)
        return time.monotonic() + float(ahead)

    def _count(self, ahead: str) -> None:
        """Write how often somebody has looked at this time, up to the number that tests wait for."""
        self._looks = self._looks + 1 if ahead == self._ahead else 1
        self._ahead = ahead
        if self._looks <= LOOKS:
            new = f"{self._path}.looks-new"
            with open(new, "w") as file:
                file.write(f"{ahead} {self._looks}")
            os.rename(new, f"{self._path}.looks")

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def _load(name: str) -> Any:
    __import__(name)
    return sys.modules[name]


def main() -> int:
    sys.path.append(LIB)
    settings = json.loads(sys.argv[1])
    for path, value in settings["set"].items():
        module, _, name = path.rpartition(".")
        package = "kitrun" if os.path.exists(f"{LIB}/kitrun/{module}.py") else "kitqueue"
        owner = _load(f"{package}.{module}")
        if not hasattr(owner, name):
            sys.exit(f"launcher: there is no {path} to set")
        setattr(owner, name, tuple(value) if isinstance(value, list) else value)
    watchers = ("supervise", "attempt", "output") if sys.argv[2] == "launch" else ("guard",)
    clock = Clock(os.path.join(os.path.dirname(settings["record"]), f"clock-{sys.argv[2]}"))
    for watcher in watchers:
        _load(f"kitrun.{watcher}").time = clock
    if sys.argv[2] == "launch":
        return int(_load("kitrun.front").Front(settings["runs"], settings["record"]).serve())
    return int(_load("kitrun.guard").main(sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(main())
