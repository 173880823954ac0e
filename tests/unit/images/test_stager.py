"""kit-data as real processes on this machine: one data set on all hosts, read once, and what comes the second time."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.stagers import Order, Stager, Stagers, tree

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


def big(folder: Path, megabytes: int) -> int:
    """Make one file, and return its size."""
    (folder / "big").write_bytes(random.Random(7).randbytes(megabytes << 20))  # noqa: S311
    return megabytes << 20


def until_came(order: Order, host: str, count: int) -> None:
    """Wait until this number of bytes has come to the host."""
    for answer in order:
        if answer.get("progress", {}).get("at", {}).get(host, 0) >= count:
            return
    raise AssertionError(order.answers)


def journaled(stager: Stager) -> int:
    """Return how many extents the host's journal lists."""
    lines = (stager.folder / "coming" / "done").read_text().splitlines()[1:]
    return sum(len(json.loads(line)) for line in lines)


def test_after_a_kill_of_all_hosts_nothing_that_came_is_read_again(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(2)
    total = big(stagers.source, 40)
    stagers.hold(12 << 20)
    order = stagers.stage()
    until_came(order, "gpu2", 8 << 20)
    for stager in stagers.all:
        stager.kill()
    stagers.release()
    assert "done" not in order.end()
    here = [journaled(stager) for stager in stagers.all]
    assert min(here) >= 2
    again = stagers.staged().answers
    plan = next(answer["plan"] for answer in again if "plan" in answer)
    assert [plan["hosts"][f"gpu{n + 1}"]["have"] for n in range(2)] == [count * (4 << 20) for count in here]
    done = again[-1]["done"]
    assert done["read"] == plan["read"] <= total - max(here) * (4 << 20)
    assert all(stager.tree() == tree(stagers.source) for stager in stagers.all)


def test_a_member_that_is_killed_is_lost_and_the_others_finish(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(3)
    total = big(stagers.source, 40)
    stagers.hold(12 << 20)
    order = stagers.stage()
    until_came(order, "gpu2", 8 << 20)
    stagers.all[1].kill()
    stagers.release()
    done = order.end()["done"]
    assert (done["hosts"], done["lost"]) == (["gpu1", "gpu3"], ["gpu2"])
    assert order.all("lost")[0]["host"] == "gpu2"
    for stager in (stagers.all[0], stagers.all[2]):
        assert stager.tree() == tree(stagers.source)
    here = journaled(stagers.all[1])
    assert here >= 2
    # The host comes back: it gets the rest from the others, and nothing is read from the source.
    back = stagers.staged()
    assert back.answers[-1]["done"]["read"] == 0
    assert back.all("plan")[0]["hosts"]["gpu2"] == {"need": total - here * (4 << 20), "have": here * (4 << 20)}
    assert stagers.all[1].tree() == tree(stagers.source)


def test_after_a_kill_of_the_lead_the_members_keep_what_came_and_join_again(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(3)
    total = big(stagers.source, 40)
    stagers.hold(12 << 20)
    order = stagers.stage()
    until_came(order, "gpu3", 8 << 20)
    stagers.all[0].kill()
    stagers.release()
    assert "done" not in order.end()
    here = max(journaled(stager) for stager in stagers.all)
    assert stagers.all[1].process is not None
    running = stagers.all[1].process.pid
    done = stagers.staged().answers[-1]["done"]
    assert done["read"] <= total - here * (4 << 20)
    assert stagers.all[1].process.pid == running
    assert all(stager.tree() == tree(stagers.source) for stager in stagers.all)


def test_a_member_that_is_silent_is_lost_and_the_others_finish(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(3)
    big(stagers.source, 24)
    # In place of 15 s. It beats twice a second.
    stagers.all[0].hook = "from kitdata import links; links.SILENCE_S = 2.0"
    stagers.hold(8 << 20)
    order = stagers.stage()
    until_came(order, "gpu2", 4 << 20)
    stagers.all[1].signal(signal.SIGSTOP)
    stagers.release()
    done = order.end()["done"]
    assert (done["hosts"], done["lost"]) == (["gpu1", "gpu3"], ["gpu2"])
    assert "silent" in order.all("lost")[0]["text"]
    assert stagers.all[2].tree() == tree(stagers.source)
    # It wakes up, finds its lead gone, and takes part again.
    stagers.all[1].signal(signal.SIGCONT)
    assert stagers.staged_when_free().answers[-1]["done"]["lost"] == []
    assert stagers.all[1].tree() == tree(stagers.source)


WRONG = """
from kitdata import passing
send, count = passing.Sender._send, []
def wrong(self, item, buffer):
    count.append(item.piece)
    if len(count) == {at}:
        buffer.wait(buffer.size, 1)
        data = bytearray(buffer.data)
        data[len(data) // 2] ^= 1
        other = passing.Buffer(buffer.size, buffer.parts, bytes(data))
        other.finish(buffer.sums)
        buffer = other
    send(self, item, buffer)
passing.Sender._send = wrong
"""


def test_a_piece_with_wrong_bytes_comes_again(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(3)
    total = fill(stagers.source, 30, 1 << 20)
    stagers.all[1].hook = WRONG.format(at=2)
    order = stagers.staged()
    wrong = order.all("wrong")
    assert wrong
    assert {event["host"] for event in wrong} <= {"gpu1", "gpu3"}
    assert wrong[0]["file"].startswith("part")
    # Perhaps another host reads that piece, instead of the one that may have altered it.
    assert total <= order.answers[-1]["done"]["read"] <= total + (4 << 20)
    assert all(stager.tree() == tree(stagers.source) for stager in stagers.all)


def test_a_host_that_sends_only_wrong_bytes_takes_no_other_one_out(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(3)
    fill(stagers.source, 30, 1 << 20)
    stagers.all[0].hook = WRONG.format(at="len(count)")
    order = stagers.staged()
    assert order.answers[-1]["done"]["lost"] == []
    assert {event["host"] for event in order.all("wrong")} <= {"gpu2", "gpu3"}
    assert all(stager.tree() == tree(stagers.source) for stager in stagers.all)


def test_a_host_that_gets_only_wrong_bytes_is_lost(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(2)
    fill(stagers.source, 3, 1000)
    stagers.all[0].hook = WRONG.format(at="len(count)")
    # The other one has nobody else to get them from.
    order = stagers.staged(source=stagers.folder(readers=["gpu1"]))
    assert order.answers[-1]["done"]["lost"] == ["gpu2"]
    assert "wrong bytes" in order.all("lost")[0]["text"]


def test_new_changed_and_removed_files_alone_the_second_time(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(2)
    fill(stagers.source, 20, 5000)
    (stagers.source / "gone" / "deep").mkdir(parents=True)
    (stagers.source / "gone" / "deep" / "file").write_text("x")
    (stagers.source / "folder").write_text("a file that becomes a folder")
    stagers.staged()
    (stagers.source / "gone" / "deep" / "file").unlink()
    (stagers.source / "folder").unlink()
    (stagers.source / "folder").mkdir()
    (stagers.source / "folder" / "new").write_text("new")
    (stagers.source / "part0" / "file 0").write_text("changed")
    order = stagers.staged()
    assert order.all("plan")[0] | {"hosts": 0} == {
        "files": 21, "bytes": sum(map(len, tree(stagers.source).values())), "new": 2, "removed": 2, "read": 10,
        "hosts": 0,
    }  # fmt: skip
    assert all(stager.tree() == tree(stagers.source) for stager in stagers.all)
    assert not (stagers.all[0].files / "gone").exists()
    # Somebody has damaged a host's copy: what has another size or time comes again, from the other host.
    (stagers.all[1].files / "folder" / "new").write_text("damaged")
    assert stagers.staged().answers[-1]["done"] | {"seconds": 0} == {
        "files": 21, "bytes": sum(map(len, tree(stagers.source).values())), "new": 1, "removed": 0, "read": 0,
        "seconds": 0, "hosts": ["gpu1", "gpu2"], "lost": [],
    }  # fmt: skip
    assert stagers.all[1].tree() == tree(stagers.source)
    # A new host gets all of it from the others.
    for path in (stagers.all[0].folder / "manifest.json", stagers.all[0].folder / "staged.json"):
        path.unlink()
    for path in stagers.all[0].files.rglob("*"):
        if path.is_file():
            path.unlink()
    assert stagers.staged().answers[-1]["done"]["read"] == 0
    assert stagers.all[0].tree() == tree(stagers.source)


def test_with_split_each_file_is_on_one_host_which_reads_it_itself(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(3)
    for number in range(12):
        (stagers.source / f"shard-{number:02}").write_bytes(bytes([number]) * 1_000_000)
    order = stagers.staged(split="hosts")
    trees = [stager.tree() for stager in stagers.all]
    assert [len(one) for one in trees] == [4, 4, 4]
    assert trees[0] | trees[1] | trees[2] == tree(stagers.source)
    assert order.answers[-1]["done"]["read"] == 12_000_000
    assert stagers.all[1].summary()["files"] == 4
    assert stagers.all[1].summary()["among"] == "gpu1 gpu2 gpu3"
    again = stagers.staged(split="hosts")
    assert again.all("plan")[0]["new"] == 0
    assert [stager.tree() for stager in stagers.all] == trees
    # One host fewer: the others share its files, and keep theirs.
    stagers.staged(stagers.all[:2], split="hosts")
    smaller = [stager.tree() for stager in stagers.all[:2]]
    assert [len(one) for one in smaller] == [6, 6]
    assert smaller[0].items() >= trees[0].items()
    assert [stager.summary()["among"] for stager in stagers.all[:2]] == ["gpu1 gpu2"] * 2
    # All on every host: what a host lacks comes from the others.
    assert stagers.staged(stagers.all[:2]).answers[-1]["done"]["read"] == 0
    assert all(stager.tree() == tree(stagers.source) for stager in stagers.all[:2])


def test_a_folder_without_files_removes_nothing(make_stagers: MakeStagers) -> None:
    """Its disk may not be mounted. A run may be reading what is staged."""
    stagers = make_stagers(2)
    fill(stagers.source, 5, 1000)
    before = stagers.staged() and stagers.all[1].tree()
    shutil.rmtree(stagers.source)
    stagers.source.mkdir()
    assert stagers.stage().end()["failed"] == {
        "kind": "source-empty", "host": None,
        "text": "./source has no files now, so nothing was removed from the hosts",
    }  # fmt: skip
    assert [stager.tree() for stager in stagers.all] == [before] * 2
    # What was never there can be empty.
    for stager in stagers.all:
        shutil.rmtree(stager.folder)
        stager.files.mkdir(parents=True)
    assert stagers.staged().answers[-1]["done"]["files"] == 0


def test_a_folder_without_files_keeps_what_an_interrupted_staging_brought(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(2)
    total = big(stagers.source, 40)
    stagers.hold(12 << 20)
    order = stagers.stage()
    until_came(order, "gpu2", 4 << 20)
    stagers.order(stagers.all[0], op="stop", id=stagers.id).end()
    order.end()
    stagers.release()
    here = [journaled(stager) for stager in stagers.all]
    mounted = stagers.source.rename(stagers.source.with_name("mounted"))
    stagers.source.mkdir()
    assert stagers.stage_when_free().end()["failed"]["kind"] == "source-empty"
    assert [journaled(stager) for stager in stagers.all] == here
    stagers.source.rmdir()
    mounted.rename(stagers.source)
    assert stagers.staged_when_free().answers[-1]["done"]["read"] <= total - max(here) * (4 << 20)


def test_hosts_that_keep_their_files_still_name_who_shares_them(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(2)
    (stagers.source / "only").write_bytes(b"only")
    stagers.staged(stagers.all[:1], split="hosts")
    stagers.staged(split="hosts")
    assert stagers.all[0].tree() == tree(stagers.source)
    assert [stager.summary()["among"] for stager in stagers.all] == ["gpu1 gpu2"] * 2


def test_stop_keeps_what_came(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(2)
    big(stagers.source, 40)
    stagers.hold(12 << 20)
    order = stagers.stage()
    until_came(order, "gpu2", 4 << 20)
    watch = stagers.order(stagers.all[0], op="watch")
    assert watch.until("request")["source"] == "./source"
    assert watch.until("plan")["files"] == 1
    assert stagers.order(stagers.all[0], op="hello").end() == {
        "hello": {"version": 1, "staging": stagers.id, "lead": True, "mounted": False}
    }
    busy = stagers.order(stagers.all[1], op="join", id="other", address="127.0.0.1", certificate="", key="")
    assert busy.end()["failed"]["kind"] == "busy"
    assert stagers.order(stagers.all[1], op="verify").end()["failed"]["kind"] == "busy"
    assert stagers.order(stagers.all[0], op="stop", id=stagers.id).end() == {"stopped": True}
    assert order.end()["failed"]["kind"] == watch.end()["failed"]["kind"] == "stopped"
    assert not (stagers.all[0].folder / "staged.json").exists()
    stagers.release()
    here = journaled(stagers.all[1])
    assert here >= 1
    assert stagers.staged_when_free().answers[-1]["done"]["read"] <= (40 << 20) - here * (4 << 20)


def test_a_staging_goes_on_without_the_process_that_ordered_it(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(2)
    big(stagers.source, 24)
    stagers.hold(8 << 20)
    order = stagers.stage()
    until_came(order, "gpu2", 4 << 20)
    order.close()
    watch = stagers.order(stagers.all[0], op="watch")
    assert watch.until("plan")["files"] == 1
    stagers.release()
    assert "done" in watch.end()
    assert stagers.all[1].tree() == tree(stagers.source)
    # Also after its end, until the stager ends itself.
    assert "done" in stagers.order(stagers.all[0], op="watch").end()


def test_the_limit_holds(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(2)
    big(stagers.source, 8)
    done = stagers.staged(limit=4 << 20).answers[-1]["done"]
    # Each host reads half of it, and sends half of it: 1 s at 4 MiB a second, and never less.
    assert done["seconds"] >= 0.9
