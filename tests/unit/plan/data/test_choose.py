"""Which data sets are on which hosts."""

from __future__ import annotations

import pytest

from kit.flows.bench.launch import with_settings
from kit.model.data import DataSource, DataSpec
from kit.model.spec import ClusterSpec
from kit.model.staging import Summary
from kit.plan.data.choose import is_current


@pytest.mark.parametrize(
    ("source", "current"),
    [
        ("./labels", True),
        # An earlier kit has staged it, which knew no other name: of this operator, and of another one.
        ("/home/bob/project/labels", True),
        ("/home/alice/project/labels", False),
        ("./other", False),
    ],
)
def test_a_folder_of_the_operator_is_known_by_what_kit_yaml_has(source: str, current: bool) -> None:
    path = "/home/bob/project/labels"
    data = DataSpec(
        name="labels", source=DataSource(kind="here", text=path, path=path, written="./labels"), to="/data/labels"
    )
    assert is_current(Summary(source=source, stage="disk"), data) is current
    assert not is_current(Summary(source=source, stage="ram"), data)
    assert not is_current(None, data)
    spec = ClusterSpec(name="lab", data=(data,))
    assert with_settings(spec, {"mpi.args": []}).data == spec.data
