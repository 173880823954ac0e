"""A disk that returns other bytes than it got: what it lost comes again, and no host ends without one of its files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import launcher
from tests.fakes.stagers import Stager, Stagers, tree

disk, manifest, source = (launcher.load(f"kitdata.{name}") for name in ("disk", "manifest", "source"))
EXTENT = 4 << 20
Damage = Callable[[Stager, str, int], None]


@pytest.fixture
def stagers(tmp_path: Path) -> Iterator[Stagers]:
    made = Stagers(2, tmp_path)
    yield made
    made.close()


def spoil(host: Stager, name: str, at: int) -> None:
    """Change bytes of a file as a bad disk does: its size and time stay."""
    path = host.files / name
    about = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"rotten")
    os.utime(path, ns=(about.st_mtime_ns, about.st_mtime_ns))
    host.wait_until_free()


def assert_right(stagers: Stagers, hosts: list[Stager], request: dict[str, Any]) -> None:
    """Check that the hosts have all files, and that a look at each byte and the next staging agree."""
    for host in hosts:
        assert host.tree() == tree(stagers.source)
        host.wait_until_free()
        assert stagers.order(host, op="verify").end()["verified"]["wrong"] == []
    again = stagers.staged_when_free(**request).answers[-1]["done"]
    assert (again["new"], again["read"]) == (0, 0)


@pytest.mark.parametrize(
    ("reader", "size", "at"),
    # Its only reader reads it again itself. Of a large file, some extents were sent before the wrong one.
    [("gpu1", 1000, 10), ("gpu1", 24 << 20, 13 << 20), ("gpu2", 24 << 20, 13 << 20), (None, 24 << 20, 13 << 20)],
)
def test_a_host_whose_disk_lost_bytes_of_a_file_gets_it_again(
    stagers: Stagers, reader: str | None, size: int, at: int
) -> None:
    (stagers.source / "one").write_bytes(os.urandom(size))
    (stagers.source / "small").write_bytes(b"x")
    first, second = stagers.all
    stagers.staged([first])
    spoil(first, "one", at)
    request = {"source": stagers.folder(readers=[reader] if reader else None)}
    done = stagers.staged(stagers.all, **request).answers[-1]["done"]
    assert (done["hosts"], done["lost"]) == (["gpu1", "gpu2"], [])
    assert_right(stagers, [first, second], request)


def test_with_split_a_file_whose_bytes_are_lost_comes_again(stagers: Stagers) -> None:
    for number in range(4):
        (stagers.source / str(number)).write_bytes(os.urandom(3 * EXTENT))
    first, second = stagers.all
    stagers.staged([first])
    for name in "0123":
        spoil(first, name, EXTENT)
    first.wait_until_free()
    stagers.staged(split="hosts")
    # What moved was read, and so it is right.
    assert (len(first.tree()), len(second.tree())) == (2, 2)
    assert second.tree().items() < tree(stagers.source).items()


# At the end of each round, the disk of this host has lost the second file.
FORGETS = """
from kitdata import disk
finish = disk.Folder.finish
def lacks(self, mine, summary):
    self.forget([(1, 0)])
    return finish(self, mine, summary)
disk.Folder.finish = lacks
"""


def test_a_disk_that_loses_a_file_in_each_round_takes_its_host_out(stagers: Stagers) -> None:
    for name in ("one", "two"):
        (stagers.source / name).write_bytes(os.urandom(2 * EXTENT))
    stagers.all[1].hook = FORGETS
    order = stagers.staged()
    done = order.answers[-1]["done"]
    assert (done["hosts"], done["lost"]) == (["gpu1"], ["gpu2"])
    assert order.all("lost") == [
        {"host": "gpu2", "text": "its disk lost bytes of two, and of other files before, while they were staged"}
    ]
    assert stagers.all[0].tree() == tree(stagers.source)
    assert not (stagers.all[1].folder / "staged.json").exists()


def test_the_only_host_whose_disk_loses_a_file_in_each_round_fails(stagers: Stagers) -> None:
    for name in ("one", "two"):
        (stagers.source / name).write_bytes(b"x")
    stagers.all[0].hook = FORGETS
    failed = stagers.stage(stagers.all[:1]).end()["failed"]
    assert (failed["kind"], failed["host"]) == ("disk", "gpu1")
    assert "gpu1: its disk lost bytes of two" in failed["text"]


# No byte of a file can be read, as from a disk with a bad sector.
EIO = """
import errno
from kitdata import disk
extent = disk.Folder.extent
def bad(self, number, part):
    if self._entries[number].path == "one":
        raise OSError(errno.EIO, "Input/output error")
    return extent(self, number, part)
disk.Folder.extent = bad
"""


def test_a_disk_that_reads_nothing_ends_in_time(stagers: Stagers) -> None:
    (stagers.source / "one").write_bytes(os.urandom(1000))
    first, second = stagers.all
    stagers.staged([first])
    first.wait_until_free()
    first.kill()
    first.hook = EIO
    stagers.staged([first, second])
    assert [host.tree() for host in stagers.all] == [tree(stagers.source)] * 2


def whole_folder(path: Path) -> tuple[list[Any], bytes]:
    """Stage one file of three extents, and return the list of files and the bytes."""
    data = os.urandom(3 * EXTENT)
    listed = [source.Entry("big", len(data), 10**18)]
    folder = disk.Folder(str(path))
    folder.expect(listed)
    for part in range(3):
        write(folder, part, data)
    folder.finish([0], summary(listed))
    return listed, data


def write(folder: Any, part: int, data: bytes) -> None:
    chunk = data[part * EXTENT : (part + 1) * EXTENT]
    folder.write([(0, part)], memoryview(chunk), [hashlib.sha256(chunk).digest()])


def summary(listed: list[Any]) -> dict[str, Any]:
    return {"id": manifest.listing_id(listed), "source": "s", "split": "none"}


def test_a_host_does_not_finish_without_a_file(tmp_path: Path) -> None:
    listed, data = whole_folder(tmp_path)
    folder = disk.Folder(str(tmp_path))
    assert folder.expect(listed).whole == {0}
    folder.forget([(0, 1)])
    write(folder, 1, data)
    with pytest.raises(disk.Incomplete) as raised:
        folder.finish([0], summary(listed))
    assert raised.value.number == 0
    # What was there stays until all of the new one is here, and the next round knows what has come.
    assert (tmp_path / "files/big").read_bytes() == data
    assert not folder.is_staged(manifest.listing_id(listed), "s")
    assert folder.expect(listed).parts == {0: {1}}
    for part in (0, 2):
        write(folder, part, data)
    folder.finish([0], summary(listed))
    assert folder.is_staged(manifest.listing_id(listed), "s")


def test_a_kill_does_not_make_wrong_bytes_right(tmp_path: Path) -> None:
    listed, _ = whole_folder(tmp_path)
    folder = disk.Folder(str(tmp_path))
    folder.expect(listed)
    folder.forget([(0, 1)])
    again = disk.Folder(str(tmp_path))
    assert not again.is_staged(manifest.listing_id(listed), "s")
    assert again.expect(listed).whole == set()


def test_what_is_sent_late_forgets_nothing_after_the_end(tmp_path: Path) -> None:
    listed, _ = whole_folder(tmp_path)
    folder = disk.Folder(str(tmp_path))
    folder.expect(listed)
    folder.finish([0], summary(listed))
    folder.forget([(0, 1)])
    assert folder.is_staged(manifest.listing_id(listed), "s")
