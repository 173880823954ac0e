"""What kit doctor says about stores that rclone has mounted, or should have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kit.model.doctor import Mount, Ran, Sight
from kit.plan.doctor.checks import store_mount
from tests.fakes.doctor import Machine, judged, rows
from tests.unit.plan.doctor.clean import NODE_MOUNTS, THREE

HEAD, SECOND, THIRD = THREE
AT = "/opt/kit/.data/lab/crawl/mount"
NODE = ("node", "cat", "/proc/self/mountinfo")
CRAWL = {"from": "s3://bucket/crawl", "to": "/data/crawl", "stage": "none"}
SPEC = {"data": {"crawl": CRAWL}}
AGAIN = "kit data mount crawl"
# The node sees no store.
NONE = {NODE: NODE_MOUNTS.replace("fuse.rclone", "fuse.other")}
ENDED = "the mount has ended: Transport endpoint is not connected"
LATE = "the mount does not answer within 10 s"


def sights(*machines: Machine, spec: Mapping[str, Any] = SPEC) -> Sequence[Sight]:
    return judged(store_mount.CHECK, *machines, spec=spec)


def with_fault(fault: str | None, place: str = AT) -> Machine:
    return SECOND.but(mounts={place: Mount(device="0:61", fault=fault)})


def test_a_mount_that_answers_everywhere_is_well() -> None:
    assert sights(HEAD, SECOND, THIRD) == ()


@pytest.mark.parametrize(
    ("fault", "text", "fix"),
    [
        ("ENOTCONN", ENDED, AGAIN),
        # kit data mount changes nothing where rclone still runs.
        (None, LATE, f"kit data rm crawl, then: {AGAIN}"),
        ("EIO", "the mount cannot be read: EIO", f"kit data rm crawl, then: {AGAIN}"),
    ],
)
def test_a_mount_that_fails_breaks_runs_on_its_host(fault: str | None, text: str, fix: str) -> None:
    assert sights(HEAD, with_fault(fault), THIRD) == (Sight(hosts=("gpu2",), seen=f"crawl: {text}", fix=fix),)


def test_it_is_named_once_also_if_the_node_lacks_it_or_does_not_run() -> None:
    for runs in (NONE, {NODE: None}):
        assert rows(sights(HEAD, with_fault("ENOTCONN").but(runs=runs), THIRD)) == [("gpu2", f"crawl: {ENDED}")]


def test_a_mount_that_is_missing_on_some_hosts_is_worth_a_look() -> None:
    """A run that names the data set mounts it first."""
    bare = [one.but(mounts={}, runs=NONE) for one in (SECOND, THIRD)]
    text = "crawl is not mounted, but is on gpu1"
    assert sights(HEAD, *bare) == tuple(
        Sight(hosts=(host,), seen=text, fix=AGAIN, severity="watch") for host in ("gpu2", "gpu3")
    )


def test_many_hosts_that_have_it_are_counted() -> None:
    """gpu2, gpu4 … lack it."""
    bare = SECOND.but(mounts={}, runs=NONE)
    texts = {sight.seen for sight in sights(*[HEAD, bare] * 30)}
    assert texts == {"crawl is not mounted, but is on gpu[1,3,5,7] and 26 more"}


def test_a_data_set_that_nobody_has_mounted_yet_is_no_finding() -> None:
    assert sights(*[one.but(mounts={}, runs=NONE) for one in THREE]) == ()


def test_where_no_other_mount_answers_none_is_missing() -> None:
    bare = HEAD.but(mounts={}, runs=NONE)
    assert rows(sights(bare, with_fault("ENOTCONN"))) == [("gpu2", f"crawl: {ENDED}")]


@pytest.mark.parametrize("ran", [None, Ran(code=None, out=""), Ran(code=1, out="", err="Error: the node is paused")])
def test_it_is_missing_only_where_a_node_runs(ran: Ran | None) -> None:
    assert sights(HEAD, SECOND.but(mounts={}, runs={NODE: ran})) == ()


def test_a_host_that_does_not_answer_lacks_nothing() -> None:
    """It may have more mounts than kit reads."""
    assert sights(HEAD, SECOND.but(mounts=None, runs=NONE)) == ()
    assert sights(HEAD, SECOND.but(mounts=None)) == ()


@pytest.mark.parametrize(
    ("mounts", "runs", "text"),
    [
        ({AT: Mount(device="0:70")}, {}, "the node has an earlier mount, which has ended"),
        ({AT: Mount(device="0:61")}, NONE, "the node does not see the mount"),
        ({}, {}, "the mount has ended, and the node still has it"),
    ],
)
def test_a_node_that_does_not_see_the_mount_of_its_vm(
    mounts: Mapping[str, Mount], runs: Mapping[tuple[str, ...], str], text: str
) -> None:
    expected = (Sight(hosts=("gpu2",), seen=f"crawl: {text}", fix=AGAIN),)
    host = SECOND.but(mounts=mounts, runs=runs)
    assert sights(HEAD, host, THIRD) == expected
    # No other host is needed to see that.
    assert [sight.seen for sight in sights(host)] == [f"crawl: {text}"]


def test_the_last_mount_of_a_node_counts() -> None:
    later = NODE_MOUNTS + NODE_MOUNTS.splitlines()[1].replace("0:61", "0:70") + "\n"
    assert rows(sights(SECOND.but(runs={NODE: later}))) == [
        ("gpu1", "crawl: the node has an earlier mount, which has ended")
    ]


def test_a_folder_of_the_node_with_a_space() -> None:
    spec = {"data": {"crawl": {**CRAWL, "to": "/data/my crawl"}}}
    node = {NODE: NODE_MOUNTS.replace("/data/crawl", "/data/my\\040crawl")}
    assert sights(HEAD.but(runs=node), spec=spec) == ()


def test_a_folder_behind_a_link_is_the_same_mount() -> None:
    moved = SECOND.but(mounts={"/mnt/big/lab/crawl/mount": Mount(device="0:61")})
    assert sights(HEAD, moved) == ()
    assert rows(sights(HEAD, with_fault("ENOTCONN", "/mnt/big/lab/crawl/mount"))) == [("gpu2", f"crawl: {ENDED}")]


@pytest.mark.parametrize("spec", [{}, {"data": {"crawl": {**CRAWL, "stage": "disk"}}}])
def test_a_dead_mount_that_kit_yaml_does_not_have_is_worth_a_look(spec: Mapping[str, Any]) -> None:
    assert sights(HEAD, with_fault("ENOTCONN"), spec=spec) == (
        Sight(
            hosts=("gpu2",),
            seen=f"crawl, which kit.yaml does not mount: {ENDED}",
            fix="kit data rm crawl",
            severity="watch",
        ),
    )


def test_a_dead_mount_of_another_cluster_is_worth_a_look() -> None:
    assert sights(HEAD, with_fault(None, "/opt/kit/.data/old/crawl/mount").but(runs=NONE), spec={}) == (
        Sight(
            hosts=("gpu2",),
            seen=f"crawl, which is of the cluster old: {LATE}",
            fix="in the folder of the cluster old: kit data mount crawl",
            severity="watch",
        ),
    )


@pytest.mark.parametrize(
    "place",
    [
        "",
        "/",
        "mount",
        "/mount",
        "crawl/mount",
        "lab/crawl/mounts",
        "/home/ubuntu/drive",
        "/home/ubuntu/crawl/mount",
        "/opt/kit/.data/old/a\x1b[2J/mount",
        "/opt/kit/.data/old/crawl/mount/below",
        "/opt/kit/.data/old/Crawl/mount",
        f"/opt/kit/.data/old/{'a' * 41}/mount",
        "/opt/kit/.data/old\n/crawl/mount",
        "/opt/kit/.data/\ud800/crawl/mount",
    ],
)
def test_what_others_have_mounted_is_not_kits(place: str) -> None:
    assert sights(with_fault("ENOTCONN", place).but(runs=NONE), spec={}) == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\x00",
        "840",
        "840 812 0:70 / /data/crawl ro",
        "840 812 0:70 / /data/crawl ro -",
        "840 812 0:70 / /data/crawl ro - fuse.rclones x",
        "840 812 0:70 / /data/crawl ro - fuse.sshfs x",
        "840 812 070 / /data/crawl ro - fuse.rclone x",
        "840 812 \u0660:\u0661 / /data/crawl ro - fuse.rclone x",
        "840 812 0:70 /\n/data/crawl ro - fuse.rclone x",
        "840 812 0:70 / /data/crawl\\999 ro - fuse.rclone x",
        "x840 812 0:70 / /data/crawl ro - fuse.rclone x",
    ],
)
def test_odd_lines_of_a_node_are_no_mount(text: str) -> None:
    assert rows(sights(HEAD.but(runs={NODE: text}))) == [("gpu1", "crawl: the node does not see the mount")]


def test_file_servers_and_copies_are_not_of_this_check() -> None:
    data = {
        "web": {"from": "nfs://10.0.0.9/web", "to": "/data/web", "stage": "none"},
        "images": {"from": "s3://bucket/images", "to": "/data/images"},
        "crawl": CRAWL,
    }
    assert sights(HEAD, SECOND, THIRD, spec={"data": data}) == ()
