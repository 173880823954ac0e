"""A file is replaced at once, and only by a whole one."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from kit.remote.machine.whole import replace_file

PIECES = [b"new ", b"text"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_an_earlier_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "file"
    file.write_text("earlier")
    file.chmod(mode)
    replace_file(file, PIECES)
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("new text", mode)
    assert list(tmp_path.iterdir()) == [file]


def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    usual, file = tmp_path / "usual", tmp_path / "file"
    usual.touch()
    replace_file(file, PIECES)
    assert (file.read_text(), file.stat().st_mode) == ("new text", usual.stat().st_mode)


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link, file = tmp_path / "link", tmp_path / "folder" / "file"
    link.symlink_to(file)
    for _ in range(2):
        replace_file(link, PIECES)
        assert link.is_symlink()
        assert file.read_text() == "new text"
    assert list(file.parent.iterdir()) == [file]


def test_a_pipe_stays_and_gets_the_bytes(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    replace_file(pipe, PIECES)
    reader.join(60)
    assert read == [b"new text"]
    assert pipe.is_fifo()
    replace_file(Path("/dev/null"), PIECES)
    assert Path("/dev/null").is_char_device()


def test_the_file_of_a_shell_stays_the_same_one(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        replace_file(Path(f"/proc/self/fd/{file.fileno()}"), PIECES)
        assert os.fstat(file.fileno()).st_nlink == 1
    assert [path.read_text() for path in tmp_path.iterdir()] == ["new text"]


@pytest.mark.parametrize("refuses", ["folder", "file"])
def test_a_file_that_cannot_be_replaced_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: str
) -> None:
    """Root may do all, so the test refuses in the kernel's place."""
    file = tmp_path / "file"
    file.write_text("earlier and longer")
    number = file.stat().st_ino

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    if refuses == "folder":
        monkeypatch.setattr(Path, "touch", denied)
    else:
        monkeypatch.setattr("os.replace", denied)
    replace_file(file, PIECES)
    assert (file.read_text(), file.stat().st_ino) == ("new text", number)
    assert list(tmp_path.iterdir()) == [file]
    if refuses == "folder":
        with pytest.raises(PermissionError):
            replace_file(tmp_path / "other", PIECES)
