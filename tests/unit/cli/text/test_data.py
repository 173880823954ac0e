"""What kit data prints."""

from __future__ import annotations

import pytest

from kit.cli.text import data as text
from kit.model.datasets import (
    DataListing,
    DataRow,
    MountResult,
    RemoveDataResult,
    RemovedData,
    StagePreview,
    StageResult,
    StopResult,
    VerifyResult,
)
from kit.model.staging import Verified, WrongFile
from kit.model.values import replace

RESULT = StageResult(
    cluster="lab", name="images", source="s3://b/images", id="1", hosts=("gpu1", "gpu2", "gpu3"), files=1000,
    bytes=10**9, new=1000, read=10**9, seconds=8.0,
)  # fmt: skip
ROW = DataRow(
    name="images", source="s3://b/images", stage="disk", state="staged", to="/data/images", hosts=("gpu1", "gpu2"),
    of=2, files=1000, bytes=10**9, at=1000.0,
)  # fmt: skip


def test_a_staging() -> None:
    assert text.staged(RESULT) == (
        "Staged images on 3 hosts: gpu[1-3]: 1000 files, 1.00 GB (1000 new or changed) in 8.0 s, "
        "125.0 MB/s from the source."
    )
    assert text.staged(replace(RESULT, new=0, removed=2, read=0)) == (
        "Staged images on 3 hosts: gpu[1-3]: 1000 files, 1.00 GB (2 removed) in 8.0 s."
    )


def test_a_split_of_which_a_host_has_left() -> None:
    row = replace(ROW, split="hosts", state="partly", hosts=(), lacking=("gpu1", "gpu2"), gone=("gpu3",))
    *_, last = text.listing(DataListing(cluster="lab", sets=(row,))).splitlines()
    assert last == (
        "images: a part of it is on gpu3, which is no longer in the cluster; "
        "share its files again: kit data stage images"
    )
    # A host has named them.
    odd = replace(row, gone=tuple(f"\x1b[2J{number}" for number in range(9)))
    *_, last = text.listing(DataListing(cluster="lab", sets=(odd,))).splitlines()
    assert last.isprintable()
    assert len(last) < 200


def test_nothing_to_do() -> None:
    none = replace(RESULT, new=0, read=0)
    assert text.staged(none) == "images: nothing to do: gpu[1-3] have all 1000 files, 1.00 GB."
    assert text.staged(replace(none, hosts=("gpu1",))) == "images: nothing to do: gpu1 has all 1000 files, 1.00 GB."


def test_a_detached_staging_says_what_to_type() -> None:
    shown = text.staged(replace(RESULT, detached=True))
    assert shown.startswith("images is being staged on 3 hosts: gpu[1-3] (1000 files, 1.00 GB, 1.00 GB to read).\n")
    assert "watch it: kit data stage images; end it: kit data stop images" in shown


def test_the_listing() -> None:
    rows = (
        ROW,
        replace(ROW, name="more", state="staging", fraction=0.409, hosts=(), files=None, bytes=None, at=None),
        replace(ROW, name="old", state="unknown", stage="ram"),
        replace(ROW, name="new", state="changed", hosts=()),
        DataRow(name="nas", source="nfs://nas/x", stage="none", state="mounted"),
    )
    assert text.listing(DataListing(cluster="lab", sets=rows, now=1300.0)).splitlines() == [
        "NAME    SOURCE         STAGE  HOSTS   FILES  SIZE     AGE    STATE",
        "images  s3://b/images  disk   2 of 2  1000   1.00 GB  5 min  staged",
        "more    s3://b/images  disk   0 of 2                         staging 40 %",
        "old     s3://b/images  ram    2 of 2  1000   1.00 GB  5 min  not in kit.yaml",
        "new     s3://b/images  disk   0 of 2  1000   1.00 GB  5 min  changed in kit.yaml",
        "nas     nfs://nas/x    none                                  mounted",
    ]
    assert "add data: to kit.yaml" in text.listing(DataListing(cluster="lab", sets=()))


def test_the_listing_says_how_to_get_another_mount() -> None:
    row = DataRow(name="crawl", source="s3://b/new", stage="none", state="changed", of=2)
    assert text.listing(DataListing(cluster="lab", sets=(row,))).splitlines()[1:] == [
        "crawl  s3://b/new  none   0 of 2  changed in kit.yaml",
        "crawl: the mount has another source or write: than kit.yaml; mount it again: kit data rm crawl && kit data "
        "mount crawl",
    ]


