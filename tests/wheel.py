"""kit from a built wheel, in a virtual environment outside the checkout. Nothing is downloaded."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def build(folder: Path) -> Path:
    """Build the wheel of this checkout into `folder`, and return its path."""
    if importlib.util.find_spec("hatchling") is None:
        assert os.environ.get("CI") != "true", "hatchling is missing, and this test may not be skipped here"
        pytest.skip("hatchling is missing; to get it: scripts/venv --dev")
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """Install the wheel into a new environment in `folder`, and return the folder of its commands.

    Its dependencies are those of the environment that runs the tests.
    """
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    _run(*pip, str(wheel), cwd=folder)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    # A .pth in the folder that this one names is not read, so the checkout, which is installed there, stays out.
    (folder / "lib" / version / "site-packages" / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def _run(*argv: str, cwd: Path) -> None:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
