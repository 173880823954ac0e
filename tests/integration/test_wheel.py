"""kit from the wheel works on the tests' cluster as kit from the checkout does."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.plan.bases import UNLOCKED
from tests.integration.rig import Cluster, Done
from tests.wheel import build, install


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(build(tmp_path_factory.mktemp("dist")), tmp_path_factory.mktemp("environment"))


@pytest.fixture
def kit(commands: Path, cluster: Cluster, tmp_path: Path) -> Callable[..., Done]:
    """Run a command of the wheel for the cluster, from a folder outside the checkout."""
    kept = {
        name: value for name, value in os.environ.items() if name == UNLOCKED or not name.startswith(("KIT_", "PYTHON"))
    }

    def run(*words: str, name: str = "kit") -> Done:
        return subprocess.run(
            [commands / name, "-C", cluster.folder, *words],
            cwd=tmp_path,
            env=kept,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    return run


def test_the_wheels_kit_finds_all_that_the_checkouts_made(kit: Callable[..., Done], cluster: Cluster) -> None:
    before = cluster.state()
    for words in (
        ("image", "build"),
        ("lab", "up", "--name", cluster.name, "--hosts", "4", "--slots", "2"),
        ("deploy",),
    ):
        done = kit(*words)
        assert done.returncode == 0, (words, done.stderr)
    # The same image, the same files: nothing is built, made or restarted.
    assert cluster.state() == before


def test_the_wheels_kit_runs_jobs(kit: Callable[..., Done], cluster: Cluster) -> None:
    run = kit("run", "--tag-output", "--", "hostname", name="gpu-kit")
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.split("\n")[:-1]) == [f"{rank} | gpu{rank // 2 + 1}" for rank in range(8)]
    local = kit("local", "--np", "2", "--", "echo", "here")
    assert (local.returncode, local.stdout) == (0, "here\nhere\n"), local.stderr


def test_the_wheels_kit_makes_a_lab(commands: Path, image: object, tmp_path: Path) -> None:
    """From nothing: the image of its hosts comes from the wheel too."""
    name = f"wheel-{os.getpid()}"

    def lab(*words: str) -> Done:
        return subprocess.run(
            [commands / "kit", "-C", tmp_path, "lab", *words, "--name", name],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    try:
        up = lab("up", "--hosts", "1")
        assert up.returncode == 0, up.stderr
        assert "running" in lab("status").stdout
    finally:
        assert lab("down").returncode == 0
