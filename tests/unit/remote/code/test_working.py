"""Tests the folder of a local run: what it starts with, and what remains of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kit.errors import KitError
from kit.remote.code.pack import Changed
from kit.remote.code.snapshot import take
from kit.remote.code.working import CannotMake, RunFolder


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    top = tmp_path / "code"
    (top / "bin").mkdir(parents=True)
    (top / "bin" / "tool").write_text("tool\n")
    (top / "bin" / "tool").chmod(0o755)
    (top / "data").write_bytes(bytes(range(256)) * 9000)
    (top / "empty" / "er").mkdir(parents=True)
    (top / "link").symlink_to("bin/tool")
    (top / os.fsdecode(b"odd \xff\n")).write_text("odd")
    return top


def tree(folder: Path) -> dict[str, str | int]:
    """Return each path with the mode of a file, the target of a link, or 0 for a folder."""

    def kind(path: Path) -> str | int:
        if path.is_symlink():
            return str(path.readlink())
        return path.stat().st_mode & 0o777 if path.is_file() else 0

    return {str(path.relative_to(folder)): kind(path) for path in folder.rglob("*")}


def test_a_copy_of_the_snapshot(top: Path, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "p" / ".kit" / "runs" / "r1")
    run.seed(take(top))
    assert tree(run.work) == tree(top)
    assert (run.work / "data").read_bytes() == (top / "data").read_bytes()
    assert run.folder.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "p" / ".kit" / ".gitignore").read_text() == "*\n"
    assert not run.foreign
    assert run.settle() is False
    assert sorted(path.name for path in (tmp_path / "p" / ".kit").iterdir()) == [".gitignore"]


def test_only_what_changed_remains(top: Path, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / ".kit" / "runs" / "r1")
    run.seed(take(top))
    (run.work / "bin" / "tool").write_text("TOOL\n")
    (run.work / "link").unlink()
    (run.work / "link").symlink_to("data")
    (run.work / "empty" / "er" / "new").write_text("new")
    (run.work / "data").unlink()
    assert run.settle() is True
    files = {path for path, kind in tree(run.folder).items() if kind}
    assert files == {"work/bin/tool", "work/link", "work/empty/er/new"}


def test_new_bytes_of_the_old_size_and_time_remain(top: Path, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / ".kit" / "runs" / "r1")
    run.seed(take(top))
    data, tool = run.work / "data", run.work / "bin" / "tool"
    before = data.stat()
    data.write_bytes(bytes(before.st_size))
    os.utime(data, ns=(before.st_atime_ns, before.st_mtime_ns))
    # Only the mode has changed.
    tool.chmod(0o700)
    assert run.settle() is True
    assert {path for path, kind in tree(run.folder).items() if kind} == {"work/data"}


def test_a_file_that_has_changed_since(top: Path, tmp_path: Path) -> None:
    snapshot = take(top)
    (top / "data").write_text("other")
    run = RunFolder(tmp_path / ".kit" / "runs" / "r1")
    with pytest.raises(Changed, match="data changed after kit took the snapshot"):
        run.seed(snapshot)
    assert not run.folder.exists()
    (top / "data").unlink()
    with pytest.raises(Changed):
        run.seed(snapshot)
    run.seed(take(top))


def test_a_folder_that_cannot_be_made(top: Path, tmp_path: Path) -> None:
    (tmp_path / ".kit").write_text("a file")
    with pytest.raises(CannotMake, match="the working folder cannot be made in") as error:
        RunFolder(tmp_path / ".kit" / "runs" / "r1").seed(take(top))
    hint = "copy the folder to one that you can write to, or run without code: kit local --code none"
    assert error.value.hint == hint


def test_a_full_disk_is_another_error(top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, files = RunFolder(tmp_path / ".kit" / "runs" / "r1"), take(top)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(KitError, match=r"cannot be made in .*: no space left") as error:
        run.seed(files)
    assert type(error.value) is KitError
    assert error.value.hint == "free space there"


def test_files_of_root_are_noticed(top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(tmp_path / ".kit" / "runs" / "r1")
    run.seed(take(top))
    here = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: here + 1)
    assert run.foreign
