"""Data sets on hosts: the folders that a deploy makes, what is staged, and the mounts of file systems."""

from __future__ import annotations

import itertools

import pytest

from kit.model.data import DataSource
from kit.model.plan import MakeDataFolder
from kit.model.spec import ClusterSpec
from kit.model.values import replace
from kit.plan.cluster import data, mounts
from tests.fakes.datasets import DATA
from tests.fakes.facts import facts

SPEC = ClusterSpec(name="lab", data=DATA)
BY_NAME = {one.name: one for one in DATA}
FILES = {
    "imagenet": "/opt/kit/.data/lab/imagenet/files",
    "web-text": "/dev/shm/kit-data/lab/web-text/files",
    "labels": "/nvme/kit-data/lab/labels/files",
}


def test_a_rank_finds_each_data_set_by_a_variable() -> None:
    assert data.variables(DATA) == {
        "KIT_DATA_IMAGENET": "/data/imagenet",
        "KIT_DATA_WEB_TEXT": "/data/text",
        "KIT_DATA_WEB_TEXT_SPLIT": "hosts",
        "KIT_DATA_LABELS": "/data/labels",
        "KIT_DATA_SHARED": "/data/shared",
        "KIT_DATA_NOTES": "/data/notes",
        "KIT_DATA_SCRATCH": "/data/scratch",
        "KIT_DATA_NAS": "/data/nas",
        "KIT_DATA_CRAWL": "/data/crawl",
        "KIT_DATA_OLD": "/data/old",
    }


def test_ranks_write_to_a_mounted_store_only_where_kit_yaml_says_so() -> None:
    kept = replace(BY_NAME["crawl"], name="kept", to="/data/kept", write=True)
    assert data.variables([kept]) == {"KIT_DATA_KEPT": "/data/kept", "KIT_DATA_KEPT_WRITE": "store"}
    spec = ClusterSpec(name="lab", data=(BY_NAME["crawl"], kept))
    assert data.volumes(spec) == (
        "/opt/kit/.data/lab/crawl/mount:/data/crawl:ro,rslave",
        "/opt/kit/.data/lab/kept/mount:/data/kept:rw,rslave",
    )
    # What is staged, or mounted by an engine, has no such variable: a node never lacks that.
    shared = replace(BY_NAME["shared"], write=True)
    assert data.variables([shared, replace(BY_NAME["imagenet"], write=True)]) == {
        "KIT_DATA_SHARED": "/data/shared",
        "KIT_DATA_IMAGENET": "/data/imagenet",
    }


STORE = "/opt/kit/.data/lab/crawl/mount"


def test_the_folders_that_a_host_lacks_are_made_once() -> None:
    lacking = facts(1, absent=frozenset({FILES["imagenet"], FILES["labels"], STORE}))
    steps = list(data.steps(lacking, SPEC))
    assert [(type(step), step.path) for step in steps] == [
        (MakeDataFolder, FILES["imagenet"]),
        (MakeDataFolder, FILES["labels"]),
        (MakeDataFolder, STORE),
    ]
    assert list(data.steps(facts(1), SPEC)) == []


def test_the_plan_asks_for_folders_summaries_and_the_disk() -> None:
    summaries = {path.replace("/files", "/staged.json") for path in FILES.values()}
    assert set(data.paths(SPEC)) == {"/nvme", *FILES.values(), *summaries, STORE}
    assert data.paths(ClusterSpec()) == []


def test_a_host_without_the_disk_is_a_problem() -> None:
    (problem,) = data.problems(facts(2, absent=frozenset({"/nvme"})), SPEC)
    assert (problem.host, problem.message) == ("gpu2", "has no folder /nvme, which dir: of a data set names")
    assert data.problems(facts(2), SPEC) == []


def test_which_hosts_lack_a_data_set() -> None:
    without = frozenset({"/opt/kit/.data/lab/imagenet/staged.json"})
    hosts = [facts(1, absent=without), facts(2), facts(3, absent=without)]
    assert data.unstaged(hosts, SPEC) == {"imagenet": ["gpu1", "gpu3"]}


