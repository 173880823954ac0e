"""kit-data and its sources: one that dies or changes, wrong bytes by MD5, the operator's folder, names, room, disks."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import socket
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.remote.ship.certificate import certificate
from tests.fakes import launcher
from tests.fakes.stagers import Feeder, Order, Stagers, tree
from tests.integration.rig import until
from tests.integration.store import KEY, RCLONE, SECRET, store
from tests.sockets import own_addresses

MakeStagers = Callable[[int], Stagers]
EXTENT = 4 << 20

reading: Any = launcher.load("kitdata.reading")
passing: Any = launcher.load("kitdata.passing")
plan: Any = launcher.load("kitdata.plan")
source_module: Any = launcher.load("kitdata.source")
Entry, SourceError = source_module.Entry, source_module.SourceError


@pytest.fixture
def make_stagers(tmp_path: Path) -> Iterator[MakeStagers]:
    made: list[Stagers] = []

    def make(count: int) -> Stagers:
        made.append(Stagers(count, tmp_path))
        return made[-1]

    yield make
    for stagers in made:
        stagers.close()


def big(folder: Path, extents: int, name: str = "big") -> int:
    """Make one file of this number of extents, and return its size."""
    (folder / name).write_bytes(random.Random(7).randbytes(extents * EXTENT))  # noqa: S311
    return extents * EXTENT


# From some place of a file on, the source does not answer, until a file opens the gate.
DIES = """
import os
from kitdata import folder, reading
from kitdata.source import SourceError
read = folder.Folder.read
def dead(self, entry, offset, length):
    if offset >= {after} and not os.path.exists({gate!r}):
        raise SourceError("source-lost", "it does not answer")
    return read(self, entry, offset, length)
folder.Folder.read = dead
reading.PATIENCE_S = {patience}
"""


def test_a_source_that_dies_ends_the_staging_and_what_came_stays(make_stagers: MakeStagers, tmp_path: Path) -> None:
    stagers = make_stagers(2)
    total = big(stagers.source, 10)
    for stager in stagers.all:
        stager.hook = DIES.format(after=4 * EXTENT, gate=str(tmp_path / "gate"), patience=1.0)
    failed = stagers.stage().end()["failed"]
    assert (failed["kind"], failed["text"]) == ("source-lost", "it does not answer")
    assert not list(stagers.all[0].files.iterdir())
    (tmp_path / "gate").touch()
    done = stagers.staged_when_free().answers[-1]["done"]
    assert done["read"] == total - 4 * EXTENT
    assert all(stager.tree() == tree(stagers.source) for stager in stagers.all)


def test_a_source_that_comes_back_in_time_is_read_on(make_stagers: MakeStagers, tmp_path: Path) -> None:
    stagers = make_stagers(2)
    total = big(stagers.source, 6)
    for stager in stagers.all:
        stager.hook = DIES.format(after=3 * EXTENT, gate=str(tmp_path / "gate"), patience=60.0)
    order = stagers.stage()
    for answer in order:
        if answer.get("progress", {}).get("at", {}).get("gpu2", 0) >= 3 * EXTENT:
            (tmp_path / "gate").touch()
    assert order.answers[-1]["done"]["read"] == total
    assert stagers.all[1].tree() == tree(stagers.source)


def test_a_source_that_one_host_alone_cannot_read_is_read_by_the_others(
    make_stagers: MakeStagers, tmp_path: Path
) -> None:
    stagers = make_stagers(3)
    total = big(stagers.source, 6)
    stagers.all[1].hook = DIES.format(after=0, gate=str(tmp_path / "gate"), patience=0.1)
    assert stagers.staged().answers[-1]["done"]["read"] == total
    assert stagers.all[1].tree() == tree(stagers.source)


def test_only_the_host_that_has_the_folder_reads_it(make_stagers: MakeStagers, tmp_path: Path) -> None:
    stagers = make_stagers(3)
    total = big(stagers.source, 3)
    for stager in (stagers.all[0], stagers.all[2]):
        stager.hook = "from kitdata import folder\nfolder.Folder.entries = folder.Folder.read = None\n"
    assert stagers.staged(source=stagers.folder(readers=["gpu2"])).answers[-1]["done"]["read"] == total
    (stagers.source / "more").write_bytes(b"x" * 100)
    stagers.staged(source=stagers.folder(readers=["gpu2"]), split="hosts")
    assert stagers.all[0].tree() | stagers.all[1].tree() | stagers.all[2].tree() == tree(stagers.source)


CHANGES = """
import os
from kitdata import folder
read, count = folder.Folder.read, []
def changing(self, entry, offset, length):
    if entry.path == "changes" and offset and len(count) < {times}:
        count.append(1)
        os.utime({path!r}, ns=(10**18 + len(count), 10**18 + len(count)))
    return read(self, entry, offset, length)
