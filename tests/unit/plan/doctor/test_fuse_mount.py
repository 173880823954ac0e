"""What kit doctor says about FUSE mounts that are not kit's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kit.model.doctor import Mount, Sight
from kit.plan.doctor.checks import fuse_mount
from tests.fakes.doctor import judged
from tests.unit.plan.doctor.clean import THREE

HEAD, SECOND, THIRD = THREE
ENDED = "the mount has ended: Transport endpoint is not connected"


def seen(places: Mapping[str, str | None], **spec: Any) -> list[tuple[str, str | None]]:
    """Return what the check says about mounts of gpu2, with their faults."""
    mounts = {place: Mount(device="0:61", fault=fault) for place, fault in places.items()}
    sights: Sequence[Sight] = judged(fuse_mount.CHECK, HEAD, SECOND.but(mounts=mounts), THIRD, spec=spec)
    assert {host for sight in sights for host in sight.hosts} <= {"gpu2"}
    return [(sight.seen, sight.severity) for sight in sights]


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("ENOTCONN", ENDED),
        (None, "the mount does not answer within 10 s"),
        ("EIO", "Input/output error"),
        ("ESTALE", "Stale file handle"),
        ("ETIMEDOUT", "Connection timed out"),
    ],
)
def test_a_mount_in_volumes_breaks_runs(fault: str | None, text: str) -> None:
    assert seen({"/mnt/s3": fault}, volumes=["/mnt/s3:/data:ro"]) == [
        (f"/mnt/s3, in volumes: as /mnt/s3: {text}", "breaks")
    ]


@pytest.mark.parametrize("source", ["/mnt", "/mnt/s3/", "/mnt/s3/images"])
def test_a_volume_may_have_the_mount_in_part_or_be_a_folder_above(source: str) -> None:
    shown = source.rstrip("/")
    assert seen({"/mnt/s3": "ENOTCONN"}, volumes=["/srv:/srv", f"{source}:/data"]) == [
        (f"/mnt/s3, in volumes: as {shown}: {ENDED}", "breaks")
    ]


def test_a_mount_that_no_node_has_is_worth_a_look() -> None:
    assert seen({"/mnt/s3": "ENOTCONN"}, volumes=["/mnt/s30:/data", "named:/x"]) == [(f"/mnt/s3: {ENDED}", "watch")]


def test_what_root_may_not_open_and_what_answers_is_well() -> None:
    assert seen({"/run/user/1000/gvfs": "EACCES", "/mnt/a": "EPERM", "/mnt/b": ""}) == []


def test_mounts_of_stores_have_their_own_check() -> None:
    assert seen({"/opt/kit/.data/lab/crawl/mount": "ENOTCONN", "/nvme/.data/old/crawl/mount": "ENOTCONN"}) == []
