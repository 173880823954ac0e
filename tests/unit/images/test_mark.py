"""kitdata.mark: whatever changes after a staging is noticed, and nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import launcher

mark: Any = launcher.load("kitdata.mark")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "files/deep").mkdir(parents=True)
    for name in ("a", "deep/b", "-print"):
        (tmp_path / "files" / name).write_bytes(b"12345")
    return tmp_path


def marked(folder: Path) -> None:
    mark.keep(str(folder), mark.begin(str(folder)))


def holds(folder: Path) -> bool:
    return bool(mark.holds(str(folder), str(folder / "files")))


def overwrite(files: Path) -> None:
    """Change bytes in their place, and set the time back."""
    before = (files / "deep/b").stat()
    with (files / "deep/b").open("r+b") as file:
        file.write(b"x")
    os.utime(files / "deep/b", ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: list[Callable[[Path], object]] = [
    overwrite,
    lambda files: (files / "a").write_bytes(b""),
    lambda files: (files / "a").unlink(),
    lambda files: (files / "a").rename(files / "deep/c"),
    lambda files: (files / "deep/new").touch(),
    lambda files: (files / "other").mkdir(),
    lambda files: shutil.rmtree(files / "deep"),
    lambda files: (files / "a").chmod(0o600),
    shutil.rmtree,
]


# Often, because the kernel's clock has ticks: two changes within one have the same time.
@pytest.mark.parametrize("change", CHANGES * 5)
def test_a_change_right_after_the_mark_is_noticed(folder: Path, change: Callable[[Path], object]) -> None:
    marked(folder)
    change(folder / "files")
    assert not holds(folder)


def test_the_mark_holds_as_long_as_files_are_only_read(folder: Path) -> None:
    for _ in range(20):
        (folder / "files/a").write_bytes(b"new")
        marked(folder)
        assert (folder / "files/a").read_bytes() == b"new"
        # What is beside the files is the stager's own.
        (folder / "manifest.json").write_text("{}")
        assert holds(folder)


def test_what_changes_before_the_mark_is_kept_is_noticed(folder: Path) -> None:
    new = mark.begin(str(folder))
    (folder / "files/a").write_bytes(b"new")
    mark.keep(str(folder), new)
    assert not holds(folder)


def test_without_a_mark_nothing_holds(folder: Path) -> None:
    assert not holds(folder)
    marked(folder)
    mark.drop(str(folder))
    assert not holds(folder)
    mark.drop(str(folder))


def test_without_find_nothing_holds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marked(folder)
    monkeypatch.setenv("PATH", str(folder))
    assert not holds(folder)


def test_a_clock_that_stands_still_gives_no_mark(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mark, "_PATIENCE_S", 0.01)
    monkeypatch.setattr(mark, "_touch", lambda _: 10**18)
    marked(folder)
    assert not holds(folder)
    assert {path.name for path in folder.iterdir()} == {"files"}