folder.Folder.read = changing
"""


@pytest.mark.parametrize("times", [1, 100])
def test_a_file_that_changes_is_read_again_some_times(make_stagers: MakeStagers, times: int) -> None:
    stagers = make_stagers(2)
    big(stagers.source, 2, "changes")
    (stagers.source / "stays").write_text("the same")
    stagers.all[0].hook = CHANGES.format(path=str(stagers.source / "changes"), times=times)
    # Only this host reads, so that the file changes as often as the test says.
    order = stagers.stage(source=stagers.folder(readers=["gpu1"]))
    end = order.end()
    assert order.all("changed")[0] == {"file": "changes"}
    if times == 1:
        assert "done" in end
        assert stagers.all[1].tree() == tree(stagers.source)
        seen = (stagers.all[1].files / "changes").stat().st_mtime_ns
        assert seen == (stagers.source / "changes").stat().st_mtime_ns
    else:
        assert end["failed"]["kind"] == "source-changed"
        assert "changes" in end["failed"]["text"]
        assert len(order.all("changed")) == 4


def test_a_file_that_goes_away_meanwhile_is_not_staged(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(2)
    for name in ("a", "b", "c"):
        (stagers.source / name).write_text(name)
    vanish = "import pathlib\nfrom kitdata import pieces\nbegin = pieces.Pieces.ready\n"
    vanish += (
        f"def ready(self):\n    pathlib.Path({str(stagers.source / 'b')!r}).unlink(missing_ok=True)\n    begin(self)\n"
    )
    stagers.all[0].hook = vanish + "pieces.Pieces.ready = ready\n"
    order = stagers.staged(source=stagers.folder(readers=["gpu1"]))
    assert order.all("changed") == [{"file": "b"}]
    assert [sorted(stager.tree()) for stager in stagers.all] == [["a", "c"], ["a", "c"]]


# Once, before the first piece is read, the source's disk is unmounted.
UNMOUNTED = """
import os
from kitdata import pieces
ready = pieces.Pieces.ready
def unmount(self):
    if os.path.exists({flag!r}):
        os.unlink({flag!r})
        os.rename({path!r}, {path!r} + ".away")
        os.mkdir({path!r})
    ready(self)
pieces.Pieces.ready = unmount
"""


@pytest.mark.parametrize("first", [False, True])
def test_a_disk_that_is_unmounted_meanwhile_removes_nothing(
    make_stagers: MakeStagers, tmp_path: Path, first: bool
) -> None:
    stagers = make_stagers(2)
    flag = tmp_path / "flag"
    stagers.all[0].hook = UNMOUNTED.format(flag=str(flag), path=str(stagers.source))
    only = stagers.folder(readers=["gpu1"])
    (stagers.source / "stays").write_text("the same")
    (stagers.source / "changes").write_text("before")
    if not first:
        stagers.staged(source=only)
    before = [stager.tree() for stager in stagers.all]
    (stagers.source / "changes").write_text("afterwards")
    flag.touch()
    assert stagers.stage_when_free(source=only).end()["failed"] == {
        "kind": "source-empty", "host": None,
        "text": "./source has no files now, so nothing was removed from the hosts",
    }  # fmt: skip
    assert [stager.tree() for stager in stagers.all] == before


PHANTOMS = """
from kitdata import folder
entries, count = folder.Folder.entries, []
def phantoms(self):
    count.append(1)
    yield from entries(self)
    yield folder.Entry({name}, 5, 10**18)
