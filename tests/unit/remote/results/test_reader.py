"""The program that reads runs on a VM, run for real on this machine. Ranks write the files, so they are hostile."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.model import names
from kit.remote.results import far
from kit.remote.results.reader import frames, mounts

RUN = "20261121-101500-3fa2"
RUNS = "var/runs"


def call(*words: str, stdin: bytes = b"", code: int = 0) -> bytes:
    done = subprocess.run(far.argv(*words), input=stdin, capture_output=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def lines(*words: str, stdin: bytes = b"") -> list[Any]:
    *entries, end = [json.loads(line) for line in call(*words, stdin=stdin).splitlines()]
    assert end == {"end": True}
    return entries


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    run = tmp_path / "lab" / RUNS / RUN
    for name, text in (("output/a.txt", "hello"), ("output/deep/b", ""), ("checkpoints/c", "123"), ("log", "words")):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(text)
    return tmp_path / "lab"


@contextmanager
def living(run: Path) -> Iterator[None]:
    (run / "record.json").write_text("{}")
    with (run / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_the_survey_counts_what_runs_made(cluster: Path) -> None:
    (one,) = lines("survey", str(cluster), RUNS)
    counts = {"files": 3, "output": 5, "checkpoints": 3, "work": 0, "log": 5}
    assert one == {"id": RUN, "live": False, "began": "", **counts}
    with living(cluster / RUNS / RUN):
        assert lines("survey", str(cluster), RUNS)[0]["live"] is True
        (cluster / RUNS / RUN / "end.json").touch()
        assert lines("survey", str(cluster), RUNS)[0]["live"] is False


def test_a_run_began_when_its_record_was_written(cluster: Path) -> None:
    record = cluster / RUNS / RUN / "record.json"
    record.write_text("{}")
    os.utime(record, ns=(1_795_255_200_000_000_001, 1_795_255_200_000_000_001))
    assert lines("survey", str(cluster), RUNS)[0]["began"] == "20261121-100000"
    assert lines("ids", str(cluster), RUNS) == [{"id": RUN, "live": False, "started": 1_795_255_200_000_000_001}]
    os.utime(record, (-5, -5))
    assert lines("survey", str(cluster), RUNS)[0]["began"] == ""
    assert lines("ids", str(cluster), RUNS)[0]["started"] == 0
    record.unlink()
    record.symlink_to(cluster / RUNS / RUN / "log")
    assert lines("survey", str(cluster), RUNS)[0]["began"] == ""


def test_a_host_without_runs_has_none(tmp_path: Path) -> None:
    assert lines("survey", str(tmp_path), RUNS) == []
    assert lines("survey", str(tmp_path / "none"), RUNS) == []
    assert lines("survey", str(tmp_path), RUNS, names.STACK_FILE) == [{"stack": False}]
    (tmp_path / names.STACK_FILE).touch()
    assert lines("survey", str(tmp_path), RUNS, names.STACK_FILE) == [{"stack": True}]
    assert lines("remove", str(tmp_path), RUNS, stdin=b"[]") == []


def test_a_list_has_links_as_they_are_and_names_that_are_no_text(cluster: Path) -> None:
    output = cluster / RUNS / RUN / "output"
    (output / "out").symlink_to("/etc/passwd")
    os.mkfifo(output / "pipe")
    Path(os.fsdecode(os.fsencode(output) + b"/\xff\n")).touch()
    (output / "run.sh").touch(mode=0o755)
    header, *entries = lines("list", str(cluster / "var"), f"runs/{RUN}", "output")
    assert header == {"top": str(cluster / "var"), "live": False, "unsettled": False}
    by_path = {far.decoded(entry[1]): entry for entry in entries}
    assert by_path["output/out"][::2] == ["l", "/etc/passwd"]
    assert by_path["output/pipe"][0] == "s"
    assert by_path["output/a.txt"][2] == 5
    assert by_path["output/run.sh"][4] is True
    assert "output/\udcff\n" in by_path
    assert "output/deep/b" in by_path


@pytest.mark.parametrize("part", ["runs", f"runs/{RUN}", f"runs/{RUN}/output"])
def test_no_link_is_followed(cluster: Path, tmp_path: Path, part: str) -> None:
    """A rank can put a link in place of every folder below var."""
    elsewhere = tmp_path / "elsewhere"
    (cluster / "var" / part).rename(elsewhere)
    (cluster / "var" / part).symlink_to(elsewhere)
    _, *entries = lines("list", str(cluster / "var"), f"runs/{RUN}", "output")
    assert [entry[0] for entry in entries if entry[0] not in "dl"] == []
    request = json.dumps([["output/a.txt", 0, 0, 100]]).encode()
    sent = subprocess.run(
        far.argv("send", str(cluster / "var"), f"runs/{RUN}"), input=request, capture_output=True, check=False
    )
    assert b"hello" not in sent.stdout
    for entry in lines("survey", str(cluster), RUNS):
        assert entry["output"] == 0
    lines("remove", str(cluster), RUNS, stdin=json.dumps([RUN]).encode())
    assert list(elsewhere.rglob("a.txt")) != []


def test_a_socket_or_a_link_is_not_sent(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = cluster / RUNS / RUN / "output"
    (output / "out").symlink_to("a.txt")
    with socket.socket(socket.AF_UNIX) as server:
        # A whole path may be too long for a socket.
        monkeypatch.chdir(output)
        server.bind("s")
        request = json.dumps([["output/out", 0, 0, 9], ["output/s", 0, 0, 9], ["output/../log", 0, 0, 9]]).encode()
        sent = call("send", str(cluster / "var"), f"runs/{RUN}", stdin=request)
    assert sent.count(b'"error"') == 3
    assert b"words" not in sent
    assert b"hello" not in sent


def test_a_file_without_a_size_may_be_short(tmp_path: Path) -> None:
    """The kernel makes those of /proc only when they are read, and some have no end."""
    request = json.dumps([["meminfo", 0, 0, 100]]).encode()
    assert b"MemTotal: " in call("send", "/proc", "", stdin=request)
    program = altered(tmp_path, "MOST_UNSIZED = 1 << 20", "MOST_UNSIZED = 10")
    assert sent_by(program, "/proc", request) == [(b"H", {"error": "it has no size, and more than 10 bytes"})]


@pytest.mark.parametrize("size", [1, 2 << 20])
def test_a_file_that_a_program_begins_to_write_is_sent_with_its_new_size(tmp_path: Path, size: int) -> None:
    """A run that lives makes files. This one is empty when it is opened, and not when it is read."""
    file = tmp_path / "log"
    file.touch()
    # The program has its modules as texts, so this has no quotes.
    grows = f"os.truncate(bytes({(*os.fsencode(file),)}), {size}) is None"
    program = altered(tmp_path, "if not before.st_size:", f"if not before.st_size and {grows}:")
    request = json.dumps([["log", 0, file.stat().st_mtime_ns, 1 << 30]]).encode()
    (_, header), *data, (_, end) = sent_by(program, str(tmp_path), request)
    assert header["size"] == sum(len(part) for kind, part in data if kind == b"D") == size
    assert end == {"sha256": hashlib.sha256(bytes(size)).hexdigest(), "changed": False}


def sent_by(program: Path, top: str, request: bytes) -> list[tuple[bytes, Any]]:
    """Return the frames in which this reader sends files of a folder."""
    argv = ["python3", "-IS", str(program), "send", top, ""]
    stream = io.BytesIO(subprocess.run(argv, input=request, capture_output=True, check=True, timeout=60).stdout)
    sent = iter(lambda: frames.read_frame(stream), (b"", b""))
    return [(kind, payload if kind == b"D" else json.loads(payload)) for kind, payload in sent]


# The folder of --checkpoint-dir


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with files that changed in the seconds 5, 10 and 20."""
    folder = tmp_path / "ckpt"
    (folder / "deep").mkdir(parents=True)
    for name, second in (("early", 5), ("first", 10), ("deep/last", 20)):
        (folder / name).write_text(name)
        os.utime(folder / name, (second, second))
    return folder


