"""Runs the unchanged programs of the head and the nodes (images/lib/kitrun) with a test's folders and time limits.

As a program: launcher.py SETTINGS launch|guard|sweep [RUN]. SETTINGS is JSON:
{"record": path, "runs": folder, "set": {"module.NAME": value}}. Beside the record, the files clock-launch and
clock-guard hold how many seconds the clock of the supervisor or the guard is ahead. So a test never waits for a limit.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).resolve().parents[2] / "images"
LIB = IMAGES / "lib"
BIN = IMAGES / "bin"
# Python for programs of images/. Compiled files must not be beside the sources: those go into images.
PYTHON = (sys.executable, "-IS", "-X", f"pycache_prefix={tempfile.gettempdir()}/kit-tests-pycache-{os.getuid()}")


def argv(record: Path, runs: Path, *words: str, **values: Any) -> list[str]:
    """`values`: `decide_OPERATOR_S=1.0` sets kitrun.decide.OPERATOR_S, or that of kitqueue."""
    constants = {name.replace("_", ".", 1): value for name, value in values.items()}
    settings = {"record": str(record), "runs": str(runs), "set": constants}
    return [*PYTHON, __file__, json.dumps(settings), *(words or ("launch",))]


def load(name: str, folder: Path = LIB) -> Any:
    """Return a module of images/lib, or of another folder, as the image has it."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = before or sys.pycache_prefix is None
    try:
        return importlib.import_module(name)
    finally:
        sys.dont_write_bytecode = before


# After this number of looks at the time, a process that looks several times in each turn has had a whole turn.
LOOKS = 6


class Clock:
    """The module `time`, ahead by the seconds in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ahead = ""
        self._looks = 0

    def monotonic(self) -> float:
        try:
            ahead = self._path.read_text()
        except FileNotFoundError:
            return time.monotonic()
        self._count(ahead)
        return time.monotonic() + float(ahead)

    def _count(self, ahead: str) -> None:
        """Write how often somebody has looked at this time, up to the number that tests wait for."""
        self._looks = self._looks + 1 if ahead == self._ahead else 1
        self._ahead = ahead
        if self._looks <= LOOKS:
            new = self._path.with_suffix(".looks-new")
            new.write_text(f"{ahead} {self._looks}")
            new.rename(self._path.with_suffix(".looks"))

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def main() -> int:
    settings = json.loads(sys.argv[1])
    for path, value in settings["set"].items():
        module, _, name = path.rpartition(".")
        package = "kitrun" if (LIB / "kitrun" / f"{module}.py").exists() else "kitqueue"
        owner = load(f"{package}.{module}")
        if not hasattr(owner, name):
            sys.exit(f"launcher: there is no {path} to set")
        setattr(owner, name, tuple(value) if isinstance(value, list) else value)
    watchers = ("supervise", "attempt", "output") if sys.argv[2] == "launch" else ("guard",)
    clock = Clock(Path(settings["record"]).with_name(f"clock-{sys.argv[2]}"))
    for watcher in watchers:
        load(f"kitrun.{watcher}").time = clock
    if sys.argv[2] == "launch":
        return int(load("kitrun.front").Front(settings["runs"], settings["record"]).serve())
    return int(load("kitrun.guard").main(sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(main())