folder.Folder.version = lambda self, counted: None
folder.Folder.entries = phantoms
"""


@pytest.mark.parametrize(
    ("name", "kind", "text", "lists"),
    [
        ("'gone'", "source-changed", "gone cannot be read: ./source lists it, and then has no such file", 4),
        (
            "'caf\ufffd'",
            "source-name",
            "caf\ufffd of ./source cannot be read: the bytes of its name seem not to be UTF-8",
            4,
        ),
        (
            "'x%02d' % len(count)",
            "source-changed",
            "files of ./source go away all the time while they are read. The last one is x10",
            10,
        ),
    ],
)
def test_a_file_that_is_listed_and_never_there_removes_nothing(
    make_stagers: MakeStagers, name: str, kind: str, text: str, lists: int
) -> None:
    stagers = make_stagers(1)
    (stagers.source / "stays").write_text("the same")
    stagers.staged()
    stagers.all[0].kill()
    stagers.all[0].hook = PHANTOMS.format(name=name)
    order = stagers.stage()
    assert order.end()["failed"] == {"kind": kind, "host": None, "text": text}
    assert len(order.all("changed")) == lists
    assert stagers.all[0].tree() == tree(stagers.source)


MD5 = """
import hashlib, os
from kitdata import folder, opening
class Listed(folder.Folder):
    etags = {etags}
    def entries(self):
        for entry in super().entries():
            yield self.entry(entry.path) if entry.size < 5 << 20 else entry
    def entry(self, path):
        with open(os.path.join(self._path, path), "rb") as file:
            return super().entry(path)._replace(md5=hashlib.md5(file.read()).hexdigest())
    def read(self, entry, offset, length):
        data = super().read(entry, offset, length)
        if entry.path in {wrong!r} and offset + length == entry.size and not os.path.exists({mark!r} + entry.path):
            open({mark!r} + entry.path, "w").close()
            data = data[:-1] + bytes([data[-1] ^ 1])
        return data
