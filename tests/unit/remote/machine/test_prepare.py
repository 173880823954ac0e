"""The programs that prepare this machine, with small ones in their place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kit.remote.machine import assets, prepare


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(prepare, "scripts_dir", lambda: tmp_path)
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "base").write_text('echo "base: installing $*" >&2\necho "DOCKER_HOST=${DOCKER_HOST:-none}"\n')
    (tmp_path / "engine").write_text("for n in 1 2 3 4 5 6 7; do echo line $n; done; exit 3\n")
    return tmp_path


def test_the_programs_of_this_checkout_are_there() -> None:
    assert {"engine", "base"} <= {path.name for path in assets.scripts_dir().iterdir()}


def test_its_lines_are_passed_on(programs: Path) -> None:
    lines: list[str] = []
    if os.geteuid() != 0:
        pytest.skip("needs root: the program runs as root")
    assert prepare.run("base", "trixie", on_line=lines.append) is None
    assert lines == ["base: installing trixie", "DOCKER_HOST=none"]


def test_a_failure_is_its_last_lines(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    failure = prepare.run("engine", on_line=lambda line: None)
    assert failure == "\n  ".join(f"line {n}" for n in range(3, 8))


def test_another_user_goes_through_sudo_with_the_same_engine(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sudo = programs / "sudo"
    # As sudo does, it drops the environment.
    sudo.write_text('#!/bin/sh\necho "sudo $1"\nexec env -u DOCKER_HOST "$@"\n')
    sudo.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("DOCKER_HOST", "unix:///x")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    lines: list[str] = []
    assert prepare.run("base", on_line=lines.append) is None
    assert lines == ["sudo env", "base: installing", "DOCKER_HOST=unix:///x"]


def test_without_sudo_it_says_so(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", str(programs))
    assert prepare.run("base", on_line=lambda line: None) == "sudo: No such file or directory"


@pytest.mark.parametrize(("user", "sudo"), [(0, ""), (1000, "sudo ")])
def test_the_command_to_type(programs: Path, monkeypatch: pytest.MonkeyPatch, user: int, sudo: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.chdir("/")
    assert prepare.command_line("base", "trixie") == f"{sudo}{str(programs / 'base').removeprefix('/')} trixie"
    monkeypatch.chdir(programs.parent)
    assert prepare.command_line("engine") == f"{sudo}{programs.name}/engine"


def test_the_command_to_type_uses_the_same_engine(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("DOCKER_HOST", "unix:///x y")
    assert prepare.command_line("base", "trixie") == f"sudo env 'DOCKER_HOST=unix:///x y' {programs / 'base'} trixie"
    assert prepare.command_line("engine") == f"sudo {programs / 'engine'}"


def test_a_folder_that_is_gone_does_not_matter(
    programs: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path_factory.mktemp("gone")
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert prepare.command_line("engine").endswith(str(programs / "engine"))
