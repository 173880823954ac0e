"""Tests what a run passes to kit-rank about NCCL, and what nodes get."""

from __future__ import annotations

from typing import Any

import pytest

from kit.model.launch import Placement
from kit.model.spec import ClusterSpec, NcclSpec
from kit.plan.cluster import stack
from kit.plan.run.nccl import variables
from tests.fakes import launcher
from tests.fakes.facts import node

watched: Any = launcher.load("kitrun.nccl")
TWO = Placement(nodes=(node(1), node(2)), counts=(2, 2))
ONE = Placement(nodes=(node(1),), counts=(2,))


@pytest.mark.parametrize(
    ("nccl", "placement", "flag", "expected"),
    [
        ({}, TWO, None, {}),
        ({"require": "IB"}, TWO, None, {"KIT_NCCL_NETWORK": "IB"}),
        ({"require": "IB"}, TWO, "any", {}),
        ({"require": "IB"}, TWO, "Socket", {"KIT_NCCL_NETWORK": "Socket"}),
        ({}, TWO, "PLUGIN", {"KIT_NCCL_NETWORK": "PLUGIN"}),
        ({"require": "IB"}, ONE, None, {}),
        ({"plugin": "/opt/x"}, ONE, None, {"KIT_NCCL_FOLDER": "/opt/nccl-plugin"}),
    ],
    ids=str,
)
def test_the_variables_of_a_run(
    nccl: dict[str, Any], placement: Placement, flag: Any, expected: dict[str, str]
) -> None:
    assert variables(ClusterSpec(nccl=NcclSpec(**nccl)), placement, flag) == expected


def test_an_elastic_run_on_one_host_may_get_more() -> None:
    spec = ClusterSpec(nccl=NcclSpec(require="IB"))
    assert variables(spec, ONE, elastic=True) == {"KIT_NCCL_NETWORK": "IB"}
    assert variables(spec, ONE, "any", elastic=True) == {}


def test_both_sides_use_the_same_names() -> None:
    both = variables(ClusterSpec(nccl=NcclSpec(plugin="/p", require="IB")), TWO)
    assert set(both) == {watched.PLUGIN, watched.REQUIRE}


def test_the_plugin_is_mounted_read_only() -> None:
    spec = ClusterSpec(volumes=("/data:/data",), nccl=NcclSpec(plugin="/opt/x"))
    assert stack.volumes(spec) == ("/data:/data", "/opt/x:/opt/nccl-plugin:ro")
    assert stack.volumes(ClusterSpec()) == ()
