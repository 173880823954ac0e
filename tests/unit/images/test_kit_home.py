"""kit-home: a home folder that can be written, with the image's files, and with links to volumes."""

from __future__ import annotations

import errno
import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kit.remote.machine.assets import images_dir


def load() -> Any:
    loader = importlib.machinery.SourceFileLoader("kit_home", str(images_dir() / "bin/kit-home"))
    spec = importlib.util.spec_from_loader("kit_home", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


home = load()


@pytest.fixture
def image(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "config/deep").mkdir(parents=True)
    (folder / ".bashrc").write_text("of the image")
    (folder / "config/a").write_text("a")
    (folder / "config/deep/b").write_text("b")
    (folder / "link").symlink_to("/nowhere")
    return folder


def test_what_is_missing_comes_from_the_image(tmp_path: Path, image: Path) -> None:
    target = tmp_path / "home"
    target.mkdir()
    (target / ".bashrc").write_text("mine")
    (target / "config").mkdir()
    home.fill(str(target), str(image), [])
    home.fill(str(target), str(image), [])
    assert (target / ".bashrc").read_text() == "mine"
    assert (target / "config/a").read_text() == "a"
    assert (target / "config/deep/b").read_text() == "b"
    assert (target / "link").readlink() == Path("/nowhere")


def test_files_of_the_images_root_are_roots_where_the_engine_moves_numbers(
    tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With userns-remap, a node sees the image's root as 165536, its user 1000 as 166536, and the VM's 7 as 7."""
    target, me = tmp_path / "home", os.lstat(image)
    owners: list[tuple[str, tuple[int, int]]] = []
    monkeypatch.setattr(os, "lchown", lambda path, *numbers: owners.append((Path(path).name, numbers)))
    home.fill(str(target), str(image), [], root=(me.st_uid, me.st_gid))
    # The three files and the link have their owners before they have their names.
    assert sorted(name for name, _ in owners) == [home.PART] * 4 + ["config", "deep"]
    assert {numbers for _, numbers in owners} == {(0, 0)}
    assert [home.unshifted(number, 165536) for number in (165536, 166536, 7)] == [0, 1000, 7]
    assert [home.unshifted(number, 0) for number in (0, 1000)] == [0, 1000]


def test_a_volume_is_a_link_and_no_copy(tmp_path: Path, image: Path) -> None:
    target, volumes = tmp_path / "home", [str(image / "config/deep"), str(image / "login")]
    (image / "login").write_text("secret")
    home.fill(str(target), str(image), volumes)
    assert str((target / "config/deep").readlink()) == volumes[0]
    assert str((target / "login").readlink()) == volumes[1]
    assert (target / "config/a").read_text() == "a"


def test_a_volume_below_another_one_is_reached_through_it(tmp_path: Path, image: Path) -> None:
    home.fill(str(tmp_path / "home"), str(image), [str(image / "config"), str(image / "config/deep")])
    assert (tmp_path / "home/config").readlink() == image / "config"
    assert sorted(path.name for path in (image / "config").iterdir()) == ["a", "deep"]


def test_the_link_of_a_volume_that_is_gone_goes(tmp_path: Path, image: Path) -> None:
    target = tmp_path / "home"
    home.fill(str(target), str(image), [str(image / "config")])
    (target / "own").symlink_to(image / "config/a")
    home.fill(str(target), str(image), [])
    assert not (target / "config").is_symlink()
    assert (target / "config/a").read_text() == "a"
    assert (target / "own").is_symlink()


def test_a_link_of_a_rank_is_not_followed(tmp_path: Path, image: Path) -> None:
    target, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    elsewhere.mkdir()
    target.mkdir()
    (target / "config").symlink_to(elsewhere)
    home.fill(str(target), str(image), [])
    assert list(elsewhere.iterdir()) == []


def test_volumes_in_the_home_folder_itself_keep_their_links_and_get_no_files(tmp_path: Path, image: Path) -> None:
    target = tmp_path / "home"
    (target / "config").mkdir(parents=True)
    (target / "config/a").symlink_to(image / "config/a")
    home.fill(str(target), str(image), [], [str(target / "config")])
    assert [path.name for path in (target / "config").iterdir()] == ["a"]
    assert (target / "config/a").is_symlink()


def test_the_list_has_what_is_as_in_the_image(tmp_path: Path, image: Path) -> None:
    target = tmp_path / "home/root"
    volumes = [str(image / "config/deep")]
    home.fill(str(target), str(image), volumes)
    (target / "config/a").write_text("of a job")
    (target / ".cache").write_text("x")
    (tmp_path / "theirs").write_text("x")
    (tmp_path / f"home/{home.LISTED}").symlink_to(tmp_path / "theirs")
    home.write_list(str(tmp_path / "home"), home.listed(str(target), str(image), volumes, str(tmp_path / "home")))
    file = tmp_path / f"home/{home.LISTED}"
    shown = subprocess.run(
        ["stat", "-c", "%s %Y %n", "./root/.bashrc", "./root/link", "./root/config/deep"],
        cwd=tmp_path / "home",
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(file.read_text().splitlines()) == sorted(shown.stdout.splitlines())
    assert (file.is_symlink(), file.stat().st_mode & 0o777) == (False, 0o600)
    assert (tmp_path / "theirs").read_text() == "x"


def test_places_of_mounts_are_read_from_the_kernels_table() -> None:
    table = [
        "36 35 98:0 /x /root/my\\040data rw - ext4 /dev/sda rw",
        "37 35 98:0 / /rooted rw - ext4 /dev/sda rw",
        "38 35 98:0 / / rw - ext4 /dev/sda rw",
    ]
    assert home.mounts_below("/root", table) == ["/root/my data"]


def test_a_full_disk_leaves_no_half_files_and_says_so_in_a_line(
    tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target, copy = tmp_path / "home", shutil.copyfile

    def fails(source: str, part: str, **options: Any) -> object:
        if Path(source).name in ("a", "b"):
            Path(part).write_text("h")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return copy(source, part, **options)

    for name, value in (("IMAGE_HOME", str(image)), ("HOMES", str(tmp_path))):
        monkeypatch.setattr(home, name, value)
    monkeypatch.setattr(shutil, "copyfile", fails)
    home.main(str(target))
    shown = capsys.readouterr().err
    assert re.fullmatch(
        f"kit-home: cannot make {target}/config/(a|deep/b) and 1 more: No space left on device; {target} is not .*\n",
        shown,
    )
    there = sorted(str(path.relative_to(target)) for path in target.rglob("*"))
    assert there == [".bashrc", "config", "config/deep", "link"]
    # The next start of the node has room.
    monkeypatch.setattr(shutil, "copyfile", copy)
    home.main(str(target))
    assert (target / "config/deep/b").read_text() == "b"
    assert capsys.readouterr().err == ""


def test_a_home_folder_that_cannot_be_made_stops_no_node(
    tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("IMAGE_HOME", str(image)), ("HOMES", str(tmp_path))):
        monkeypatch.setattr(home, name, value)
    (tmp_path / "file").touch()
    home.main(str(tmp_path / "file/home"))
    assert f"kit-home: cannot make {tmp_path}/file/home: Not a directory" in capsys.readouterr().err


@pytest.mark.parametrize("left", ["part", "link", "folder"])
def test_a_part_that_a_kill_left_goes(tmp_path: Path, image: Path, left: str) -> None:
    target, theirs = tmp_path / "home", tmp_path / "theirs"
    (target / "config").mkdir(parents=True)
    theirs.write_text("x")
    part = target / "config" / home.PART
    if left == "folder":
        part.mkdir()
    elif left == "link":
        part.symlink_to(theirs)
    else:
        part.write_text("half of")
    failures = home.fill(str(target), str(image), [])
    assert [path for path, _ in failures] == ([str(target / "config")] if left == "folder" else [])
    assert theirs.read_text() == "x"
    if left != "folder":
        assert sorted(path.name for path in (target / "config").iterdir()) == ["a", "deep"]
        assert (target / "config/a").read_text() == "a"