def shared(folder: Path, first: int, last: int) -> list[Any]:
    return lines("shared", str(folder), str(first * 10**9), str(last * 10**9))


def test_a_shared_folder_is_listed_by_time(folder: Path) -> None:
    header, *entries, others = shared(folder, 10, 20)
    assert header == {"top": str(folder), "there": True, "store": ""}
    inodes = {name: (folder / name).stat().st_ino for name in ("first", "deep/last")}
    assert entries == [
        ["f", "deep/last", 9, 20 * 10**9, False, inodes["deep/last"]],
        ["f", "first", 5, 10 * 10**9, False, inodes["first"]],
    ]
    assert others == {"others": 1, "size": 5}
    assert [entry[1] for entry in shared(folder, 0, 9)[1:-1]] == ["early"]
    assert shared(folder, 21, 30)[1:] == [{"others": 3, "size": 19}]


def test_only_the_folder_itself_may_be_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    (folder / "out").symlink_to(tmp_path)
    os.utime(folder / "out", (12, 12), follow_symlinks=False)
    header, *entries, _ = shared(tmp_path / "link", 10, 20)
    assert header["top"] == str(folder)
    assert [entry[:2] for entry in entries] == [["f", "deep/last"], ["f", "first"], ["l", "out"]]


def test_a_shared_folder_that_is_none(folder: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "none", folder / "early", folder / "early/x"):
        header, others = shared(path, 0, 99)
        assert (header["there"], others) == (False, {"others": 0, "size": 0})


def altered(tmp_path: Path, old: str, new: str) -> Path:
    """Return the reader with another text in one place."""
    text = far.program()
    assert text.count(old) == 1
    path = tmp_path / "program.py"
    path.write_text(text.replace(old, new))
    return path


