"""Runs images/bin/kit-launch with folders and patience of the test's own. Arguments: FILE RECORD RUNS GRACE."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

FILE = Path(__file__).resolve().parents[2] / "images" / "bin" / "kit-launch"


def argv(record: Path, runs: Path, *, grace_s: float = 8.0) -> list[str]:
    return [sys.executable, __file__, str(FILE), str(record), str(runs), str(grace_s)]


def main() -> int:
    sys.dont_write_bytecode = True
    file, record, runs, grace = sys.argv[1:]
    loader = importlib.machinery.SourceFileLoader("kit_launch", file)
    spec = importlib.util.spec_from_loader("kit_launch", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    module.RECORD, module.RUNS, module.GRACE_S = record, runs, float(grace)
    return int(module.main())


if __name__ == "__main__":
    sys.exit(main())
