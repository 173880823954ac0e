"""Opens each border of the threat model, one at a time, and sees whether its tests notice.

An opening takes away one thing that holds a border, by replacing a text in a copy of the repository. A test that passes
then does not attack what was taken away. scripts/open-borders does all of them by hand; scripts/test only checks that
each text still exists, exactly once.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "threat-model.md"
# pytest's exit code if tests failed. Others say that it could not run them.
TESTS_FAILED = 1
# Without its hold, a test may wait for something that never comes.
PATIENCE_S = 300
_ROW = re.compile(r"^\| ((?:From|Between) [^|]+?) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Opening:
    """`file` without what `old` does: it becomes `new`. `tests` are arguments of pytest, below tests/.

    `border` is the beginning of a border's name in docs/threat-model.md. `what` says in a few words what is taken away.
    """

    border: str
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """`code` is pytest's exit code, or None if its time was over. `failed` is the first test that failed, or ""."""

    code: int | None
    failed: str
    output: str

    @property
    def noticed(self) -> bool:
        # A test that only waits does not say what is wrong.
        return self.code == TESTS_FAILED


def borders() -> tuple[str, ...]:
    """Return the names of the borders in docs/threat-model.md."""
    return tuple(name for name, _ in _ROW.findall(PAGE.read_text(encoding="utf-8")))


def openings() -> tuple[Opening, ...]:
    """Return all openings, in the order of the borders on the page."""
    made = [
        opening
        for module in iter_modules([str(Path(__file__).parent)])
        for opening in import_module(f"tests.security.openings.{module.name}").OPENINGS
    ]
    order = borders()
    return tuple(sorted(made, key=lambda one: order.index(border_of(one, order))))


def border_of(opening: Opening, names: Sequence[str]) -> str:
    """Return the whole name of the border. Raises ValueError unless it is exactly one."""
    (name,) = [name for name in names if name.startswith(opening.border)]
    return name


@contextmanager
def copied() -> Iterator[Path]:
    """Yield a copy of the repository's files that are in git or will be, with this environment."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="kit-open-") as folder:
        copy = Path(folder)
        for name in filter(None, listed.stdout.split("\0")):
            source, target = ROOT / name, copy / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        (copy / ".venv").symlink_to(ROOT / ".venv")
        yield copy


@contextmanager
def opened(copy: Path, opening: Opening) -> Iterator[None]:
    """Open a border in the copy, and close it again."""
    file = copy / opening.file
    text = file.read_text(encoding="utf-8")
    if text.count(opening.old) != 1:
        raise ValueError(f"{opening.file} has this text {text.count(opening.old)} times: {opening.old!r}")
    file.write_text(text.replace(opening.old, opening.new), encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(text, encoding="utf-8")


def tested(copy: Path, tests: Sequence[str]) -> Outcome:
    """Run tests of the copy until one fails."""
    words = [str(copy / "tests" / word) if "/" in word else word for word in tests]
    argv = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", *words]
    environ = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.Popen(
        argv, cwd=copy, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        output, _ = run.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired as error:
        # Also what the tests had started.
        os.killpg(run.pid, signal.SIGKILL)
        run.communicate()
        return Outcome(code=None, failed="", output=str(error))
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return Outcome(code=run.returncode, failed=failed[1] if failed else "", output=output)