opening.Folder = Listed
"""


@pytest.mark.parametrize("etags", [False, True])
def test_what_differs_from_the_md5_of_the_source_is_read_again(
    make_stagers: MakeStagers, tmp_path: Path, etags: bool
) -> None:
    stagers = make_stagers(2)
    big(stagers.source, 2, "large")
    (stagers.source / "small").write_text("small")
    (stagers.source / "right").write_text("right")
    for stager in stagers.all:
        stager.hook = MD5.format(etags=etags, wrong=["large", "small"], mark=str(tmp_path / "mark-"))
    order = stagers.staged()
    assert {event["file"] for event in order.all("changed")} == {"large", "small"}
    assert all(stager.tree() == tree(stagers.source) for stager in stagers.all)


def test_a_large_file_whose_end_came_with_a_changed_one_is_compared_later(
    make_stagers: MakeStagers, tmp_path: Path
) -> None:
    stagers = make_stagers(2)
    (stagers.source / "large").write_bytes(os.urandom(EXTENT + 1000))
    (stagers.source / "small").write_text("small")
    for stager in stagers.all:
        stager.hook = MD5.format(etags=False, wrong=["small"], mark=str(tmp_path / "mark-"))
    order = stagers.staged()
    assert order.all("changed") == [{"file": "small"}]
    assert order.all("lost") == []
    assert all(stager.tree() == tree(stagers.source) for stager in stagers.all)


def test_a_store_that_encrypts_with_kms_has_no_md5s(make_stagers: MakeStagers, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    stagers = make_stagers(2)
    for stager in stagers.all:
        stager.hook = f"from kitdata import rclone\nrclone.Rclone.__init__.__kwdefaults__['program'] = {RCLONE!r}\n"
    with store(tmp_path / "store", own_addresses(24)[23]) as running:
        running.kms = True
        files = {f"small/{number}": b"%d" % number for number in range(20)}
        running.put({**files, "large": b"l" * (6 << 20), "empty": b""})
        names = {"TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": running.url, "ACCESS_KEY_ID": KEY}
        env = {f"RCLONE_CONFIG_KIT_{name}": value for name, value in {**names, "SECRET_ACCESS_KEY": SECRET}.items()}
        label, ca = "s3://data", running.ca.read_text()
        source = {"kind": "rclone", "remote": "kit:data", "env": env, "label": label, "ca": ca}
        order = stagers.staged(source=source)
        assert order.all("changed") == []
        assert all(stager.tree() == tree(running.bucket) for stager in stagers.all)
        assert stagers.staged(source=source).all("plan")[0]["new"] == 0


def test_the_operators_folder_is_read_over_its_connection(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(3)
    files = {f"folder/{number}": os.urandom(number * 50_000) for number in range(60)}
    order = stagers.stage(source={"kind": "feed", "label": "~/set"})
    feed = stagers.order(stagers.all[0], op="feed", id=stagers.id)
    feeder = Feeder(feed, files)
    done = order.end()["done"]
    assert (done["files"], done["read"]) == (60, sum(map(len, files.values())))
    assert all(stager.tree() == files for stager in stagers.all)
    # Files that fit into one piece come together.
    together = [question["files"] for question in feeder.questions if "files" in question]
    assert len({path for part in together for path, _, _ in part}) > 40
    assert len(together) < 30


def test_a_small_file_of_the_operator_that_is_gone_is_left_out(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(2)
    files = {f"{number:04}": b"%d" % number for number in range(3000)}
    order = stagers.stage(source={"kind": "feed", "label": "~/set"})
    feed = stagers.order(stagers.all[0], op="feed", id=stagers.id)

    def lose(question: dict[str, Any]) -> None:
        if "files" in question:
            files.pop("0007", None)

    feeder = Feeder(feed, files, lose)
    done = order.end()["done"]
    assert order.all("changed") == [{"file": "0007"}]
    assert done["files"] == 2999
    assert all(stager.tree() == files for stager in stagers.all)
    # kit takes no longer question. After the failed one, the lead reads each file alone, to see which one is gone.
    assert max(len(json.dumps(question)) for question in feeder.questions) < 1 << 16
    assert any(question.get("read") == "0007" for question in feeder.questions)


def test_the_operator_who_comes_back_feeds_on(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(2)
    files = {str(number): os.urandom(EXTENT) for number in range(6)}
    order = stagers.stage(source={"kind": "feed", "label": "~/set"})
    feed = stagers.order(stagers.all[0], op="feed", id=stagers.id)

    def end(question: dict[str, Any]) -> None:
        if question.get("read") == "3":
            feed.process.kill()

    Feeder(feed, files, end)
    feed.process.wait()
    again = stagers.order(stagers.all[0], op="feed", id=stagers.id)
    Feeder(again, files)
    assert "done" in order.end(), order.answers
    assert stagers.all[1].tree() == files


def test_a_list_that_all_hosts_have_does_not_travel(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(2)
    files = {"a": b"1", "d/b": b"2"}

    def stage() -> tuple[Order, list[int]]:
        order = stagers.stage_when_free(source={"kind": "feed", "label": "~/set"})
        feeder = Feeder(stagers.order(stagers.all[0], op="feed", id=stagers.id), files)
        assert "done" in order.end(), order.answers
        assert all(stager.tree() == files for stager in stagers.all)
        return order, [question["list"] for question in feeder.questions if "list" in question]

    assert stage()[1] == [3, 2]
    order, questions = stage()
    assert questions == [3]
    assert order.all("listing")[-1] == {"files": 2, "bytes": 2}
    plan, done = order.all("plan")[0], order.answers[-1]["done"]
    assert plan["hosts"] == {name: {"need": 0, "have": 2} for name in ("gpu1", "gpu2")}
    assert (done["files"], done["bytes"], done["new"], done["removed"]) == (2, 2, 0, 0)
    # A host that lost a file gets it again, and the list with it.
    (stagers.all[1].files / "a").unlink()
    assert stage()[1] == [3, 2]
    assert stage()[1] == [3]
    files["c"] = b"3"
    assert stage()[1] == [3, 2]


@pytest.mark.parametrize("old", [("knows",), ("knows", "packs")], ids=" ".join)
def test_an_older_kit_sends_its_list(
    make_stagers: MakeStagers, monkeypatch: pytest.MonkeyPatch, old: tuple[str, ...]
) -> None:
    for what in old:
        monkeypatch.setattr(Feeder, what, False)
    stagers = make_stagers(2)
    files = {"a": b"1", "d/b": b"2"}
    order = stagers.stage(source={"kind": "feed", "label": "~/set"})
    feeder = Feeder(stagers.order(stagers.all[0], op="feed", id=stagers.id), files)
    assert "done" in order.end(), order.answers
    assert stagers.all[1].tree() == files
    assert [question["list"] for question in feeder.questions if "list" in question] == [3]


def test_a_source_with_very_many_files_sends_its_list_at_once(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(2)
    for stager in stagers.all:
        stager.hook = "from kitdata import member\nmember.MOST_KNOWN = 3\n"
    for number in range(9):
        (stagers.source / str(number)).touch()
    stagers.staged()
    assert stagers.all[1].tree() == tree(stagers.source)
    done = stagers.staged_when_free().answers[-1]["done"]
    assert (done["files"], done["new"]) == (9, 0)


@pytest.mark.parametrize(
    "answer",
    [
        {"version": None}, {"version": ["0" * 15, 1, 1]}, {"version": [5, 1, 1]}, {"version": ["0" * 16, 1]},
        {"version": ["0" * 16, -1, 1]}, {"version": ["0" * 16, 1, True]}, {"counted": [1]}, {"counted": 5},
        {"counted": [1, 1 << 61]},
    ],
    ids=repr,
)  # fmt: skip
def test_a_version_that_is_none(answer: dict[str, Any]) -> None:
    with pytest.raises(launcher.load("kitdata.source").SourceError, match="something else than a list"):
        asked(answer)


def asked(*answers: dict[str, Any]) -> tuple[Any, list[tuple[int, int]]]:
    """Return what a stager takes for the version after these answers of the operator's kit, and what was counted."""
    feed = launcher.load("kitdata.feed").Feed("~/set", 5.0)
    written = io.BytesIO()
    for answer in answers:
        launcher.load("kitdata.feed").write_frame(written, answer)
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("rwb", buffering=0) as stream:
        thread = threading.Thread(target=feed.serve, args=(stream,))
        thread.start()
        counts: list[tuple[int, int]] = []
        try:
            # The first byte of the question says that the feed waits for answers.
            answering = threading.Thread(target=lambda: (theirs.recv(1), theirs.sendall(written.getvalue())))
            answering.start()
            version = feed.version(lambda files, size: counts.append((files, size)))
            answering.join()
            return version, counts
        finally:
            theirs.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_version_comes_after_what_was_counted() -> None:
    version, counts = asked({"counted": [1, 10]}, {"counted": [2, 30]}, {"version": ["0" * 16, 3, 40]})
    assert (version, counts) == (("0" * 16, 3, 40), [(1, 10), (2, 30)])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        zlib.compress(b"[]")[:-1],
        zlib.compress(b"{}"),
        zlib.compress(b"[" * 10**6),
        zlib.compress(b"[" + b" " * (1 << 24) + b"]"),
    ],
)
def test_a_packed_list_that_is_none(data: bytes) -> None:
    feed = launcher.load("kitdata.feed")
    with pytest.raises(launcher.load("kitdata.source").SourceError, match="something else than a list"):
        feed._unpacked(data)


