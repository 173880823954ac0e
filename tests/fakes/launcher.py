"""Runs the unchanged programs of the head and the nodes (images/lib/kitrun) with a test's folders and time limits."""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.fakes import launch

IMAGES = Path(__file__).resolve().parents[2] / "images"
LIB = IMAGES / "lib"
BIN = IMAGES / "bin"
# Python for programs of images/. Compiled files must not be beside the sources: those go into images.
PYTHON = (sys.executable, "-IS", "-X", f"pycache_prefix={tempfile.gettempdir()}/kit-tests-pycache-{os.getuid()}")


def argv(record: Path, runs: Path, *words: str, **values: Any) -> list[str]:
    """`values`: `decide_OPERATOR_S=1.0` sets kitrun.decide.OPERATOR_S, or that of kitqueue."""
    constants = {name.replace("_", ".", 1): value for name, value in values.items()}
    settings = {"record": str(record), "runs": str(runs), "set": constants}
    return [*PYTHON, launch.__file__, json.dumps(settings), *(words or ("launch",))]


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
