"""The lab's files below a project's folder: git ignores them, and nothing of them remains."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.errors import UnreachableError
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
