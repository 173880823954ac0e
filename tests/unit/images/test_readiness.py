"""The counters of Horovod's ranks, read from files that the ranks own."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.fakes import launcher
from tests.fakes.horovod import counters

readiness = launcher.load("kitwatch.readiness")

HEADER = launcher.IMAGES / "horovod" / "kit_watch.h"


def write(folder: Path, rank: int, *, pid: int = 7, **values: int) -> Path:
    path = folder / f"{rank}.{pid}"
    path.write_bytes(counters(rank, pid=pid, **values))
    return path


def test_counters_are_read_by_rank(tmp_path: Path) -> None:
    first = {"operations": 3, "tensors": 8, "wait": 500, "operation": 70, "bytes": 4096, "last": 99, "enqueued": 10}
    write(tmp_path, 0, **first, enqueued_at=98, tail=300, steps=2)
    write(tmp_path, 3, opened=5, pid=9)
    assert readiness.read(str(tmp_path)) == {
        0: {
            "count": 3,
            "tensors": 8,
            "wait_ns": 500,
            "op_ns": 70,
            "bytes": 4096,
            "tail_ns": 300,
            "steps": 2,
            "last_ns": 99,
            "pending": 2,
            "enqueued_ns": 98,
            "opened_ns": 0,
            "size": 4,
        },
        3: dict.fromkeys(("count", "tensors", "wait_ns", "op_ns", "bytes", "tail_ns", "steps", "last_ns", "pending"), 0)
        | {"enqueued_ns": 0, "opened_ns": 5, "size": 4},
    }


def test_the_layout_is_that_of_horovods_header() -> None:
    fields = re.findall(r"^    (?:std::atomic<)?int(?:32|64)_t>? (\w+);", HEADER.read_text(), re.MULTILINE)
    assert fields == ["version", *readiness.File._fields]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 128,
        counters(0)[:-1],
        counters(0) + b"\0",
        counters(0).replace(b"KITREADY", b"KITREADX"),
        counters(0)[:8] + b"\2" + counters(0)[9:],
        counters(-1),
        counters(0, wait=-1),
    ],
)
def test_a_file_that_is_not_filled_in_or_is_none_of_kits_does_not_count(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "0.7").write_bytes(data)
    write(tmp_path, 1)
    assert list(readiness.read(str(tmp_path))) == [1]


def test_the_newest_file_of_a_rank_counts_and_ranks_beyond_the_newest_world_do_not(tmp_path: Path) -> None:
    write(tmp_path, 0, pid=7, opened=1, operations=900, size=4)
    write(tmp_path, 3, pid=8, opened=1, operations=900, size=4)
    write(tmp_path, 0, pid=9, opened=2, operations=5, size=2)
    assert {rank: values["count"] for rank, values in readiness.read(str(tmp_path)).items()} == {0: 5}


def test_no_link_is_followed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "0.7").symlink_to(write(tmp_path, 0))
    os.mkfifo(folder / "1.7")
    (folder / "2.7").mkdir()
    assert readiness.read(str(folder)) == {}
    write(folder, 3)
    (tmp_path / "link").symlink_to(folder)
    assert readiness.read(str(tmp_path / "link")) == {}
    readiness.remove(str(tmp_path / "link"))
    assert sorted(path.name for path in folder.iterdir()) == ["0.7", "1.7", "2.7", "3.7"]


def test_nothing_is_there_before_horovod_starts(tmp_path: Path) -> None:
    assert readiness.read(str(tmp_path / "nothing")) == {}
    readiness.remove(str(tmp_path / "nothing"))


def test_the_folder_is_removed_and_nothing_behind_a_link(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder, 0)
    kept = tmp_path / "kept"
    kept.write_text("kept")
    (folder / "control").symlink_to(kept)
    readiness.remove(str(folder))
    assert not folder.exists()
    assert kept.read_text() == "kept"
