"""kit pull and kit runs rm on hosts whose folders are on this machine, with the real reader."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kit.cli.text.results import pull_notes, pulled
from kit.errors import ArrayMeant, InputError, NotReadyError, StepError, UnreachableError
from kit.events import HostStep, Note
from kit.flows.context import Context
from kit.flows.run import pull as flow
from kit.flows.run.folders import remove_runs
from kit.flows.run.pull import pull
from kit.model.host import Host
from kit.model.results import Clock, Entry, SharedListing
from kit.model.values import replace
from kit.plan.run import pulling
from kit.remote.results import far, store
from kit.remote.results.store import HomeError
from kit.remote.ssh.transport import Completed, Live, Transport
from tests.fakes.fleet import FakeTransport, Fleet
from tests.fakes.reporter import Remembering

RUN, OTHER = "20261121-101500-3fa2", "20261120-101500-bbbb"


BEGAN = 1_795_255_200.5


class Moved(FakeTransport):
    """A host whose /opt/kit is a folder of this machine, as /mnt of its node is.

    `cut_after` ends the next stream after that many bytes. The nodes of the hosts in `stopped` do not run.
    """

    root: Path
    cut_after: dict[str, int]
    stopped: set[str]

    def _local(self, argv: Sequence[str]) -> list[str]:
        place = f"{self.root}/{self.host.name}"
        return [
            re.sub("^/mnt", f"{place}/mnt", word.replace("/opt/kit", place)) if "\n" not in word else word
            for word in argv
        ]

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        if "kit-node" in argv:
            if self.host.name in self.stopped:
                return Completed(
                    code=1, stdout=b"", stderr=b"Error response from daemon: No such container: kit-lab-mpihead\n"
                )
            inner = argv[list(argv).index("--") + 1 :]
            return self._locally(self._local(inner), stdin, timeout_s)
        if "kit-runs" in argv:
            return self._locally(self._local(argv), stdin, timeout_s)
        return super().run(self._local(argv), stdin=stdin, timeout_s=timeout_s)

    def stream(self, argv: Sequence[str], live: Live) -> int:
        limit = self.cut_after.pop(self.host.name, None)
        if limit is None:
            return super().stream(self._local(argv), live)
        left = limit

        def out(data: bytes) -> None:
            live.out(data[:left])

        super().stream(self._local(argv), replace(live, out=out))
        raise UnreachableError("the connection broke", host=self.host.name)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kit keep what pulls stored in the test's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    for host, files in {
        "gpu1": {"output/model": "weights", "output/metrics": "1", "checkpoints/one": "c1"},
        "gpu2": {"output/metrics": "2", "work/only2": "x"},
    }.items():
        for name, text in files.items():
            path = tmp_path / "hosts" / host / "lab/var/runs" / RUN / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    run = tmp_path / "hosts/gpu1/lab/var/runs" / RUN
    (run / "log").write_bytes(b"\x1e1 3 o . 6\nhello\n\x1e2 - m . 4\nmpi\n")
    (tmp_path / "hosts/gpu1/lab/var/runs" / OTHER).mkdir()
    return tmp_path / "hosts"


@pytest.fixture
def cut_after() -> dict[str, int]:
    return {}


@pytest.fixture
def stopped() -> set[str]:
    return set()


@pytest.fixture
def context(fleet: Fleet, reporter: Remembering, hosts: Path, cut_after: dict[str, int], stopped: set[str]) -> Context:
    def connect(host: Host) -> Moved:
        transport = Moved(fleet.vms[host.name])
        transport.root, transport.cut_after, transport.stopped = hosts, cut_after, stopped
        return transport

    return replace(fleet.context(reporter, names=["gpu1", "gpu2"]), connect=connect)


def tree(folder: Path) -> dict[str, str]:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".gitignore")
    return {str(path.relative_to(folder)): path.read_text() for path in paths}


ALL = {
    "checkpoints/one": "c1",
    "gpu1/output/metrics": "1",
    "gpu2/output/metrics": "2",
    "log.txt": "3 | hello\nmpi\n",
    "output/model": "weights",
    "work/only2": "x",
}


def test_everything_comes_home_once(context: Context, tmp_path: Path, hosts: Path) -> None:
    result = pull(context, [], here=tmp_path)
    home = tmp_path / f"kit-{RUN}"
    assert result.folder == str(home)
    assert tree(home) == ALL
    assert (home / ".gitignore").read_text() == "*\n"
    assert {host.host: host.files for host in result.hosts} == {"gpu1": 4, "gpu2": 2}
    again = pull(context, [RUN], here=tmp_path)
    assert {host.host: (host.files, host.unchanged) for host in again.hosts} == {"gpu1": (0, 4), "gpu2": (0, 2)}
    (hosts / "gpu1/lab/var/runs" / RUN / "output/model").write_text("better")
    third = pull(context, [RUN[:12]], here=tmp_path)
    assert [host.files for host in third.hosts] == [1, 0]
    assert (home / "output/model").read_text() == "better"


def test_the_id_of_an_array_means_its_runs_on_hosts(context: Context, tmp_path: Path, hosts: Path) -> None:
    array = "20261119-101500-cccc"
    for index, run in enumerate((OTHER, RUN)):
        folder = hosts / "gpu1/lab/var/runs" / run
        member = {"of": array, "index": index, "size": 3}
        (folder / "record.json").write_text(record(None, id=run, array=member))
        (folder / "end.json").write_text(json.dumps({"ended": BEGAN + 100, "exit_code": 0}))
    words = [array[:10], "output", str(tmp_path / "home")]
    with pytest.raises(ArrayMeant) as caught:
        pull(context, words, here=tmp_path)
    assert caught.value.runs == (OTHER, RUN)
    each = flow.words_of_each(caught.value.runs, words)
    assert each == [[run, "output", str(tmp_path / "home" / f"kit-{run}")] for run in (OTHER, RUN)]
    assert flow.words_of_each([RUN], [array]) == [[RUN]]
    # These words mean the same as the one that was written: a folder at home.
    (words,) = flow.words_of_each([RUN], [array, "log", "./output"])
    assert pulling.request(words) == pulling.Request(run=RUN, patterns=("log",), folder=f"./output/kit-{RUN}")
    removed = remove_runs(context, [array], older_s=None, dry_run=True, confirm=lambda _: True)
    assert removed is not None
    assert [run.id for run in removed.runs] == [OTHER, RUN]
    with pytest.raises(InputError, match="no run '20261118' on any host"):
        pull(context, ["20261118"], here=tmp_path)


def record(checkpoints: object, **more: object) -> str:
    places = [{"node": name, "address": "10.0.0.2", "ranks": 1, "slots": [0]} for name in ("gpu1", "gpu2")]
    return json.dumps({"id": RUN, "places": places, "options": {"checkpoints": checkpoints}, "started": BEGAN} | more)


@pytest.fixture
def shared(hosts: Path) -> Path:
    """A run with --checkpoint-dir "/mnt/my ckpt", which is a folder that both hosts share."""
    run = hosts / "gpu1/lab/var/runs" / RUN
    (run / "record.json").write_text(record("/mnt/my ckpt"))
    (run / "end.json").write_text(json.dumps({"ended": BEGAN + 100, "exit_code": 0}))
    (hosts / "server/my ckpt/deep").mkdir(parents=True)
    for host in ("gpu1", "gpu2"):
        (hosts / host / "mnt").symlink_to(hosts / "server")
    write(hosts / "server/my ckpt/one", "first", BEGAN + 10)
    write(hosts / "server/my ckpt/deep/two", "second", BEGAN + 100)
    write(hosts / "server/my ckpt/before", "of another run", BEGAN - 10)
    write(hosts / "server/my ckpt/after", "of a third run", BEGAN + 1000)
    return hosts / "server/my ckpt"


def write(path: Path, text: str, changed: float) -> None:
    path.write_text(text)
    os.utime(path, (changed, changed))


SHARED = {"checkpoints/one": "first", "checkpoints/deep/two": "second"}
OTHERS = {"checkpoints/before": "of another run", "checkpoints/after": "of a third run"}
OWN = {name: text for name, text in ALL.items() if name != "checkpoints/one"}


@pytest.fixture
def no_own_checkpoints(hosts: Path) -> None:
    (hosts / "gpu1/lab/var/runs" / RUN / "checkpoints/one").unlink()


@pytest.mark.usefixtures("no_own_checkpoints", "shared")
def test_what_a_run_wrote_into_a_shared_folder_comes_once(context: Context, tmp_path: Path) -> None:
    result = pull(context, [RUN, "home"], here=tmp_path)
    assert tree(tmp_path / "home") == {**OWN, **SHARED}
    assert result.checkpoints == "gpu1:/mnt/my ckpt"
    assert {host.host: host.files for host in result.hosts} == {"gpu1": 5, "gpu2": 2}
    assert pull_notes(result) == (
        "kit: left 2 files (28 B) in /mnt/my ckpt on gpu[1-2], which did not change during the run; "
        f"bring all: kit pull {RUN} checkpoints --all-checkpoints"
    )
    again = pull(context, [RUN, "home"], here=tmp_path)
    assert {host.host: (host.files, host.unchanged) for host in again.hosts} == {"gpu1": (0, 5), "gpu2": (0, 2)}


@pytest.mark.usefixtures("no_own_checkpoints", "shared")
def test_files_of_other_runs_come_on_request(context: Context, tmp_path: Path) -> None:
    result = pull(context, [RUN, "checkpoints", "home"], here=tmp_path, all_checkpoints=True)
    assert tree(tmp_path / "home") == {**SHARED, **OTHERS}
    assert result.others == ()


@pytest.mark.usefixtures("no_own_checkpoints", "shared")
def test_paths_select_of_a_shared_folder(context: Context, tmp_path: Path) -> None:
    result = pull(context, [RUN, "checkpoints/deep", "a"], here=tmp_path)
    assert (tree(tmp_path / "a"), len(result.others)) == ({"checkpoints/deep/two": "second"}, 1)
    result = pull(context, [RUN, "**/on?", "b"], here=tmp_path)
    assert tree(tmp_path / "b") == {"checkpoints/one": "first"}
    result = pull(context, [RUN, "output/model", "c"], here=tmp_path)
    assert (tree(tmp_path / "c"), result.others) == ({"output/model": "weights"}, ())


@pytest.mark.usefixtures("no_own_checkpoints")
def test_hosts_that_do_not_share_the_folder_keep_their_own_files(context: Context, shared: Path, hosts: Path) -> None:
    other = hosts / "other/my ckpt"
    other.mkdir(parents=True)
    (hosts / "gpu2/mnt").unlink()
    (hosts / "gpu2/mnt").symlink_to(hosts / "other")
    # The same name, size and time: only the inode says that it is another file.
    write(other / "one", "FIRST", BEGAN + 10)
    write(other / "three", "3", BEGAN + 20)
    pull(context, [RUN, "checkpoints", "home"], here=hosts)
    assert tree(hosts / "home") == {
        "gpu1/checkpoints/one": "first",
        "gpu2/checkpoints/one": "FIRST",
        "checkpoints/deep/two": "second",
        "checkpoints/three": "3",
    }


def test_files_of_folders_that_collided_stay_apart_while_the_other_host_is_away(
    context: Context, fleet: Fleet, shared: Path, hosts: Path
) -> None:
    (hosts / "gpu2/mnt").unlink()
    (hosts / "gpu2/mnt").symlink_to(hosts / "other")
    (hosts / "other/my ckpt").mkdir(parents=True)
    write(shared / "last", "1", BEGAN + 10)
    write(hosts / "other/my ckpt/last", "2", BEGAN + 20)
    pull(context, [RUN, "checkpoints/last"], here=hosts)
    fleet["gpu2"].faults.add("unreachable")
    write(shared / "last", "one more", BEGAN + 30)
    pull(context, [RUN, "checkpoints/last"], here=hosts)
    assert tree(hosts / f"kit-{RUN}") == {"gpu1/checkpoints/last": "one more", "gpu2/checkpoints/last": "2"}


@pytest.mark.usefixtures("shared")
def test_a_file_of_a_shared_folder_replaces_none_of_the_runs_own_folder(context: Context, hosts: Path) -> None:
    for host in ("gpu1", "gpu2"):
        own = hosts / host / "lab/var/runs" / RUN / "checkpoints/two"
        own.parent.mkdir(exist_ok=True)
        own.write_text(host)
    write(hosts / "server/my ckpt/two", "shared", BEGAN + 10)
    for _ in range(2):
        pull(context, [RUN, "checkpoints/two"], here=hosts)
        assert tree(hosts / f"kit-{RUN}") == {
            "gpu1/checkpoints/two": "gpu1", "gpu2/checkpoints/two": "gpu2", "checkpoints/two": "shared",
        }  # fmt: skip


@pytest.mark.usefixtures("no_own_checkpoints")
def test_a_run_that_lives_has_no_end(context: Context, shared: Path, hosts: Path) -> None:
    (hosts / "gpu1/lab/var/runs" / RUN / "end.json").unlink()
    pull(context, [RUN, "checkpoints", "home"], here=hosts)
    assert tree(hosts / "home") == {**SHARED, "checkpoints/after": "of a third run"}


@pytest.mark.usefixtures("no_own_checkpoints")
def test_the_clock_of_the_host_counts(
    context: Context, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a host whose clock is 200 s slow, other files are those of the run."""
    real = far.clock

    def clock(transport: Transport) -> Clock:
        seen = real(transport)
        return replace(seen, there=seen.there - 200 * 10**9) if transport.host.name == "gpu2" else seen

    monkeypatch.setattr(far, "clock", clock)
    write(shared / "slow", "slow", BEGAN - 150)
    pull(context, [RUN, "checkpoints", "home"], here=tmp_path)
    assert tree(tmp_path / "home") == {**SHARED, "checkpoints/slow": "slow"}