def test_without_the_operators_kit_the_source_is_lost(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(1)
    stagers.all[0].hook = "from kitdata import feed\nfeed.Feed.__init__.__defaults__ = (0.5,)\n"
    failed = stagers.stage(source={"kind": "feed", "label": "~/set"}).end()["failed"]
    assert failed["kind"] == "source-lost"
    assert "~/set" in failed["text"]


def test_names_that_are_no_utf8_come_too(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(2)
    name = os.fsdecode(b"caf\xe9")
    (stagers.source / name).write_text("x")
    (stagers.source / "näm\te\n").write_text("y")
    stagers.staged()
    assert stagers.all[1].tree() == tree(stagers.source)
    assert stagers.order(stagers.all[1], op="verify").end()["verified"]["wrong"] == []


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside", "a//b", "a/../../b", "x" * 256, "a\0b", ""])
def test_a_path_that_no_host_can_have_is_refused(make_stagers: MakeStagers, path: str) -> None:
    stagers = make_stagers(1)
    hook = "from kitdata import folder\nfrom kitdata.source import Entry\n"
    stagers.all[0].hook = hook + f"folder.Folder.entries = lambda self: iter([Entry({path!r}, 1, 1)])\n"
    assert stagers.stage().end()["failed"]["kind"] == "source-name"
    assert not list(stagers.all[0].files.iterdir())


def test_a_source_that_is_not_there_is_missing(make_stagers: MakeStagers, tmp_path: Path) -> None:
    stagers = make_stagers(2)
    failed = stagers.stage(source=stagers.folder(path=str(tmp_path / "nothing"))).end()["failed"]
    assert (failed["kind"], failed["host"]) == ("source-missing", "gpu1")


def test_more_data_than_room_or_memory_is_refused_before_the_first_byte(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(2)
    total = big(stagers.source, 2)
    failed = stagers.stage(stage="ram", size=total - 1).end()["failed"]
    assert (failed["kind"], failed["host"]) == ("memory", "gpu1")
    assert failed["text"] == "the data needs 8.4 MB of memory on gpu1, and size: allows 8.4 MB"
    assert "done" in stagers.stage_when_free(stage="ram", size=total).end()
    big(stagers.source, 1, "more")
    stagers.all[1].kill()
    stagers.all[1].hook = "from kitdata import disk\ndisk.Folder.free = lambda self: (1000, 1000)\n"
    order = stagers.stage_when_free()
    assert order.end()["failed"] == {
        "kind": "room", "host": "gpu2", "text": "what must come to gpu2 takes 4.2 MB, and 1.0 kB is free there",
    }  # fmt: skip
    assert order.all("progress") == []
    # What was there stays.
    assert sorted(stagers.all[1].tree()) == ["big"]


# The disk is full at some point, also where another program has filled it.
FULL = """
import errno
from kitdata import disk
put, count = disk.Folder._put, []
def full(self, *arguments):
    count.append(1)
    if len(count) > 2:
        raise OSError(errno.ENOSPC, "No space left on device")
    return put(self, *arguments)
disk.Folder._put = full
"""


def test_a_host_whose_disk_is_full_is_lost_and_the_others_finish(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(3)
    big(stagers.source, 8)
    stagers.all[1].hook = FULL
    order = stagers.staged()
    assert order.answers[-1]["done"]["lost"] == ["gpu2"]
    assert order.all("lost") == [{"host": "gpu2", "text": "its disk failed: No space left on device"}]
    assert stagers.all[2].tree() == tree(stagers.source)
    assert not (stagers.all[1].folder / "staged.json").exists()


def test_full_disks_everywhere_fail_as_such(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(2)
    big(stagers.source, 8)
    for stager in stagers.all:
        stager.hook = FULL
    assert stagers.stage().end()["failed"]["kind"] == "disk"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_real_full_file_system(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(2)
    big(stagers.source, 4)
    folder = stagers.all[1].folder
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", folder], check=False)
    if mounted.returncode:
        pytest.skip("this machine does not let root mount")
    try:
        failed = stagers.stage().end()["failed"]
        assert (failed["kind"], failed["host"]) == ("room", "gpu2")
        # It looks as if there were room, and another program fills it.
        stagers.all[1].kill()
        stagers.all[1].hook = "from kitdata import disk\ndisk.Folder.free = lambda self: (1 << 40, 1 << 40)\n"
        order = stagers.stage_when_free()
        assert order.end()["done"]["lost"] == ["gpu2"]
        assert os.strerror(errno.ENOSPC) in order.all("lost")[0]["text"]
        assert stagers.all[0].tree() == tree(stagers.source)
    finally:
        stagers.all[1].kill()
        subprocess.run(["umount", folder], check=True)


def test_verify_names_what_is_wrong(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(1)
    (host,) = stagers.all
    host.start()
    assert stagers.order(host, op="verify").end()["failed"]["kind"] == "not-staged"
    for number in range(30):
        (stagers.source / f"{number:02}").write_bytes(bytes(1000))
    total = 30_000 + big(stagers.source, 3)
    stagers.staged()
    host.wait_until_free()
    assert stagers.order(host, op="verify").end() == {"verified": {"files": 31, "bytes": total, "wrong": []}}
    with (host.files / "big").open("r+b") as file:
        file.seek(2 * EXTENT)
        file.write(b"wrong")
    (host.files / "00").unlink()
    (host.files / "01").write_bytes(b"short")
    (host.files / "extra").touch()
    wrong = stagers.order(host, op="verify").end()["verified"]["wrong"]
    assert {row["file"]: row["why"] for row in wrong} == {
        "00": "missing", "01": "size", "big": "bytes", "extra": "extra",
    }  # fmt: skip
    allowed = stagers.order(host, op="verify", write=True).end()["verified"]["wrong"]
    assert "extra" not in {row["file"] for row in allowed}
    for number in range(30):
        (host.files / f"{number:02}").unlink(missing_ok=True)
    verified = stagers.order(host, op="verify").end()["verified"]
    assert (len(verified["wrong"]), verified["more"]) == (20, 12)


def test_what_verify_found_wrong_comes_again(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(2)
    big(stagers.source, 2)
    (stagers.source / "small").write_text("small")
    stagers.staged()
    damaged = stagers.all[1]
    about = (damaged.files / "big").stat()
    with (damaged.files / "big").open("r+b") as file:
        file.write(b"wrong")
    os.utime(damaged.files / "big", ns=(about.st_mtime_ns, about.st_mtime_ns))
    damaged.wait_until_free()
    for _ in range(2):
        wrong = stagers.order(damaged, op="verify").end()["verified"]["wrong"]
        assert wrong == [{"file": "big", "why": "bytes"}]
    order = stagers.staged_when_free()
    assert order.all("plan")[0]["hosts"]["gpu2"]["need"] == 2 * EXTENT
    # From the other host.
    assert order.answers[-1]["done"]["read"] == 0
    assert damaged.tree() == tree(stagers.source)


class Sequence:
    """A source that gives these answers in turn: bytes, or an error."""

    label = "a source"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def read(self, entry: Any, offset: int, length: int) -> bytes:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bytes(answer)

    def entry(self, path: str) -> Any:
        return Entry(path, 1, 2)


def read_one(source: Sequence, waits: list[float]) -> Any:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock[0] += seconds

    rules = reading.Rules(passing.Bucket(0), 1, lambda _: None, lambda: False, sleep, lambda: clock[0])
    buffer = passing.Buffer(3, 1)
    reading.Reader(source, rules).fill([Entry("a", 3, 1)], plan.Piece(((0, 0),), 3, 1, 0), buffer)
    return bytes(buffer.data)


def test_a_source_that_does_not_answer_gets_more_tries_with_longer_waits() -> None:
    waits: list[float] = []
    lost = SourceError("source-lost", "gone")
    assert read_one(Sequence(lost, lost, lost, b"abc"), waits) == b"abc"
    assert waits == [0.25, 0.5, 1.0]


def test_a_source_that_never_answers_is_given_up_in_half_a_minute() -> None:
    waits: list[float] = []
    with pytest.raises(SourceError, match="gone"):
        read_one(Sequence(*[SourceError("source-lost", "gone")] * 100), waits)
    assert 20 < sum(waits) <= reading.PATIENCE_S


def test_a_source_that_refuses_gets_no_second_try() -> None:
    waits: list[float] = []
    with pytest.raises(SourceError, match="no"):
        read_one(Sequence(SourceError("source-refused", "no")), waits)
    assert waits == []


@pytest.mark.parametrize("answer", [b"ab", SourceError("source-changed", "x"), SourceError("source-missing", "x")])
def test_a_read_that_is_not_what_the_list_says_gives_the_newest_entry(answer: Any) -> None:
    with pytest.raises(reading.Changed) as raised:
        read_one(Sequence(answer), [])
    assert raised.value.entry == Entry("a", 1, 2)


# A verification reads no file until there is a file that opens the gate.
SLOW_CHECK = """
import os, time
from kitdata import verify
check = verify._check
def slow(*arguments):
    open({mark!r}, "w").close()
    while not os.path.exists({gate!r}):
        time.sleep(0.01)
    return check(*arguments)
verify._check = slow
"""


def test_nothing_is_staged_during_a_verification(make_stagers: MakeStagers, tmp_path: Path) -> None:
    """Otherwise new files would differ from the old manifest, and be marked as damaged."""
    stagers = make_stagers(1)
    (host,) = stagers.all
    mark = tmp_path / "mark"
    host.hook = SLOW_CHECK.format(mark=str(mark), gate=str(stagers.gate))
    (stagers.source / "file").write_text("before")
    stagers.staged()
    host.wait_until_free()
    verified = stagers.order(host, op="verify")
    until("the verification has begun", mark.exists)
    refused = {"kind": "verifying", "host": None, "text": "this data set is being verified here"}
    cert, key = certificate()
    words = {"address": host.address, "certificate": cert, "key": key.reveal().decode()}
    assert stagers.order(host, op="join", id="other", **words).end() == {"failed": refused}
    assert stagers.order(host, op="verify").end() == {"failed": refused}
    stagers.release()
    assert verified.end()["verified"]["wrong"] == []
    (stagers.source / "file").write_text("afterwards")
    stagers.staged()
    host.wait_until_free()
    assert stagers.order(host, op="verify").end()["verified"]["wrong"] == []
