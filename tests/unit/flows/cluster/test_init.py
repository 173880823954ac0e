"""kit init and kit schema."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from kit.config.settings import load, load_spec
from kit.errors import InputError, KitError
from kit.flows.cluster.init import init
from kit.flows.cluster.schema import schema
from kit.model.spec import ClusterSpec
from kit.remote.machine import whole


def test_it_writes_two_files_that_kit_reads(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    result = init(folder)
    assert result.written == (folder / "hosts", folder / "kit.yaml")
    assert result.replaced == ()
    assert load_spec(folder, flags={}, environ={}) == ClusterSpec(code=str(folder))
    with pytest.raises(InputError, match="hosts names no VM"):
        load(folder, flags={}, environ={})
    with (folder / "hosts").open("a") as hosts:
        hosts.write("10.0.0.11 slots=2\n")
    assert load(folder, flags={}, environ={}).inventory.head.slots == 2


def test_a_home_folder_is_not_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not init(tmp_path).takes_code
    assert load_spec(tmp_path, flags={}, environ={}) == ClusterSpec()
    assert "\n#code: FOLDER   # not . here" in (tmp_path / "kit.yaml").read_text()
    assert init(tmp_path / "below").takes_code


@pytest.mark.parametrize("name", ["hosts", "kit.yaml"])
def test_it_overwrites_nothing_without_force(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine\n")
    with pytest.raises(InputError, match=f"{name} already exists; nothing was written") as caught:
        init(tmp_path)
    assert "--force" in (caught.value.hint or "")
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine\n"
    assert init(tmp_path, force=True).replaced == (tmp_path / name,)
    assert (tmp_path / name).read_text() != "mine\n"


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KitError, match=f"cannot write {tmp_path}/file: File exists") as caught:
        init(tmp_path / "file")
    assert caught.value.hint


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_in_place_of_a_file_is_reported_first(tmp_path: Path, force: bool) -> None:
    (tmp_path / "hosts").write_text("mine\n")
    (tmp_path / "kit.yaml").mkdir()
    with pytest.raises(InputError, match=r"kit\.yaml: this is a folder, not a file") as caught:
        init(tmp_path, force=force)
    assert caught.value.hint == "move it away"
    assert (tmp_path / "hosts").read_text() == "mine\n"


def test_it_does_not_wait_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hosts")
    with pytest.raises(InputError, match="hosts: this is a pipe, a socket or a device, not a file"):
        init(tmp_path, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["hosts"]


@pytest.mark.parametrize("kept", [True, False])
def test_force_replaces_nothing_if_one_file_cannot_be_written(tmp_path: Path, kept: bool) -> None:
    if kept:
        (tmp_path / "hosts").write_text("mine\n")
    (tmp_path / "kit.yaml").symlink_to(tmp_path / "missing" / "kit.yaml")
    with pytest.raises(KitError, match=r"cannot write .*/kit\.yaml: No such file or directory"):
        init(tmp_path, force=True)
    if kept:
        assert (tmp_path / "hosts").read_text() == "mine\n"
    assert len(list(tmp_path.iterdir())) == 1 + kept


@pytest.mark.parametrize("force", [False, True])
def test_a_full_disk_leaves_no_part_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool) -> None:
    def full(path: Path, *_: object) -> None:
        if path.name.endswith(".part"):
            path.write_text("half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if force:
        (tmp_path / "hosts").write_text("mine\n")
    monkeypatch.setattr(whole, "_write", full)
    with pytest.raises(KitError, match=f"cannot write {tmp_path}/hosts: No space left on device"):
        init(tmp_path, force=force)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == ({"hosts": "mine\n"} if force else {})


def test_force_writes_through_a_link_and_keeps_the_mode(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("mine\n")
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "hosts").symlink_to(tmp_path / "real")
    assert init(tmp_path, force=True).replaced == (tmp_path / "hosts",)
    assert (tmp_path / "hosts").is_symlink()
    assert "mine" not in (tmp_path / "real").read_text()
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o600


def test_the_schema_is_json() -> None:
    assert json.loads(schema())["title"] == "kit.yaml"
