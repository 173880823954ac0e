"""ruff and mypy see every Python file of the repository, also programs without a suffix. Variables are nouns."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("kit", "images", "scripts", "tests")
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
# `#!/usr/bin/env python3`, and the one that looks for the environment's own interpreter.
SHEBANG = re.compile(r"#!.*\bpython")

# They do not say what a value holds.
VAGUE = {"found", "told", "each", "said", "asked"}


def is_python(path: Path) -> bool:
    if path.suffix == ".py":
        return True
    with path.open("rb") as file:
        return not path.suffix and bool(SHEBANG.match(file.readline(200).decode("utf-8", "replace")))


def programs() -> set[Path]:
    """Return all Python files, apart from what Python and the build write."""
    files = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file())
    return {path for path in files if "__pycache__" not in path.parts and is_python(path)}


def variables(tree: ast.AST) -> Iterator[tuple[int, str | None]]:
    """Yield the line and name of each variable, parameter and field of a class."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
                yield node.lineno, name
            case ast.MatchMapping(rest=name):
                yield node.lineno, name


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


@pytest.mark.parametrize(
    "text",
    [
        "found = 1",
        "found: int = 1",
        "for i, (*found, j) in items: pass",
        "with lock as found: pass",
        "[found for found in items]",
        "if (found := 1): pass",
        "try: pass\nexcept OSError as found: pass",
        "def f(found): pass",
        "def f(*, found=1): pass",
        "def f(*found): pass",
        "lambda **found: 1",
        "class C:\n def f(self):\n  found = 1",
        "class C:\n found: int",
        "class C:\n found = 1",
        "match 1:\n case [found, *_]: pass",
        "match 1:\n case [*found]: pass",
        "match 1:\n case {**found}: pass",
    ],
)
def test_the_search_finds_names_of_each_kind(text: str) -> None:
    assert "found" in {name for _, name in variables(ast.parse(text))}


@pytest.mark.parametrize("text", ["item.found = 1", "f(found=found)"])
def test_uses_are_no_variables(text: str) -> None:
    assert "found" not in {name for _, name in variables(ast.parse(text))}


def test_variables_are_named_by_what_they_hold() -> None:
    vague = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted(programs())
        if not path.is_relative_to(ROOT / "tests")
        for line, name in [(1, path.stem), *variables(ast.parse(path.read_bytes()))]
        if name in VAGUE
    ]
    assert not vague, "\n".join(["rename these to nouns that say what they hold:", *vague])
