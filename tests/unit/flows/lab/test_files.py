"""hosts, kit.yaml and the login key in a folder belong to one lab."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.errors import InputError
from kit.flows.lab import lab as flow
from kit.model.lab import LabSpec
from kit.plan import lab as plan

SUBNET = IPv4Network("10.213.9.0/24")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files of the lab named lab."""
    spec = LabSpec(hosts=2)
    (tmp_path / "hosts").write_text(plan.hosts_text(spec, SUBNET))
    (tmp_path / "kit.yaml").write_text(plan.kit_yaml_text(spec, SUBNET))
    (tmp_path / ".kit/lab").mkdir(parents=True)
    for name in ("id_ed25519", "known_hosts"):
        (tmp_path / ".kit/lab" / name).write_text("")
    return tmp_path


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def removed(name: str, folder: Path) -> Any:
    nothing = SimpleNamespace(containers=(), helpers=(), volumes=(), networks=())
    engine = SimpleNamespace(find=lambda _name: nothing, remove=lambda _objects, **_more: None)
    return flow._remove(engine, name, folder)  # type: ignore[arg-type]


def test_a_lab_of_another_name_removes_nothing(folder: Path) -> None:
    before = files(folder)
    assert removed("typo", folder).files == ()
    assert files(folder) == before
    assert len(removed("lab", folder).files) == 4
    assert files(folder) == set()


def test_a_second_lab_does_not_take_the_folder(folder: Path) -> None:
    flow._check_files("lab", folder, begun=False)
    with pytest.raises(InputError, match="this folder has the files of the lab 'lab'") as caught:
        flow._check_files("lab2", folder, begun=False)
    assert "mkdir lab2 && cd lab2 && kit lab up --name lab2" in str(caught.value.hint)
    # Also where a person changed them since.
    (folder / "hosts").write_text((folder / "hosts").read_text() + "# mine\n")
    with pytest.raises(InputError, match="two labs need two folders"):
        flow._check_files("lab2", folder, begun=True)
