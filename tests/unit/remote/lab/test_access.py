"""The lab's files below a project's folder: git ignores them, and nothing of them remains."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.errors import StepError, UnreachableError
from kit.remote.lab import access
from tests.fakes.repository import git


def made(folder: Path) -> None:
    access.make_key(folder, "lab")
    access.write(access.known_hosts_path(folder), "10.0.0.1 ssh-ed25519 AAAA\n")


def removed(folder: Path) -> None:
    access.remove(access.key_path(folder))
    access.remove(access.known_hosts_path(folder))
    access.remove_empty(folder)


def test_git_ignores_the_key(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    made(tmp_path)
    assert git(tmp_path, "status", "--short", "-uall") == ""
    removed(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".git"]


@pytest.mark.parametrize(("name", "text"), [(".gitignore", "*\n!sessions\n"), ("runs", "")])
def test_what_is_not_the_labs_stays(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / ".kit" / name
    path.parent.mkdir()
    path.write_text(text)
    made(tmp_path)
    removed(tmp_path)
    assert path.read_text() == text


def test_ssh_finds_the_key_in_a_folder_with_a_percent_sign(tmp_path: Path) -> None:
    """The real ssh expands % in paths. No sshd here has the key of known_hosts."""
    folder = tmp_path / "50%off"
    folder.mkdir()
    access.make_key(folder, "lab")
    access.write(access.known_hosts_path(folder), "")
    with pytest.raises(UnreachableError) as caught:
        access.booted(folder, "127.0.0.1", "root")
    assert "expand" not in caught.value.message


@contextlib.contextmanager
def no_room() -> Iterator[None]:
    """Let this process write no more than 10 bytes to a file: a write fails in the middle, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    with no_room(), pytest.raises(StepError, match="cannot write"):
        access.make_key(tmp_path, "lab")
    with no_room(), pytest.raises(StepError, match="cannot write"):
        access.write(tmp_path / "hosts", "10.213.0.11 name=gpu1\n")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [".gitignore"]
    # So the next lab up can make it.
    assert access.make_key(tmp_path, "lab").startswith("ssh-ed25519 ")


@pytest.mark.parametrize(("number", "step"), [(errno.ENOSPC, "Free space"), (errno.EACCES, "a folder that you may")])
def test_the_next_step_fits_what_went_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int, step: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(access, "_create", refuse)
    with pytest.raises(StepError) as caught:
        access.write(tmp_path / "hosts", "")
    assert step in str(caught.value.hint)
