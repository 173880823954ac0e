"""The folder of a connection that nobody keeps, and what a killed kit leaves of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kit.remote.ssh import private


@pytest.fixture
def ended() -> int:
    """Return the number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_the_next_kit_removes_empty_old_folders_of_killed_ones(tmp_path: Path, ended: int) -> None:
    ages = {
        f"kit-{ended}-abandon1": 2e5,
        f"kit-{10**30}-nonumber": 2e5,
        f"kit-{ended}-young_12": 10.0,
        f"kit-{ended}-socket_1": 2e5,
        f"kit-{os.getpid()}-ourselve": 2e5,
        # Kept connections, and what others made.
        f"kit-{os.getuid()}": 2e5,
        "kit-12345678": 2e5,
        f"kit-{ended}-other": 2e5,
    }
    for name in ages:
        (tmp_path / name).mkdir()
    (tmp_path / f"kit-{ended}-socket_1" / "s").touch()
    (tmp_path / f"kit-{ended}-onlylink").symlink_to(tmp_path)
    now = tmp_path.stat().st_mtime
    for name, age in ages.items():
        os.utime(tmp_path / name, (now - age, now - age))
    made = Path(private.make_folder(tmp_path))
    assert (made.stat().st_mode & 0o777, made.parent) == (0o700, tmp_path)
    gone = {name for name in ages if not (tmp_path / name).exists()}
    assert gone == {f"kit-{ended}-abandon1", f"kit-{10**30}-nonumber"}
    assert (tmp_path / f"kit-{ended}-onlylink").is_symlink()


def test_another_users_folder_is_left_alone(tmp_path: Path, ended: int, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / f"kit-{ended}-abandon1"
    folder.mkdir()
    os.utime(folder, (1.0, 1.0))
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    private.make_folder(tmp_path)
    assert folder.is_dir()
