"""The commands kit and gpu-kit: what they do before kit is imported."""

from __future__ import annotations

import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.{handler})
class CtrlC:
    def find_spec(self, name, *_):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, CtrlC())
from {entry} import main
sys.argv = ["kit", "version"]
sys.exit(main())
"""
"""What the installed command does, with a Ctrl-C at the import of a module."""


def commands() -> dict[str, str]:
    """Return the module that each installed command starts in."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    return {name: where.partition(":")[0] for name, where in scripts.items()}


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("name", ["kit", "gpu-kit"])
@pytest.mark.parametrize("module", ["kit.cli.main", "kit.errors", "kit.cli.screen.terminal"])
def test_ctrl_c_while_python_imports_kit_prints_nothing(name: str, module: str) -> None:
    done = run(INTERRUPTED.format(handler="default_int_handler", module=module, entry=commands()[name]))
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_kit_reports_a_ctrl_c_once_it_can() -> None:
    done = run(INTERRUPTED.format(handler="default_int_handler", module="kit.cli.parser", entry="kit.cli.entry"))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "kit: interrupted\n")


def test_a_background_job_still_ignores_ctrl_c() -> None:
    done = run(INTERRUPTED.format(handler="SIG_IGN", module="kit.errors", entry="kit.cli.entry"))
    assert (done.returncode, done.stderr) == (0, "")
