"""Which data sets are on which hosts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

from kit.flows.bench.launch import with_settings
from kit.model.data import DataSource, DataSpec
from kit.model.datasets import HostData, HostSet
from kit.model.spec import ClusterSpec
from kit.model.staging import Summary
from kit.plan.cluster.drift import deployed_settings
from kit.plan.data.choose import is_current, lacking, rows, unmounted
from tests.fuse import fuse


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


def store(source: str, *, write: bool = False) -> DataSpec:
    return DataSpec(
        name="crawl", source=DataSource(kind="store", text=source), to="/data/crawl", stage="none", write=write
    )


def mounted(source: str, *, write: bool = False) -> HostData:
    return HostData(sets=(HostSet(folder="/opt/kit/.data/lab/crawl", mounted=True, source=source, write=write),))


LONG = f"s3://bucket/{'ä' * 600}"


@pytest.mark.parametrize(
    ("source", "write", "current"),
    [
        ("s3://bucket/a new", False, True),
        ("s3://bucket/old", False, False),
        ("s3://bucket/a new", True, False),
        # The mounter of an earlier kit names no source.
        ("rclone", False, True),
        ("rclone", True, False),
    ],
)
def test_a_host_that_has_mounted_something_else_lacks_the_store(source: str, write: bool, current: bool) -> None:
    data = store("s3://bucket/a new")
    hosts = {"gpu1": mounted("s3://bucket/a new"), "gpu2": mounted(source, write=write)}
    assert unmounted(hosts, "lab", data) == (() if current else ("gpu2",))
    (row,) = rows(ClusterSpec(name="lab", data=(data,)), hosts, {}, names=hosts)
    assert (row.state, row.hosts) == (("mounted", ("gpu1", "gpu2")) if current else ("changed", ("gpu1",)))


def test_the_name_of_a_mount_is_cut_where_the_mounter_cuts_it() -> None:
    name = os.fsencode(LONG)[: fuse._MOST_NAME].decode(errors="replace")
    assert unmounted({"gpu1": mounted(name, write=True)}, "lab", store(LONG, write=True)) == ()
    assert unmounted({"gpu1": mounted(name[:-2])}, "lab", store(LONG)) == ("gpu1",)


def test_a_store_that_some_hosts_lack() -> None:
    spec = ClusterSpec(name="lab", data=(store("s3://bucket/new"),))
    (partly,) = rows(spec, {"gpu1": mounted("s3://bucket/new"), "gpu2": HostData()}, {}, names=("gpu1", "gpu2"))
    (nowhere,) = rows(spec, {"gpu1": HostData()}, {}, names=("gpu1",))
    assert (partly.state, partly.lacking, nowhere.state) == ("partly", ("gpu2",), "not mounted")


def test_a_file_server_is_mounted_where_the_cluster_was_deployed_with_it() -> None:
    (before, after) = (
        ClusterSpec(
            name="lab",
            data=(
                DataSpec(
                    name="shared",
                    source=DataSource(kind="nfs", text=f"nfs://nas{path}", place="nas", path=path),
                    to="/data/shared",
                    stage="none",
                ),
            ),
        )
        for path in ("/old", "/new")
    )

    def state(settings: Mapping[str, Any] | None) -> str:
        (row,) = rows(after, {"gpu1": HostData()}, {}, settings, names=("gpu1",))
        return row.state

    assert state(deployed_settings(after)) == "mounted"
    assert state(deployed_settings(before)) == "not deployed"
    assert state({}) == "not deployed"
    assert state(None) == "not known"


SHARED = DataSpec(
    name="shards",
    source=DataSource(kind="store", text="s3://bucket/shards"),
    to="/data/shards",
    split="hosts",
)


def part(among: str) -> HostData:
    summary = Summary(
        name="shards", source="s3://bucket/shards", stage="disk", split="hosts", id="1", files=4, among=among
    )
    return HostData(sets=(HostSet(folder="/opt/kit/.data/lab/shards", summary=summary),))


@pytest.mark.parametrize(
    ("among", "names", "state", "lacks"),
    [
        (["gpu1 gpu2", "gpu1 gpu2"], ["gpu1", "gpu2"], "staged", ()),
        # gpu3 is down, and has its part.
        (["gpu1 gpu2 gpu3", "gpu1 gpu2 gpu3"], ["gpu1", "gpu2", "gpu3"], "staged", ()),
        # gpu3 is no longer in the hosts file, and nobody else has its files.
        (["gpu1 gpu2 gpu3", "gpu1 gpu2 gpu3"], ["gpu1", "gpu2"], "partly", ("gpu1", "gpu2")),
        # gpu2 was down while gpu1 got all files. What it has would be read twice.
        (["gpu1", "gpu1 gpu2"], ["gpu1", "gpu2"], "partly", ("gpu2",)),
        # The stager of an earlier kit names no hosts.
        (["", ""], ["gpu1", "gpu2"], "staged", ()),
    ],
)
def test_the_parts_of_a_split_belong_to_the_hosts_that_share_it(
    among: list[str], names: list[str], state: str, lacks: tuple[str, ...]
) -> None:
    hosts = {name: part(one) for name, one in zip(("gpu1", "gpu2"), among, strict=True)}
    assert lacking(hosts, "lab", SHARED, names) == lacks
    (row,) = rows(ClusterSpec(name="lab", data=(SHARED,)), hosts, {}, names=names)
    assert (row.state, row.lacking) == (state, lacks)
    assert row.gone == (("gpu3",) if "gpu3" not in names and "gpu3" in among[0] else ())