def test_a_file_of_the_runs_own_folder_keeps_its_place(context: Context, shared: Path, tmp_path: Path) -> None:
    result = pull(context, [RUN, "checkpoints", "home"], here=tmp_path)
    assert tree(tmp_path / "home") == {"checkpoints/one": "c1", "checkpoints/deep/two": "second"}
    assert "left out gpu1:checkpoints/one: the run has a file of this name" in pull_notes(result)


@pytest.mark.usefixtures("no_own_checkpoints")
def test_links_and_pipes_of_a_shared_folder(context: Context, shared: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("root's")
    for name, target in (("best", "one"), ("out", "/etc/passwd"), ("folder", str(tmp_path))):
        (shared / name).symlink_to(target)
        os.utime(shared / name, (BEGAN + 5, BEGAN + 5), follow_symlinks=False)
    os.mkfifo(shared / "pipe")
    os.utime(shared / "pipe", (BEGAN + 5, BEGAN + 5))
    result = pull(context, [RUN, "checkpoints", "home"], here=tmp_path)
    assert {host.host: sorted(host.skipped) for host in result.hosts} == {
        "gpu1": ["checkpoints/folder", "checkpoints/out", "checkpoints/pipe"]
    }
    assert (tmp_path / "home/checkpoints/best").readlink() == Path("one")
    assert tree(tmp_path / "home") == {**SHARED, "checkpoints/best": "first"}


@pytest.mark.usefixtures("no_own_checkpoints", "shared")
def test_a_folder_of_others_that_root_may_not_read_is_no_failure(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS with root_squash. Where the list of files ends early, files of the run may be missing."""
    real = far.shared_files
    reasons = {"checkpoints/ben": "Permission denied", "checkpoints/z": "the list ends here"}

    def seen(*args: Any, **options: Any) -> SharedListing:
        shared = real(*args, **options)
        more = tuple(Entry(path=path, kind="e", text=why) for path, why in reasons.items())
        return replace(shared, listing=replace(shared.listing, entries=(*shared.listing.entries, *more)))

    monkeypatch.setattr(far, "shared_files", seen)
    result = pull(context, [RUN, "checkpoints", "home"], here=tmp_path)
    (gpu1,) = (host for host in result.hosts if host.host == "gpu1")
    assert (list(gpu1.skipped), list(gpu1.failed)) == (["checkpoints/ben"], ["checkpoints/z"])
    assert tree(tmp_path / "home") == SHARED


@pytest.mark.usefixtures("no_own_checkpoints")
def test_a_shared_folder_that_is_gone_is_named(context: Context, shared: Path, hosts: Path) -> None:
    shared.rename(hosts / "away")
    result = pull(context, [RUN, "home"], here=hosts)
    assert (tree(hosts / "home"), dict(result.missed)) == (OWN, {})
    assert "left out gpu1:checkpoints, gpu2:checkpoints: the node has no folder /mnt/my ckpt" in pull_notes(result)


@pytest.mark.usefixtures("no_own_checkpoints", "shared")
def test_without_its_node_a_host_misses_only_the_shared_folder(
    context: Context, tmp_path: Path, stopped: set[str], reporter: Remembering
) -> None:
    stopped |= {"gpu1", "gpu2"}
    result = pull(context, [RUN, "home"], here=tmp_path)
    assert tree(tmp_path / "home") == OWN
    assert sorted(result.missed) == ["gpu1", "gpu2"]
    assert reporter.warnings[0].text == "gpu1: /mnt/my ckpt (--checkpoint-dir): no node of the cluster runs here"
    assert reporter.warnings[0].hint == "run: kit deploy; then run the same again"
    stopped.remove("gpu2")
    result = pull(context, [RUN, "home"], here=tmp_path)
    assert (tree(tmp_path / "home"), sorted(result.missed)) == ({**OWN, **SHARED}, ["gpu1"])


@pytest.mark.usefixtures("no_own_checkpoints")
def test_a_pull_of_a_shared_folder_that_broke_continues(
    context: Context, shared: Path, tmp_path: Path, cut_after: dict[str, int]
) -> None:
    data = os.urandom(3_000_000)
    (shared / "one").write_bytes(data)
    os.utime(shared / "one", (BEGAN + 10, BEGAN + 10))
    cut_after["gpu1"] = 2_000_000
    assert sorted(pull(context, [RUN, "checkpoints", "home"], here=tmp_path).missed) == ["gpu1"]
    assert not (tmp_path / "home/checkpoints/one").exists(), "a part looks whole"
    rest = pull(context, [RUN, "checkpoints", "home"], here=tmp_path)
    assert rest.hosts[0].size < 2_000_000
    assert (tmp_path / "home/checkpoints/one").read_bytes() == data


@pytest.mark.usefixtures("no_own_checkpoints")
def test_only_hosts_of_the_run_are_read(context: Context, shared: Path, hosts: Path) -> None:
    """On another host, the folder may have files of another run."""
    place = {"address": "10.0.0.2", "ranks": 1, "slots": [0]}
    for more, come in (
        ({}, False),
        ({"helpers": [{"role": "server", "node": "gpu2"}]}, True),
        ({"elastic": {"min": 1}}, True),
    ):
        (hosts / "gpu2/mnt").unlink()
        (hosts / "gpu2/mnt").symlink_to(hosts / "other")
        write_other(hosts / "other/my ckpt")
        text = record("/mnt/my ckpt", places=[{"node": "gpu1", **place}], **more)
        (hosts / "gpu1/lab/var/runs" / RUN / "record.json").write_text(text)
        home = hosts / f"home-{len(str(more))}"
        pull(context, [RUN, "checkpoints", str(home)], here=hosts)
        assert ("checkpoints/three" in tree(home)) is come


def write_other(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "three", "3", BEGAN + 20)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", record(None), record(7), record(""), record("relative"), record("/" * 5000),
        record("/x", places=[]), record("/x", places=7), record("/x", options=[]), record("/x", helpers=[7]),
    ],
)  # fmt: skip
def test_an_odd_record_names_no_folder(context: Context, tmp_path: Path, hosts: Path, text: str) -> None:
    (hosts / "gpu1/lab/var/runs" / RUN / "record.json").write_text(text)
    result = pull(context, [], here=tmp_path)
    assert (result.checkpoints, pull_notes(result)) == ("", "")
    assert tree(tmp_path / f"kit-{RUN}") == ALL


def test_a_hostile_name_of_a_folder_is_escaped(context: Context, tmp_path: Path, hosts: Path) -> None:
    (hosts / "gpu1/lab/var/runs" / RUN / "record.json").write_text(record("/x; rm -rf ~\x1b[2J'"))
    note = pull_notes(pull(context, [], here=tmp_path))
    assert "\x1b" not in note
    assert "the node has no folder /x; rm -rf ~" in note


def test_paths_select_and_the_folder_is_plain(context: Context, tmp_path: Path) -> None:
    pull(context, ["latest", "checkpoints", "output/mod*", "out"], here=tmp_path)
    assert tree(tmp_path / "out") == {"checkpoints/one": "c1", "output/model": "weights"}
    assert not (tmp_path / "out" / ".gitignore").exists()
    assert not (tmp_path / "out" / store.PARTS).exists()


def test_an_unknown_run_and_a_cluster_without_any(context: Context, tmp_path: Path, hosts: Path) -> None:
    with pytest.raises(InputError, match="no run '1999' on any host"):
        pull(context, ["1999"], here=tmp_path)
    (hosts / "gpu1").rename(hosts / "away1")
    (hosts / "gpu2").rename(hosts / "away2")
    with pytest.raises(NotReadyError):
        pull(context, [], here=tmp_path)


def test_the_latest_run_is_one_that_lives(context: Context, tmp_path: Path, hosts: Path) -> None:
    old = "20261119-101500-cccc"
    for host in ("gpu1", "gpu2"):
        (hosts / host / "lab/var/runs" / old / "output").mkdir(parents=True)
    run = hosts / "gpu1/lab/var/runs" / old
    (run / "record.json").write_text("{}")
    with (run / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = pull(context, [], here=tmp_path)
    assert (result.run, result.live) == (old, True)


def test_the_latest_run_is_the_last_to_start(context: Context, tmp_path: Path, hosts: Path) -> None:
    """One that waited in line got its id before others that started at once. All verbs mean the same run."""
    runs = hosts / "gpu1/lab/var/runs"
    for run, start in ((RUN, BEGAN), (OTHER, BEGAN + 0.5)):
        write(runs / run / "record.json", "{}", start)
    (runs / OTHER / "output").mkdir()
    assert [pull(context, words, here=tmp_path).run for words in ([], ["latest", "output", "x"])] == [OTHER, OTHER]


def test_what_collided_stays_apart_while_the_other_host_is_away(
    context: Context, fleet: Fleet, tmp_path: Path, hosts: Path
) -> None:
    run = "lab/var/runs/" + RUN
    for host in ("gpu1", "gpu2"):
        (hosts / host / run / "output/best").symlink_to("metrics")
        (hosts / host / run / "output/same").write_text(host)
    pull(context, [RUN], here=tmp_path)
    fleet["gpu2"].faults.add("unreachable")
    (hosts / "gpu1" / run / "output/metrics").write_text("one more")
    (result,) = pull(context, [RUN], here=tmp_path).hosts
    assert (result.files, result.unchanged) == (1, 5)
    # A host may also remove its file before the other one does.
    fleet["gpu2"].faults.clear()
    (hosts / "gpu2" / run / "output/same").unlink()
    assert [host.files for host in pull(context, [RUN], here=tmp_path).hosts] == [0, 0]
    assert tree(tmp_path / f"kit-{RUN}") == ALL | {
        "gpu1/output/metrics": "one more", "gpu1/output/best": "one more", "gpu2/output/best": "2",
        "gpu1/output/same": "gpu1", "gpu2/output/same": "gpu2",
    }  # fmt: skip


def test_in_a_folder_of_yours_only_the_same_version_stays_apart(
    context: Context, fleet: Fleet, tmp_path: Path, hosts: Path
) -> None:
    """The files below the names of hosts may be those of another run."""
    for host in ("gpu1", "gpu2"):
        (hosts / host / "lab/var/runs" / RUN / "output/same").write_text(host)
    pull(context, [RUN, "output", "home"], here=tmp_path)
    fleet["gpu2"].faults.add("unreachable")
    (hosts / "gpu1/lab/var/runs" / RUN / "output/metrics").write_text("one more")
    assert pull(context, [RUN, "output", "home"], here=tmp_path).hosts[0].files == 1
    assert tree(tmp_path / "home") == {
        "output/model": "weights", "output/metrics": "one more", "gpu1/output/metrics": "1", "gpu2/output/metrics": "2",
        "gpu1/output/same": "gpu1", "gpu2/output/same": "gpu2",
    }  # fmt: skip


def test_two_pulls_do_not_write_into_one_folder_at_once(context: Context, tmp_path: Path) -> None:
    other = store.Store(tmp_path / "home", run=RUN)
    other.take()
    part = other.part("gpu1", "of the other pull")
    part.write_text("half")
    with pytest.raises(HomeError, match=r"another kit pull writes into .*home"):
        pull(context, [RUN, "home"], here=tmp_path)
    # One that brings nothing removes no parts of the other one either.
    pull(context, [OTHER, "home"], here=tmp_path)
    assert part.exists()
    other.close()
    assert not pull(context, [RUN, "home"], here=tmp_path).missed
    assert tree(tmp_path / "home") == ALL
    assert not part.parent.exists()


def test_a_lock_that_its_holder_removed_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = (store.Store(tmp_path) for _ in range(3))
    first.take()
    real, ends = fcntl.flock, [first.finish]

    def flock(lock: int, how: int) -> None:
        # The first pull ends after the second one has opened its lock.
        while ends:
            ends.pop()()
        real(lock, how)

    monkeypatch.setattr("kit.remote.results.store.fcntl.flock", flock)
    second.take()
    with pytest.raises(HomeError):
        third.take()
    second.finish()
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks_keeps_no_pull_out(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(lock: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("kit.remote.results.store.fcntl.flock", flock)
    pull(context, [RUN, "home"], here=tmp_path)
    assert tree(tmp_path / "home") == ALL


def test_a_host_of_the_run_that_is_not_in_hosts_is_named(
    context: Context, tmp_path: Path, hosts: Path, reporter: Remembering
) -> None:
    run = hosts / "gpu1/lab/var/runs" / RUN
    places = [{"node": name, "address": "10.0.9.9", "ranks": 1, "slots": [0]} for name in ("gpu1", "gpu3", "gpu4\n")]
    # gpu2 had only its address in the hosts file.
    renamed = {"node": "10.0.0.2", "address": context.inventory.hosts[1].address, "ranks": 1, "slots": [0]}
    (run / "record.json").write_text(
        record(None, places=[*places, renamed], helpers=[{"role": "server", "node": "gpu5"}])
    )
    (run / "end.json").write_text(json.dumps({"ended": BEGAN + 100, "exit_code": 0}))
    assert pull(context, [RUN, "log", "logs"], here=tmp_path).not_in_hosts == ()
    result = pull(context, [RUN], here=tmp_path)
    assert (result.not_in_hosts, dict(result.missed)) == (("gpu3", "gpu4\\n", "gpu5"), {})
    (warning,) = reporter.warnings
    assert warning.text == (f"hosts has no gpu[3,5],gpu4\\n, which took part in run {RUN}: files there did not come")
    assert tree(tmp_path / f"kit-{RUN}") == ALL


def test_a_renamed_host_of_the_run_that_is_away_is_missed(
    context: Context, fleet: Fleet, hosts: Path, tmp_path: Path
) -> None:
    run = hosts / "gpu1/lab/var/runs" / RUN
    places = [{"node": "old", "address": context.inventory.hosts[1].address, "ranks": 1, "slots": [0]}]
    (run / "record.json").write_text(record(None, places=places))
    (run / "end.json").write_text(json.dumps({"ended": BEGAN + 100, "exit_code": 0}))
    fleet["gpu2"].faults.add("unreachable")
    result = pull(context, [RUN], here=tmp_path)
    assert (list(result.missed), result.not_in_hosts) == (["gpu2"], ())


def test_a_host_that_is_away_keeps_nothing_else_back(
    context: Context, fleet: Fleet, tmp_path: Path, reporter: Remembering
) -> None:
    fleet["gpu2"].faults.add("unreachable")
    result = pull(context, [RUN], here=tmp_path)
    assert list(result.missed) == ["gpu2"]
    assert "gpu2: no SSH connection" in reporter.warnings[0].text
    home = tmp_path / f"kit-{RUN}"
    assert (home / "output/metrics").read_text() == "1"
    again = pull(context, [RUN], here=tmp_path)
    assert pulled(again) == f"No file of run {RUN} came; 4 were there."
    # The second host comes later: now the names collide.
    fleet["gpu2"].faults.clear()
    pull(context, [RUN], here=tmp_path)
    assert tree(home) == ALL
    fleet["gpu1"].faults.add("unreachable")
    fleet["gpu2"].faults.add("unreachable")
    with pytest.raises(Exception, match="hosts failed"):
        pull(context, [RUN], here=tmp_path)


def test_a_host_that_took_no_part_is_not_missed(
    context: Context, fleet: Fleet, tmp_path: Path, hosts: Path, reporter: Remembering
) -> None:
    run = hosts / "gpu1/lab/var/runs" / RUN
    places = [{"node": "gpu1", "address": "10.0.0.1", "ranks": 1, "slots": [0]}]
    (run / "record.json").write_text(record(None, places=places))
    fleet["gpu2"].faults.add("unreachable")
    # While it lives, hosts may come.
    assert list(pull(context, [RUN], here=tmp_path).missed) == ["gpu2"]
    (run / "end.json").write_text(json.dumps({"ended": BEGAN + 100, "exit_code": 0, "attempt": 1}))
    reporter.events.clear()
    result = pull(context, [RUN], here=tmp_path)
    assert (dict(result.missed), reporter.warnings) == ({}, [])
    assert f"gpu2 cannot be asked, and did not take part in run {RUN}" in [note.text for note in reporter.of(Note)]
    # A second attempt may have taken other hosts.
    (run / "end.json").write_text(json.dumps({"ended": BEGAN + 100, "exit_code": 0, "attempt": 2}))
    assert list(pull(context, [RUN], here=tmp_path).missed) == ["gpu2"]


def test_what_came_in_part_needs_no_room_again(
    context: Context, tmp_path: Path, hosts: Path, cut_after: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    (hosts / "gpu2/lab/var/runs" / RUN / "work/only2").write_bytes(os.urandom(3_000_000))
    cut_after["gpu2"] = 2_500_000
    pull(context, [RUN, "work", "home"], here=tmp_path)
    sizes: list[int] = []
    real = store.Store.prepare

    def prepare(one: store.Store, size: int, *, private: bool) -> None:
        sizes.append(size)
        real(one, size, private=private)

    monkeypatch.setattr(store.Store, "prepare", prepare)
    assert not pull(context, [RUN, "work", "home"], here=tmp_path).missed
    assert 0 < sizes[0] < 1_500_000


@pytest.mark.parametrize("grain", [100, 10**7, 10**9, 2 * 10**9])
def test_a_disk_with_coarser_times_gets_nothing_twice(
    grain: int, context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.utime

    def utime(path: Path, *, ns: tuple[int, int]) -> None:
        real(path, ns=(ns[0], ns[1] // grain * grain))

    monkeypatch.setattr("kit.remote.results.store.os.utime", utime)
    pull(context, [RUN, "home"], here=tmp_path)
    again = pull(context, [RUN, "home"], here=tmp_path)
    assert {host.host: (host.files, host.unchanged) for host in again.hosts} == {"gpu1": (0, 4), "gpu2": (0, 2)}


def test_a_pull_that_broke_continues_where_it_stopped(
    context: Context, tmp_path: Path, hosts: Path, cut_after: dict[str, int]
) -> None:
    data = os.urandom(3_000_000)
    (hosts / "gpu2/lab/var/runs" / RUN / "work/only2").write_bytes(data)
    cut_after["gpu2"] = 2_000_000
    broken = pull(context, [RUN, "work", "home"], here=tmp_path)
    assert list(broken.missed) == ["gpu2"]
    assert pulled(broken) == f"No file of run {RUN} came."
    assert not (tmp_path / "home/work/only2").exists(), "a part looks whole"
    (part,) = (tmp_path / "home" / store.PARTS).iterdir()
    assert 1_000_000 < part.stat().st_size < 2_000_000
    rest = pull(context, [RUN, "work", "home"], here=tmp_path)
    assert rest.hosts[0].size < 2_000_000
    assert (tmp_path / "home/work/only2").read_bytes() == data
    assert not (tmp_path / "home" / store.PARTS).exists()


def test_a_pull_of_other_files_keeps_the_parts_of_one_that_broke(
    context: Context, tmp_path: Path, hosts: Path, cut_after: dict[str, int]
) -> None:
    big = hosts / "gpu2/lab/var/runs" / RUN / "work/only2"
    big.write_bytes(os.urandom(3_000_000))
    cut_after["gpu2"] = 2_000_000
    pull(context, [RUN, "work", "home"], here=tmp_path)
    (part,) = (tmp_path / "home" / store.PARTS).iterdir()
    # Neither one of other files, nor one of another run, knows better.
    for words in ([RUN, "log"], [RUN, "output"], [OTHER]):
        assert not pull(context, [*words, "home"], here=tmp_path).missed
        assert part.exists()
    # A part of an earlier version helps nobody, nor does one of a file that is gone.
    write(big, "small", BEGAN)
    pull(context, [RUN, "work", "home"], here=tmp_path)
    assert not part.parent.exists()
    part.parent.mkdir()
    part.write_text("of a checkpoint that is gone")
    part = part.rename(part.with_name(part.name.replace(part.name[30:40], "0123456789")))
    pull(context, [RUN, "work", "home"], here=tmp_path)
    assert part.exists()
    pull(context, [RUN, "home"], here=tmp_path)
    assert not part.parent.exists()


def test_a_part_that_was_damaged_at_home_is_fetched_again(
    context: Context, tmp_path: Path, hosts: Path, cut_after: dict[str, int]
) -> None:
    (hosts / "gpu2/lab/var/runs" / RUN / "work/only2").write_bytes(bytes(2_000_000))
    cut_after["gpu2"] = 1_000_000
    pull(context, [RUN, "work", "home"], here=tmp_path)
    (part,) = (tmp_path / "home" / store.PARTS).iterdir()
    with part.open("r+b") as file:
        file.write(b"damage")
    assert "did not arrive whole" in pull(context, [RUN, "work", "home"], here=tmp_path).missed["gpu2"]
    assert not pull(context, [RUN, "work", "home"], here=tmp_path).missed
    assert (tmp_path / "home/work/only2").read_bytes() == bytes(2_000_000)


def test_links_and_pipes_of_ranks(context: Context, tmp_path: Path, hosts: Path) -> None:
    output = hosts / "gpu1/lab/var/runs" / RUN / "output"
    (output / "latest").symlink_to("model")
    (output / "out").symlink_to("/etc/passwd")
    (output / "up").symlink_to("../../../x")
    os.mkfifo(output / "pipe")
    result = pull(context, [RUN, "output", "home"], here=tmp_path)
    (gpu1, _) = result.hosts
    assert sorted(gpu1.skipped) == ["output/out", "output/pipe", "output/up"]
    assert (tmp_path / "home/output/latest").readlink() == Path("model")
    assert sorted(path.name for path in (tmp_path / "home/output").iterdir()) == ["latest", "model"]


def test_nothing_is_written_through_a_link_at_home(context: Context, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "home/output").symlink_to(tmp_path / "elsewhere")
    result = pull(context, [RUN, "output/model", "checkpoints", "home"], here=tmp_path)
    assert list(result.hosts[0].failed) == ["output/model"]
    assert "home/output is no folder; move it away" in result.hosts[0].failed["output/model"]
    assert list((tmp_path / "elsewhere").iterdir()) == []
    # The others come.
    assert tree(tmp_path / "home") == {"checkpoints/one": "c1"}


def test_a_link_that_became_a_folder_and_back(context: Context, tmp_path: Path, hosts: Path) -> None:
    output, home = hosts / "gpu1/lab/var/runs" / RUN / "output", tmp_path / f"kit-{RUN}/output"
    (output / "best").symlink_to("model")
    (output / "plain").write_text("plain")
    (output / "deep").mkdir()
    (output / "deep/one").write_text("1")
    pull(context, [], here=tmp_path)
    for name in ("best", "plain"):
        (output / name).unlink()
        (output / name).mkdir()
        (output / name / "epoch").write_text(name)
    (output / "deep/one").unlink()
    (output / "deep").rmdir()
    (output / "deep").symlink_to("best")
    result = pull(context, [], here=tmp_path)
    assert (home / "best/epoch").read_text() == "best"
    assert (home / "plain/epoch").read_text() == "plain"
    # The file of the earlier pull may be yours by now.
    assert "deep is a folder; move it away" in result.hosts[0].failed["output/deep"]
    assert (home / "deep/one").read_text() == "1"
    assert (home / "model").read_text() == "weights"
    (home / "deep/one").unlink()
    pull(context, [], here=tmp_path)
    assert (home / "deep").readlink() == Path("best")
    # And a file that became a link, and a link that became a file.
    (output / "model").unlink()
    (output / "model").symlink_to("best/epoch")
    (output / "deep").unlink()
    (output / "deep").write_text("file")
    assert not any(host.skipped or host.failed for host in pull(context, [], here=tmp_path).hosts)
    assert (home / "model").readlink() == Path("best/epoch")
    assert (home / "deep").read_text() == "file"
    assert not (home / "deep").is_symlink()


@pytest.mark.parametrize("blocked", ["link", "fifo"])
def test_what_no_pull_made_does_not_give_way(context: Context, tmp_path: Path, hosts: Path, blocked: str) -> None:
    home, elsewhere = tmp_path / f"kit-{RUN}", tmp_path / "elsewhere"
    elsewhere.mkdir()
    home.mkdir()
    if blocked == "link":
        (home / "output").symlink_to(elsewhere)
    else:
        os.mkfifo(home / "output")
    result = pull(context, [], here=tmp_path)
    assert list(result.hosts[0].failed) == ["output/model"]
    assert (home / "output").is_symlink() is (blocked == "link")
    assert list(elsewhere.iterdir()) == []
    assert tree(home) == {name: text for name, text in ALL.items() if not name.startswith("output/")}


def failed(context: Context, words: Sequence[str], here: Path) -> dict[str, str]:
    return {path: why for host in pull(context, words, here=here).hosts for path, why in host.failed.items()}


@pytest.mark.parametrize("words", [[RUN], [RUN, "home"]])
@pytest.mark.parametrize("known", [True, False])
def test_a_file_that_you_have_changed_stays(
    context: Context, tmp_path: Path, hosts: Path, words: list[str], known: bool
) -> None:
    """`known`: kit still knows what it has stored."""
    home, output = tmp_path / (words[1] if words[1:] else f"kit-{RUN}"), hosts / "gpu1/lab/var/runs" / RUN / "output"
    write(output / "model", "weights", BEGAN)
    pull(context, words, here=tmp_path)
    (home / "output/model").write_text("mine")
    (output / "other").write_text("new")
    if not known:
        shutil.rmtree(tmp_path / "cache/kit/pulled")
    why = "has changed since it came" if known else "is newer"
    message = f"at home, {home}/output/model {why}; move it away, and run the same again"
    assert failed(context, words, tmp_path) == {"output/model": message}
    assert tree(home) == ALL | {"output/model": "mine", "output/other": "new"}
    (home / "output/model").unlink()
    assert failed(context, words, tmp_path) == {}
    write(output / "model", "an older one of the same run", BEGAN - 1000)
    assert failed(context, words, tmp_path) == {}
    assert (home / "output/model").read_text() == "an older one of the same run"


def test_a_host_whose_clock_is_ahead_hides_no_change(
    context: Context, tmp_path: Path, hosts: Path, cut_after: dict[str, int]
) -> None:
    model = hosts / "gpu1/lab/var/runs" / RUN / "output/model"
    write(model, "weights", time.time() + 5000)
    pull(context, [RUN, "home"], here=tmp_path)
    (tmp_path / "home/output/model").write_text("mine")
    assert list(failed(context, [RUN, "home"], tmp_path)) == ["output/model"]
    # Neither does a host that has written it again, also if the pull of that broke.
    (tmp_path / "home/output/model").unlink()
    pull(context, [RUN, "home"], here=tmp_path)
    write(model, "better", time.time() + 6000)
    cut_after["gpu1"] = 1
    assert list(pull(context, [RUN, "home"], here=tmp_path).missed) == ["gpu1"]
    assert (tmp_path / "home/output/model").read_text() == "weights"
    (tmp_path / "home/output/model").write_text("mine")
    assert list(failed(context, [RUN, "home"], tmp_path)) == ["output/model"]
    assert (tmp_path / "home/output/model").read_text() == "mine"


def test_a_file_that_changes_at_home_while_kit_fetches_it_stays(
    context: Context, tmp_path: Path, hosts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull(context, [RUN, "output/model", "home"], here=tmp_path)
    model = tmp_path / "home/output/model"
    (hosts / "gpu1/lab/var/runs" / RUN / "output/model").write_text("better")
    real = FakeTransport.stream

    def stream(transport: FakeTransport, argv: Sequence[str], live: Live) -> int:
        model.write_text("mine")
        return real(transport, argv, live)

    monkeypatch.setattr(FakeTransport, "stream", stream)
    (why,) = failed(context, [RUN, "output/model", "home"], tmp_path).values()
    assert why == f"at home, {model} has just changed; move it away, and run the same again"
    assert model.read_text() == "mine"


def test_a_run_replaces_no_newer_file_of_another_one(context: Context, tmp_path: Path, hosts: Path) -> None:
    runs = hosts / "gpu1/lab/var/runs"
    (runs / OTHER / "output").mkdir()
    for run, began in ((RUN, BEGAN), (OTHER, BEGAN - 1000)):
        write(runs / run / "output/model", run, began)
    pull(context, [RUN, "output", "home"], here=tmp_path)
    model = tmp_path / "home/output/model"
    assert failed(context, [OTHER, "output", "home"], tmp_path) == {
        "output/model": f"at home, {model} is newer, of run {RUN}; move it away, and run the same again"
    }
    assert model.read_text() == RUN
    # The results of the next run may replace those of the last one.
    model.unlink()
    assert failed(context, [OTHER, "output", "home"], tmp_path) == {}
    assert failed(context, [RUN, "output", "home"], tmp_path) == {}
    assert model.read_text() == RUN


def test_a_disk_without_times_gets_files_again(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: Path
) -> None:
    write(hosts / "gpu1/lab/var/runs" / RUN / "output/model", "weights", BEGAN)
    monkeypatch.setattr("kit.remote.results.store.os.utime", lambda *_, **__: None)
    for _ in range(2):
        assert failed(context, [RUN, "home"], tmp_path) == {}


def test_a_changed_file_gives_way_to_no_folder_or_link(context: Context, tmp_path: Path, hosts: Path) -> None:
    output, home = hosts / "gpu1/lab/var/runs" / RUN / "output", tmp_path / f"kit-{RUN}/output"
    (output / "deep").write_text("1")
    pull(context, [RUN, "output"], here=tmp_path)
    for name in ("model", "deep"):
        (home / name).write_text("mine")
        (output / name).unlink()
    (output / "model").symlink_to("deep/one")
    (output / "deep").mkdir()
    (output / "deep/one").write_text("1")
    assert sorted(failed(context, [RUN, "output"], tmp_path)) == ["output/deep/one", "output/model"]
    assert [(home / name).read_text() for name in ("model", "deep")] == ["mine", "mine"]


@pytest.mark.parametrize("call", ["lstat", "replace", "mkdir"])
def test_a_name_that_the_disk_at_home_refuses_keeps_nothing_else_back(
    context: Context, tmp_path: Path, hosts: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """exFAT has no colons, and an encrypted folder takes names of up to 143 bytes."""
    run = hosts / "gpu1/lab/var/runs" / RUN
    (run / "output/t:me").mkdir()
    (run / "output/t:me/a:b").write_text("1")
    real = getattr(Path, call)

    def refusing(path: Path, *more: object, **others: object) -> object:
        for place in (path, *more):
            if isinstance(place, Path) and place.is_relative_to(tmp_path / "home") and ":" in str(place):
                raise OSError(errno.EINVAL, "Invalid argument", str(place))
        return real(path, *more, **others)

    monkeypatch.setattr(Path, call, refusing)
    result = pull(context, [RUN, "home"], here=tmp_path)
    why = "the disk at home refuses its name (Invalid argument); name a folder on another disk"
    assert {host.host: dict(host.failed) for host in result.hosts} == {"gpu1": {"output/t:me/a:b": why}, "gpu2": {}}
    assert not result.missed
    shutil.rmtree(tmp_path / "home" / store.PARTS)
    assert tree(tmp_path / "home") == ALL


def test_a_disk_without_links_keeps_nothing_else_back(
    context: Context, tmp_path: Path, hosts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hosts / "gpu1/lab/var/runs" / RUN / "output/latest").symlink_to("model")

    def refusing(path: Path, target: str) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", refusing)
    result = pull(context, [RUN, "home"], here=tmp_path)
    assert {host.host: (host.files, host.unchanged, list(host.failed)) for host in result.hosts} == {
        "gpu1": (4, 0, ["output/latest"]), "gpu2": (2, 0, [])
    }  # fmt: skip
    assert tree(tmp_path / "home") == ALL


def test_in_a_folder_of_yours_no_file_gives_way_to_a_folder_or_link(
    context: Context, tmp_path: Path, hosts: Path
) -> None:
    output = hosts / "gpu1/lab/var/runs" / RUN / "output"
    (output / "best").symlink_to("model")
    (output / "deep").mkdir()
    (output / "deep/one").write_text("1")
    (tmp_path / "home/output").mkdir(parents=True)
    for name in ("best", "deep"):
        (tmp_path / "home/output" / name).write_text("mine")
    result = pull(context, [RUN, "output", "home"], here=tmp_path)
    assert sorted(result.hosts[0].failed) == ["output/best", "output/deep/one"]
    assert tree(tmp_path / "home/output") == {"best": "mine", "deep": "mine", "model": "weights"}


def test_files_that_should_have_come_are_failures_and_their_parts_stay(
    context: Context, tmp_path: Path, hosts: Path, cut_after: dict[str, int]
) -> None:
    """The host cannot read them, and the next pull may."""
    work = hosts / "gpu2/lab/var/runs" / RUN / "work"
    (work / "only2").write_bytes(bytes(2_000_000))
    cut_after["gpu2"] = 1_000_000
    pull(context, [RUN, "work", "home"], here=tmp_path)
    (part,) = (tmp_path / "home" / store.PARTS).iterdir()
    (work / "/".join(["d"] * 101)).mkdir(parents=True)
    (work / "/".join(["d"] * 101) / "file").touch()
    (tmp_path / "home/work/only2").mkdir(parents=True)
    result = pull(context, [RUN, "work", "home"], here=tmp_path)
    (gpu2,) = (host for host in result.hosts if host.host == "gpu2")
    deep = "work" + "/d" * 100
    blocked = f"at home, {tmp_path}/home/work/only2 is a folder; move it away, and run the same again"
    assert gpu2.failed == {deep: "more than 100 folders deep", "work/only2": blocked}
    assert not result.missed
    assert part.stat().st_size > 0
    (tmp_path / "home/work/only2").rmdir()
    shutil.rmtree(work / "d")
    result = pull(context, [RUN, "work", "home"], here=tmp_path)
    assert not any(host.failed for host in result.hosts)
    assert (tmp_path / "home/work/only2").stat().st_size == 2_000_000
    assert not part.parent.exists()


def test_a_disk_without_room_is_noticed_before_anything_comes(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_RESERVE", 1 << 60)
    with pytest.raises(StepError, match="has no room"):
        pull(context, [RUN, "home"], here=tmp_path)
    assert tree(tmp_path / "home") == {}


def test_a_disk_that_fills_up_is_one_error(context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(StepError, match="no space left on this machine") as caught:
        pull(context, [RUN, "home"], here=tmp_path)
    assert caught.value.host is None
    assert caught.value.hint is not None
    assert "continues" in caught.value.hint


def test_a_working_folder_that_still_has_the_code_comes_only_by_its_name(
    context: Context, tmp_path: Path, hosts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "SETTLE_S", 0.1)
    pending = hosts / "gpu2/lab/var/runs" / RUN / "work.json"
    pending.write_text("{}")
    result = pull(context, [RUN, "home"], here=tmp_path)
    assert result.without_work == ("gpu2",)
    assert f"working folder on gpu2: it still has the code; kit pull {RUN} work brings it" in pull_notes(result)
    assert tree(tmp_path / "home") == {name: text for name, text in ALL.items() if name != "work/only2"}
    pull(context, [RUN, "work", "home"], here=tmp_path)
    assert tree(tmp_path / "home") == ALL


def test_a_pattern_names_files_of_a_working_folder_that_still_has_the_code(
    context: Context, tmp_path: Path, hosts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorBoard's folder is there by default, and a run may live for hours."""
    monkeypatch.setattr(flow, "SETTLE_S", 0)
    run = hosts / "gpu2/lab/var/runs" / RUN
    (run / "work.json").write_text("{}")
    (run / "work/runs").mkdir()
    (run / "work/runs/events.out.tfevents.1").write_text("loss")
    result = pull(context, ["latest", "**/*tfevents*", "logs"], here=tmp_path)
    assert tree(tmp_path / "logs") == {"work/runs/events.out.tfevents.1": "loss"}
    assert result.without_work == ()
    # These name nothing in that folder.
    everything = pull(context, ["latest", "*", "**/*", "all"], here=tmp_path)
    assert tree(tmp_path / "all") == {name: text for name, text in ALL.items() if name != "work/only2"}
    assert everything.without_work == ("gpu2",)


def test_what_no_file_matches_is_named(context: Context, tmp_path: Path) -> None:
    result = pull(context, ["latest", "output/modl", "*.h5\n", "home"], here=tmp_path)
    assert pulled(result) == f"No file of run {RUN} matches output/modl, *.h5\\n."


@pytest.mark.usefixtures("shared")
def test_what_matches_and_stays_is_not_missing(context: Context, tmp_path: Path) -> None:
    (tmp_path / "home/output/model/mine").mkdir(parents=True)
    result = pull(context, [RUN, "output/model", "home"], here=tmp_path)
    assert pulled(result) == f"No file of run {RUN} came."
    assert "output/model is a folder; move it away" in pull_notes(result)
    result = pull(context, [RUN, "checkpoints/before", "home"], here=tmp_path)
    assert pulled(result) == f"No file of run {RUN} came."
    assert "left 2 files (28 B) in /mnt/my ckpt" in pull_notes(result)


def test_a_run_that_has_just_ended_gets_a_moment_to_settle(
    context: Context, tmp_path: Path, hosts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending = hosts / "gpu2/lab/var/runs" / RUN / "work.json"
    pending.write_text("{}")
    monkeypatch.setattr("time.sleep", lambda _: pending.unlink(missing_ok=True))
    assert pull(context, [RUN, "home"], here=tmp_path).without_work == ()
    assert tree(tmp_path / "home") == ALL


def test_progress_is_reported(context: Context, tmp_path: Path, reporter: Remembering) -> None:
    pull(context, [RUN, "home"], here=tmp_path)
    assert any(event.fraction is not None for event in reporter.of(HostStep))


# kit runs rm


def test_a_run_goes_from_all_hosts(context: Context, hosts: Path) -> None:
    asked: list[str] = []
    result = remove_runs(
        context, [RUN], older_s=None, dry_run=False, confirm=lambda runs: not asked.extend(run.id for run in runs)
    )
    assert asked == [RUN]
    assert result is not None
    assert result.runs[0].hosts == ("gpu1", "gpu2")
    assert [path.name for path in hosts.glob("*/lab/var/runs/*")] == [OTHER]


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_host_that_is_not_in_hosts_keeps_its_files_of_a_removed_run(
    context: Context, hosts: Path, reporter: Remembering, dry_run: bool
) -> None:
    """After that, no record says that it has some."""
    run = hosts / "gpu1/lab/var/runs" / RUN
    (run / "record.json").write_text(record(None, helpers=[{"role": "server", "node": "gpu4"}]))
    warned: list[str] = []

    def confirm(_: object) -> bool:
        warned.extend(warning.text for warning in reporter.warnings)
        return False

    result = remove_runs(context, [RUN], older_s=None, dry_run=dry_run, confirm=confirm)
    assert (result.not_in_hosts if result else ("gpu4",)) == ("gpu4",)
    assert [warning.text for warning in reporter.warnings] == [
        "hosts has no gpu4, which took part in the run: files there stay"
    ]
    assert bool(warned) is not dry_run


@pytest.mark.parametrize("dry_run", [True, False])
def test_the_owner_of_somebody_elses_run_is_named_before_it_goes(
    context: Context, hosts: Path, reporter: Remembering, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    monkeypatch.setattr("kit.flows.run.folders.operator", lambda: "ben@desk")
    run = hosts / "gpu1/lab/var/runs" / RUN / "record.json"
    warned: list[str] = []

    def confirm(_: object) -> bool:
        warned.extend(warning.text for warning in reporter.warnings)
        return False

    for by in ("anna@laptop", "ben@desk"):
        run.write_text(record(None, by=by))
        remove_runs(context, [RUN], older_s=None, dry_run=dry_run, confirm=confirm)
    text = f"you are ben@desk, and other people started {RUN} of anna@laptop"
    assert [warning.text for warning in reporter.warnings] == [text]
    assert bool(warned) is not dry_run


@pytest.mark.parametrize("ahead_s", [0, 7200])
def test_by_age_a_run_is_as_old_as_its_start(
    context: Context, hosts: Path, ahead_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The head's clock counts, as for the ages of kit runs, and not that of this machine.
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + ahead_s)
    # The ids are days old. One of the two runs waited in line, and has just started.
    (hosts / "gpu1/lab/var/runs" / RUN / "record.json").write_text("{}")
    (hosts / "gpu1/lab/var/runs" / RUN / "end.json").write_text("{}")
    result = remove_runs(context, [], older_s=3600, dry_run=True, confirm=lambda _: pytest.fail("asked"))
    assert result is not None
    assert [run.id for run in result.runs] == [OTHER]


def test_nothing_goes_without_consent_or_with_a_host_away(context: Context, fleet: Fleet, hosts: Path) -> None:
    before = sorted(hosts.rglob("*"))
    assert remove_runs(context, [RUN], older_s=None, dry_run=False, confirm=lambda _: False) is None
    dry = remove_runs(context, [], older_s=86400, dry_run=True, confirm=lambda _: pytest.fail("asked"))
    assert dry is not None
    fleet["gpu2"].faults.add("unreachable")
    with pytest.raises(UnreachableError):
        remove_runs(context, [RUN], older_s=None, dry_run=False, confirm=lambda _: True)
    assert sorted(hosts.rglob("*")) == before
