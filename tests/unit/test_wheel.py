"""The wheel works without the checkout: its commands, its images and its programs."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from kit.flows.image.content import content
from kit.model.spec import ClusterSpec
from tests.wheel import ROOT, build, install


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("environment"))


def output(command: Path, *words: str, folder: Path, code: int = 0) -> str:
    """What a command of the wheel prints, called outside the checkout and with an empty environment."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "DOCKER_HOST": "unix:///nonexistent"}
    done = subprocess.run(
        [command, *words], cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_it_carries_every_file_of_the_images_and_the_programs(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(["git", "ls-files", "images"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {f"kit/{path}" for path in tracked.stdout.split()} <= names
    assert {"kit/scripts/engine", "kit/scripts/base"} <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith(("tests/", "scripts/"))]


@pytest.mark.parametrize("name", ["kit", "gpu-kit"])
def test_both_commands_start(commands: Path, name: str, tmp_path: Path) -> None:
    assert output(commands / name, "version", folder=tmp_path) == output(commands / "kit", "version", folder=tmp_path)
    assert "kit deploy" in output(commands / name, "--help", folder=tmp_path)


def test_python_m_kit_is_the_same_command(commands: Path, tmp_path: Path) -> None:
    version = output(commands / "kit", "version", folder=tmp_path)
    assert output(commands / "python", "-m", "kit", "version", folder=tmp_path) == version
    # Python looks for modules in the current folder first. kit must not run what is there.
    (tmp_path / "queue.py").write_text("raise SystemExit('queue.py')\n")
    missing = output(commands / "kit", "ps", folder=tmp_path, code=2)
    assert output(commands / "python", "-m", "kit", "ps", folder=tmp_path, code=2) == missing


def test_it_is_not_the_checkout(commands: Path, tmp_path: Path) -> None:
    where = output(commands / "python", "-c", "import kit; print(kit.__file__)", folder=tmp_path)
    assert Path(where.strip()).is_relative_to(commands.parent)


def test_init_writes_both_files(commands: Path, tmp_path: Path) -> None:
    output(commands / "kit", "init", folder=tmp_path)
    assert {"hosts", "kit.yaml"} <= {path.name for path in tmp_path.iterdir()}


def test_its_image_is_the_one_of_the_checkout(commands: Path, tmp_path: Path) -> None:
    image = content(ClusterSpec())
    assert output(commands / "kit", "image", "tag", folder=tmp_path).strip() == image.tag
    assert output(commands / "kit", "image", "render", folder=tmp_path) == image.files["Dockerfile"].decode()


def test_its_programs_are_named_by_a_path_that_a_person_can_run(commands: Path, tmp_path: Path) -> None:
    script = "from kit.remote.machine import prepare; print(prepare.command_line('engine'))"
    command = output(commands / "python", "-c", script, folder=tmp_path).strip()
    program = Path(command.removeprefix("sudo "))
    assert program.is_absolute()
    assert os.access(program, os.X_OK)
    assert "Docker Engine" in output(program, "--help", folder=tmp_path)


def test_without_an_engine_the_lab_says_how_to_start_one(commands: Path, tmp_path: Path) -> None:
    assert "no Docker Engine answers" in output(commands / "kit", "lab", "up", folder=tmp_path, code=3)