def test_the_listing_names_other_copies() -> None:
    row = replace(ROW, elsewhere={"/mnt/nvme/kit-data/lab/images": ("gpu1", "gpu2")})
    assert text.listing(DataListing(cluster="lab", sets=(ROW, row), now=1300.0)).splitlines()[3:] == [
        "images: a copy on gpu[1-2] in /mnt/nvme/kit-data/lab/images, which kit.yaml does not name; kit data rm images "
        "deletes all copies"
    ]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-5, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (172800, "2 d"), (1e7, "115 d")]
)
def test_ages(seconds: float, shown: str) -> None:
    assert text.age(seconds) == shown


def test_a_verification() -> None:
    wrong = tuple(WrongFile(file=f"f\x1b{n}", why="bytes") for n in range(11))
    hosts = {"gpu1": Verified(files=2, bytes=3000), "gpu2": Verified(files=2, bytes=3000, wrong=wrong, more=3)}
    shown = text.verified(VerifyResult(cluster="lab", name="images", hosts=hosts, missed={"gpu3": "no"})).splitlines()
    assert shown[0] == "gpu2: f\\x1b0 has other bytes"
    assert shown[10:] == [
        "gpu2: and 4 files more",
        "images: right on gpu1: 2 files, 3 kB",
        "images: wrong on gpu2",
        "  → bring it again: kit data stage images",
        "images: not known on gpu3",
    ]
    strange = Verified(files=2, bytes=3000, wrong=(WrongFile(file="more", why="extra"),))
    shown = text.verified(VerifyResult(cluster="lab", name="images", hosts={"gpu1": strange})).splitlines()
    assert shown[-1] == "  → bring it again: kit data rm images, then kit data stage images"


def test_removal_and_stop() -> None:
    one = RemovedData(name="images", hosts=("gpu1", "gpu2"), folders=("/x",), bytes=3000)
    none = RemovedData(name="more", hosts=(), folders=())
    assert text.removed(RemoveDataResult(cluster="lab", sets=(one, none))) == "Deleted images from gpu[1-2]."
    assert text.removed(RemoveDataResult(cluster="lab", sets=(none,))) == "Nothing to do: no host has more."
    assert "would delete it" in text.removed(RemoveDataResult(cluster="lab", sets=(one,), dry_run=True))
    assert text.stopped(StopResult(cluster="lab", name="images")) == "Nothing to do: images is not being staged."
    assert "go on: kit data stage images" in text.stopped(StopResult(cluster="lab", name="images", id="1"))


def test_a_preview() -> None:
    one = StagePreview(
        name="images", source="s3://b/images", stage="ram", folder="/dev/shm/kit-data/lab/images",
        state="changed", hosts=("gpu1", "gpu2"), has=("gpu1",), size=2 << 30,
    )  # fmt: skip
    assert text.previews([one]).splitlines() == [
        "images: s3://b/images → /dev/shm/kit-data/lab/images on gpu[1-2] (in memory, at most 2.15 GB)",
        "  kit.yaml has changed since it was staged",
        "  gpu1: staged; would get what is new or has changed in the source",
        "  gpu2: would get what is missing",
        "kit read no source, and changed nothing.",
    ]


def test_what_is_removed_and_what_is_only_unmounted() -> None:
    copy = RemovedData(name="images", hosts=("gpu1", "gpu2"), folders=("/x",), bytes=10)
    mount = RemovedData(name="crawl", hosts=("gpu2",), folders=("/y",), mounted=True)
    ask = "Delete what was staged of images from every host"
    assert text.question([copy]) == f"{ask}?"
    assert text.question([mount]) == "Unmount crawl on every host?"
    assert text.question([mount, copy]) == f"{ask}, and unmount crawl on every host?"
    done = RemoveDataResult(cluster="lab", sets=(copy, mount))
    assert text.removed(done).splitlines() == ["Deleted images from gpu[1-2].", "Unmounted crawl on gpu2."]
    dry = RemoveDataResult(cluster="lab", sets=(mount,), dry_run=True)
    assert text.removed(dry).splitlines()[-1] == "kit data rm would unmount it on every host."


def test_where_a_store_is_mounted() -> None:
    hosts = ("gpu1", "gpu2", "gpu3")
    new = MountResult(cluster="lab", name="crawl", source="s3://b/crawl", hosts=hosts, before=("gpu1",), seconds=1.26)
    assert text.mounted(new) == "Mounted crawl on gpu[1-3]: s3://b/crawl, in 1.3 s."
    assert text.mounted(replace(new, before=hosts)) == "crawl: nothing to do: it is mounted on gpu[1-3]."
    again = text.mounted(replace(new, before=hosts, restarted=("gpu2",)))
    assert again.splitlines()[1] == "Restarted the nodes of gpu2, which had an earlier mount."
