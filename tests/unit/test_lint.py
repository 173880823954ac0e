"""ruff and mypy see every Python file of the repository, also programs without a suffix."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("kit", "images", "scripts", "tests")
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
# `#!/usr/bin/env python3`, and the one that looks for the environment's own interpreter.
SHEBANG = re.compile(r"#!.*\bpython")


def is_python(path: Path) -> bool:
    if path.suffix == ".py":
        return True
    with path.open("rb") as file:
        return not path.suffix and bool(SHEBANG.match(file.readline(200).decode("utf-8", "replace")))


def programs() -> set[Path]:
    """Return all Python files, apart from what Python and the build write."""
    files = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file())
    return {path for path in files if "__pycache__" not in path.parts and is_python(path)}


def test_the_search_finds_programs_of_each_kind() -> None:
    names = {str(path.relative_to(ROOT)) for path in programs()}
    assert {"kit/errors.py", "images/bin/kit-rank", "images/lib/kitrun/front.py", "scripts/measure"} <= names
    assert not {"scripts/test", "images/bin/start.sh"} & names


def test_ruff_sees_every_program() -> None:
    listing = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--show-files", "."],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert programs() - {Path(line) for line in listing.stdout.splitlines()} == set()


def test_mypy_sees_every_program() -> None:
    seen: set[Path] = set()
    for pattern in SETTINGS["mypy"]["files"]:
        matches = list(ROOT.glob(pattern))
        assert matches, f"{pattern} matches nothing"
        for path in matches:
            seen |= set(path.rglob("*.py")) if path.is_dir() else {path}
    assert programs() - seen == set()
