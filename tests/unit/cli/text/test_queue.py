"""Tests the text of the line."""

from __future__ import annotations

import time

from kit.cli.text import queue as text
from kit.cli.text.run import runs
from kit.model.queue import Changed, Cordon, HostRow, HostRows, Line, Queued, Reason, WaitingRun
from kit.model.result import RunsResult
from kit.model.values import replace

RUN = WaitingRun(
    id="20261121-101500-3fa2", np=6, counts=(4, 2), hosts=("gpu1", "gpu2", "gpu3"), command=("python", "train.py"),
    by="ann@pc",
)  # fmt: skip


def test_the_line() -> None:
    now = time.time()
    first = replace(RUN, queued=now - 65, reason=Reason(kind="slots", runs=("x",), at=now - 1))
    held = replace(RUN, id="20261121-101500-3fa3", queued=now - 5, priority=-2, reason=Reason(kind="held"))
    lines = text.line(Line(cluster="lab", runs=(first, held), cordons=(Cordon(host="gpu3", why="hot"),))).splitlines()
    assert lines[0].split() == [
        "#", "RUN", "NP", "HOSTS", "PRIORITY", "WAITED", "BY", "WAITS", "STARTS", "COMMAND"
    ]  # fmt: skip
    assert lines[1].split() == [
        "1", first.id, "6", "2", "1m", "5s", "ann@pc", "for", "slots", "of", "x", "soon", "python", "train.py"
    ]  # fmt: skip
    assert lines[2].startswith(f"2  {held.id}  6   2      -2        5s      ann@pc  held; release it")
    assert lines[3] == "gpu3 is cordoned: hot."


def test_the_clock_of_the_head_counts() -> None:
    """That of your machine may be minutes ahead or behind."""
    now = time.time() - 300
    run = replace(RUN, queued=now - 5, reason=Reason(kind="slots", runs=("x",), at=now + 60))
    (row,) = text.line(Line(cluster="lab", runs=(run,), now=now)).splitlines()[1:]
    assert row.split()[4] == "5s"
    assert "soon" not in row
    out = HostRow(name="gpu3", address="10.0.0.3", cordon=Cordon(host="gpu3", why="hot", by="me", at=now - 7))
    (row,) = text.hosts(HostRows(cluster="lab", hosts=(out,), now=now)).splitlines()[1:]
    assert row.split()[-2:] == ["me", "7s"]
    listed = runs(RunsResult(cluster="lab", runs=(), waiting=(run,), now=now)).splitlines()[1].split()
    assert "5s" in listed


def test_an_empty_line() -> None:
    assert text.line(Line(cluster="lab")) == "No run waits in line on cluster lab."


def test_when_it_starts() -> None:
    now = time.mktime((2026, 11, 21, 10, 0, 0, 0, 0, -1))
    for ahead, form in ((600, "by 10:10"), (86400, "by 2026-11-22 10:00"), (-1, "soon")):
        assert text.starts(replace(RUN, reason=Reason(kind="slots", at=now + ahead)), now) == form
    assert text.starts(RUN, now) == ""
    assert text.starts(replace(RUN, reason=Reason(kind="turn", about=now + 600)), now) == "about 10:10"


def test_who_joined() -> None:
    queued = Queued(runs=("a",), ahead=0, np=1, hosts=("gpu1",))
    assert text.queued(queued) == "a"
    assert text.joined(queued).startswith("run a is in line, nobody waits before it; ")
    array = replace(queued, runs=("a", "b"), ahead=3, array="z")
    assert text.queued(array) == "a\nb"
    line = "array z is in line with 2 runs, 3 before it; see it: kit queue; wait for all: kit wait z"
    assert text.joined(array) == line


def test_changes() -> None:
    assert text.changed(Changed(how="hold", runs=("a", "b"))) == "Run a is held.\nRun b is held."
    assert text.changed(Changed(how="remove", runs=("a",), others=("c", "d"))) == (
        "Run a left the line.\nThese runs wait for what left, and never start: c, d."
    )
    assert text.changed(Changed(how="hold", runs=("a",), others=("c",))) == "Run a is held."
    owners = {"a": "anna@laptop", "d": "ci@7f3a"}
    assert text.changed(Changed(how="remove", runs=("a", "b"), others=("c", "d"), owners=owners)) == (
        "Run a of anna@laptop left the line.\nRun b left the line.\n"
        "These runs wait for what left, and never start: c, d of ci@7f3a."
    )


def test_kit_runs_shows_who_waits_first() -> None:
    second = replace(RUN, id="20261121-101500-3fa3", queued=time.time())
    shown = runs(RunsResult(cluster="lab", runs=(), waiting=(replace(second, id=RUN.id), second)))
    assert [line.split()[:8] for line in shown.splitlines()[1:]] == [
        [second.id, "waiting", "6", "2", "of", "3", "hosts:", "gpu[1-3]"],
        [RUN.id, "waiting", "6", "2", "of", "3", "hosts:", "gpu[1-3]"],
    ]
