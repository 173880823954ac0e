"""The program that reads runs on a VM, run for real on this machine. Ranks write the files, so they are hostile."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.remote.results import far

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
    assert one == {"id": RUN, "live": False, "files": 3, "output": 5, "checkpoints": 3, "work": 0, "log": 5}
    with living(cluster / RUNS / RUN):
        assert lines("survey", str(cluster), RUNS)[0]["live"] is True
        (cluster / RUNS / RUN / "end.json").touch()
        assert lines("survey", str(cluster), RUNS)[0]["live"] is False


def test_a_host_without_runs_has_none(tmp_path: Path) -> None:
    assert lines("survey", str(tmp_path), RUNS) == []
    assert lines("survey", str(tmp_path / "none"), RUNS) == []
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