def run(program: Path, *words: str) -> list[Any]:
    done = subprocess.run(["python3", "-IS", str(program), *words], capture_output=True, check=True, timeout=60)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_only_the_removal_imports_what_it_takes_to_start_programs(tmp_path: Path) -> None:
    """kit pull starts the reader several times on each host."""
    program = tmp_path / "program.py"
    program.write_text(f"{far.program()}import json, sys\nprint(json.dumps('subprocess' in sys.modules))\n")
    assert run(program, "ids", str(tmp_path), "runs")[-1] is False


@pytest.mark.parametrize(("old", "new"), [("MOST_SEEN = 1000000", "MOST_SEEN = 3"), ("MOST = 200 << 20", "MOST = 60")])
def test_the_list_of_a_shared_folder_ends(folder: Path, tmp_path: Path, old: str, new: str) -> None:
    """A folder deep in a large share may have millions of files of other runs."""
    for name in "abcdef":
        (folder / name).touch()
    rows = run(altered(tmp_path, old, new), "shared", str(folder), "0", str(2**63 - 1))
    assert [row[0] for row in rows[1:-2]][-1] == "e"
    assert "the list ends here" in rows[-3][2]
    assert len(rows) < 8
    assert rows[-1] == {"end": True}


MOUNTS = (
    "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
    "30 20 0:40 /export /mnt/nfs rw,relatime shared:7 - nfs4 10.0.0.5:/export rw,vers=4.2\n"
    "31 20 0:41 /a\\040b /mnt/my\\040share rw - nfs server:/x rw\n"
    "32 20 0:42 / /mnt/local rw - nfs4 127.0.0.1:/ rw\n"
    "33 20 0:43 / /mnt/bucket rw - fuse.gcsfuse bucket rw\n"
    "34 30 8:2 / /mnt/nfs/over rw - ext4 /dev/sdb rw\n"
    "35 20 0:44 / /mnt/two rw - nfs4 old:/ rw\n"
    "36 20 0:45 / /mnt/two rw - ceph 10.0.0.1,10.0.0.2:/ rw\n"
    "37 20 0:46 / /data/kept rw - fuse.rclone s3://bucket/kept rw,user_id=0\n"
    "38 20 0:47 / /mnt/own rw - fuse.rclone remote: rw,user_id=0\n"
)


@pytest.mark.parametrize(
    ("path", "kind", "store"),
    [
        ("/mnt/nfs", "nfs4", "10.0.0.5:/export /export"),
        ("/mnt/nfs/team/ckpt", "nfs4", "10.0.0.5:/export /export/team/ckpt"),
        ("/mnt/nfsx", "ext4", ""),
        ("/mnt/my share/c", "nfs", "server:/x /a b/c"),
        # Another server on each host.
        ("/mnt/local/c", "nfs4", ""),
        ("/mnt/bucket/c", "fuse.gcsfuse", ""),
        ("/mnt/nfs/over/c", "ext4", ""),
        ("/mnt/two/c", "ceph", "10.0.0.1,10.0.0.2:/ /c"),
        ("/data/kept/run", "fuse.rclone", "s3://bucket/kept /run"),
        ("/mnt/own/run", "fuse.rclone", ""),
        ("/", "ext4", ""),
    ],
)
def test_the_store_of_a_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str, kind: str, store: str
) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)
    monkeypatch.setattr(mounts, "MOUNTS", str(tmp_path / "mountinfo"))
    assert mounts.mount_of(path.encode()) == (kind.encode(), store)


def test_a_file_of_fuse_has_no_inode(folder: Path, tmp_path: Path) -> None:
    """Each host counts its own."""
    program = altered(tmp_path, "kind, store = mount_of(os.fsencode(real))", 'kind, store = b"fuse.s3fs", ""')
    rows = run(program, "shared", str(folder), "0", str(2**63 - 1))
    assert {row[5] for row in rows[1:-2]} == {0}


def test_the_time_of_a_host() -> None:
    before = time.time_ns()
    (answer,) = lines("now")
    assert before - 10**9 < answer["now"] < time.time_ns() + 10**9


def test_remove_takes_the_runs_and_follows_nothing(cluster: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (cluster / RUNS / RUN / "output" / "link").symlink_to(precious)
    deep = cluster / RUNS / RUN / "work"
    deep.mkdir()
    at = os.open(deep, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("x" * 100, dir_fd=at)
        inner = os.open("x" * 100, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    answers = lines("remove", str(cluster), RUNS, stdin=json.dumps([RUN, "20261121-101500-none"]).encode())
    assert answers == [{"id": RUN, "removed": 13}]
    assert list((cluster / RUNS).iterdir()) == []
    assert (precious / "file").exists()


def test_a_run_that_lives_is_not_removed(cluster: Path) -> None:
    with living(cluster / RUNS / RUN):
        assert lines("remove", str(cluster), RUNS, stdin=json.dumps([RUN]).encode()) == [{"id": RUN, "live": True}]
    assert (cluster / RUNS / RUN / "log").exists()
