"""What a run of the tests prints about a test that failed and then passed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLAKY = """
import pathlib

def test_sometimes(request):
    seen = pathlib.Path(__file__).with_name("seen")
    first = not seen.exists()
    seen.touch()
    assert not first

def test_always():
    pass
"""


def test_a_second_try_is_a_warning_with_the_tests_name_and_counts(tmp_path: Path) -> None:
    (tmp_path / "test_flaky.py").write_text(FLAKY)
    # Other pytests on this machine remove old folders where the default is, and each warns if another was first.
    base = ("--basetemp", tmp_path / "base")
    flags = (*base, "--reruns", "1", "--max-suite-reruns", "1", "-n", "1", "-p", "no:cacheprovider")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--rootdir",
            tmp_path,
            "-c",
            os.devnull,
            "-p",
            "tests.conftest",
            *flags,
            tmp_path,
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (warning,) = [line for line in done.stdout.splitlines() if line.startswith("WARNING")]
    assert "test_flaky.py::test_sometimes failed and got a second try" in warning
    assert "2 passed, 1 rerun" in done.stdout.splitlines()[-1]
