"""kit init and kit schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kit.config.settings import load, load_spec
from kit.errors import InputError, KitError
from kit.flows.cluster.init import init
from kit.flows.cluster.schema import schema
from kit.model.spec import ClusterSpec


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
    with pytest.raises(KitError, match="cannot write into") as caught:
        init(tmp_path / "file")
    assert caught.value.hint


def test_the_schema_is_json() -> None:
    assert json.loads(schema())["title"] == "kit.yaml"