def test_nfs_is_mounted_with_what_vendors_advise() -> None:
    advised = "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport"
    assert mounts.options(BY_NAME["shared"].source) == {
        "type": "nfs", "o": f"addr=10.0.0.9,{advised},ro", "device": ":/exports/shared",
    }  # fmt: skip
    assert mounts.options(BY_NAME["notes"].source, write=True) == {
        "type": "nfs", "o": f"addr=10.0.0.9,port=2050,{advised}", "device": ":/notes$1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("server", "first", "last"),
    [
        ("0cd8b4a576-a.cn-hangzhou.nas.aliyuncs.com", "nfsvers=4.0", "noresvport,ro"),
        ("team.file.core.windows.net", "nfsvers=4.1", "noresvport,nconnect=4,actimeo=30,ro"),
        ("fs-1.efs.us-east-1.amazonaws.com", "nfsvers=4.1", "noresvport,ro"),
    ],
)
def test_a_vendors_server_has_the_vendors_options(server: str, first: str, last: str) -> None:
    words = mounts.options(DataSource(kind="nfs", text="", place=server, path="/x"))["o"]
    assert words.startswith(f"addr={server},{first},rsize=1048576,")
    assert words.endswith(last)


def test_options_of_kit_yaml_take_the_place_of_the_advised_ones() -> None:
    one = BY_NAME["old"]
    assert mounts.options(one.source, chosen=one.options)["o"] == "addr=10.0.0.7,nfsvers=3,nolock,hard,ro"
    lustre = mounts.options(BY_NAME["scratch"].source, chosen="flock")["o"]
    assert lustre == "ro,flock,device=10.0.0.5@tcp:10.0.0.6@tcp:/fs/scratch"


def test_the_device_of_lustre_is_its_last_option() -> None:
    device = "10.0.0.5@tcp:10.0.0.6@tcp:/fs/scratch"
    assert mounts.options(BY_NAME["scratch"].source) == {
        "type": "lustre", "o": f"ro,relatime,flock,device={device}", "device": device,
    }  # fmt: skip


def test_rclone_mounts_a_bucket_where_nodes_see_it_later_too() -> None:
    one = BY_NAME["crawl"]
    assert one.mounted_by == "rclone"
    spec = replace(SPEC, data=(one,))
    assert data.volumes(spec) == (f"{STORE}:/data/crawl:ro,rslave",)
    assert (data.declared(spec), data.servers(spec), data.local_folders(spec)) == ({}, (), {})
    lacking = facts(2, absent=frozenset({STORE}))
    assert data.unmounted([facts(1), lacking], spec) == ("crawl",)
    assert data.unmounted([facts(1), facts(2)], spec) == ()


def test_another_bucket_needs_no_deploy_and_another_way_does() -> None:
    one = BY_NAME["crawl"]
    elsewhere = replace(one, source=replace(one.source, text="s3://other/x", place="other", path="x"))
    ways = (one, elsewhere, replace(one, stage="disk"), replace(one, to="/other"))
    settings = [data.settings(replace(SPEC, data=(way,)))["data.crawl"] for way in ways]
    assert settings[0] == settings[1]
    assert len({*settings}) == 3


def test_no_engine_mounts_a_bucket() -> None:
    with pytest.raises(ValueError, match="store"):
        mounts.options(BY_NAME["imagenet"].source)


def test_other_options_make_another_volume() -> None:
    """An engine keeps the options with which it has made a volume."""
    one = BY_NAME["shared"]
    elsewhere = DataSource(kind="nfs", text="nfs://10.0.0.8/x", place="10.0.0.8", path="/x")
    changed = (one, replace(one, write=True), replace(one, source=elsewhere))
    volumes = [set(data.declared(replace(SPEC, data=(each,)))) for each in changed]
    assert all(a.isdisjoint(b) for a, b in itertools.combinations(volumes, 2))
    assert volumes[0] == set(data.declared(replace(SPEC, data=(replace(one, to="/other"),))))
