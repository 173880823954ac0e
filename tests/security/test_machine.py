"""Attacks of another user of your own machine: files and links that they plant where kit writes and reads."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest

from kit.cli import recent
from kit.errors import StepError
from kit.remote.lab import access
from kit.remote.machine import cache
from kit.remote.run import values
from kit.remote.ship import packs

RUN = "20260101-000000-abcd"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_all_folders_that_kit_makes_in_the_cache_are_closed(tmp_path: Path) -> None:
    file = tmp_path / "home" / ".cache" / "kit" / "variables" / "run"
    before = os.umask(0)
    try:
        cache.write(file, [b"secret"])
    finally:
        os.umask(before)
    assert file.read_bytes() == b"secret"
    assert mode(file) == 0o600
    folder = file.parent
    while folder != tmp_path:
        assert mode(folder) == 0o700, folder
        folder = folder.parent


@pytest.mark.parametrize("planted", ["folder", "link", "lock"])
def test_what_somebody_else_left_beside_a_ship_is_not_touched(
    planted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In /var/tmp, anybody can make a folder of such a name. To open a device can have an effect."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "lock").touch()
    shared = tmp_path / "shared"
    theirs = shared / "kit-ship-theirs"
    if planted == "link":
        shared.mkdir()
        theirs.symlink_to(victim)
    else:
        theirs.mkdir(parents=True)
        (theirs / "lock").symlink_to(victim / "lock")
    if planted == "folder":
        monkeypatch.setattr(os, "getuid", lambda: theirs.stat().st_uid + 4242)
        (theirs / "lock").unlink()
        (theirs / "lock").touch()
    opened: list[Path] = []
    flock = fcntl.flock

    def noted(lock: int, how: int) -> None:
        opened.append(Path(f"/proc/self/fd/{lock}").readlink())
        flock(lock, how)

    monkeypatch.setattr(fcntl, "flock", noted)
    monkeypatch.setenv("TMPDIR", str(shared))
    folder, lock = packs.locked_folder("the pack")
    os.close(lock)
    assert opened == [Path(folder) / "lock"]
    assert (theirs / "lock").exists()


@pytest.mark.parametrize("planted", ["owner", "everybody writes"])
def test_a_cache_of_somebody_else_is_not_used(planted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """XDG_CACHE_HOME may be a shared folder: code of a repository, digests of wheels and tags come from there."""
    theirs = tmp_path / "kit"
    (theirs / "runs").mkdir(parents=True)
    if planted == "owner":
        monkeypatch.setattr(os, "getuid", lambda: theirs.stat().st_uid + 4242)
    else:
        theirs.chmod(0o777)
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache(environ) is None
    recent.remember([RUN], tmp_path, environ)
    values.remember(RUN, {"TOKEN": "x"})
    assert values.recall(RUN) == {}
    assert [path.name for path in theirs.rglob("*")] == ["runs"]


def test_a_cache_that_a_group_can_write_is_closed(tmp_path: Path) -> None:
    """On many distributions each user has a group alone, and the umask is 002."""
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit").chmod(0o775)
    assert cache.cache({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "kit"
    assert mode(tmp_path / "kit") == 0o700


def test_no_planted_link_gets_the_runs_of_a_folder(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    recent.remember([RUN], tmp_path, environ)
    (file,) = (tmp_path / "kit" / "runs").iterdir()
    victim = tmp_path / "victim"
    victim.write_text("mine")
    file.with_name(f"{file.name}.{os.getpid()}").symlink_to(victim)
    recent.remember(["20260102-000000-abcd"], tmp_path, environ)
    assert victim.read_text() == "mine"
    assert recent.runs(tmp_path, environ) == ["20260102-000000-abcd", RUN]


def test_the_labs_key_goes_through_no_link(tmp_path: Path) -> None:
    """The folder of a lab may be one that others can write to."""
    key = access.key_path(tmp_path)
    key.parent.mkdir(parents=True)
    stolen = tmp_path / "stolen"
    key.symlink_to(stolen)
    with pytest.raises(StepError, match="cannot write"):
        access.make_key(tmp_path, "lab")
    assert not stolen.exists()
    key.unlink()
    access.make_key(tmp_path, "lab")
    assert mode(key) == 0o600


def test_the_labs_files_go_through_no_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / ".hosts.part").symlink_to(victim)
    access.write(tmp_path / "hosts", "gpu1\n")
    assert victim.read_text() == "mine"
    assert (tmp_path / "hosts").read_text() == "gpu1\n"
    assert not (tmp_path / "hosts").is_symlink()
