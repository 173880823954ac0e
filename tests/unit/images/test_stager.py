"""kit-data as real processes on this machine: one data set on all hosts, read once, and what comes the second time."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.stagers import Stagers, tree

MakeStagers = Callable[[int], Stagers]


@pytest.fixture
def make_stagers(tmp_path: Path) -> Iterator[MakeStagers]:
    made: list[Stagers] = []

    def make(count: int) -> Stagers:
        made.append(Stagers(count, tmp_path))
        return made[-1]

    yield make
    for stagers in made:
        stagers.close()


def fill(folder: Path, count: int, size: int, seed: int = 1) -> int:
    """Make files of up to `size` bytes, and return the number of bytes."""
    chance = random.Random(seed)  # noqa: S311
    total = 0
    for number in range(count):
        path = folder / f"part{number % 3}" / f"file {number}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(chance.randbytes(chance.randrange(size)))
        total += path.stat().st_size
    return total


def test_all_hosts_get_all_files_and_the_source_is_read_once(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(4)
    total = fill(stagers.source, 200, 100_000)
    (stagers.source / "big").write_bytes(os.urandom(9 << 20))
    (stagers.source / "empty").touch()
    total += 9 << 20
    order = stagers.staged()
    done = order.answers[-1]["done"]
    assert (done["files"], done["bytes"], done["new"], done["read"]) == (202, total, 202, total)
    assert done["hosts"] == ["gpu1", "gpu2", "gpu3", "gpu4"]
    plan = order.all("plan")[0]
    assert plan["hosts"]["gpu3"] == {"need": total, "have": 0}
    for stager in stagers.all:
        assert stager.tree() == tree(stagers.source)
        assert not (stager.folder / "coming").exists()
        assert (stager.files / "big").stat().st_mtime_ns == (stagers.source / "big").stat().st_mtime_ns
        assert (stager.files / "big").stat().st_mode & 0o777 == 0o644
        assert stager.summary()["bytes"] == total
    assert len({stager.summary()["id"] for stager in stagers.all}) == 1

    again = stagers.staged().answers[-1]["done"]
    assert (again["new"], again["removed"], again["read"]) == (0, 0, 0)
