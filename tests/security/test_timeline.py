"""kit-timeline is root in folders of the ranks' user: it follows no link, waits for no pipe, and removes its own."""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from kit.errors import AnswerError, StepError
from kit.plan.timeline import merge, trace
from kit.remote.ssh.transport import LiveTransport
from kit.remote.timeline.talk import Talk
from tests.fakes import horovod, launcher
from tests.fakes.facts import host
from tests.fakes.horovod import counters
from tests.security.fuzz_timeline import _lines, _Transport

readiness = launcher.load("kitwatch.readiness")
timeline = launcher.load("kitwatch.timeline")
RUN = "20261121-101500-3fa2"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the counters of rank 0 in `counters`, and what a rank must not reach in `secret`."""
    monkeypatch.setattr(readiness, "folder_of", lambda _run: str(tmp_path / "counters"))
    monkeypatch.setattr(readiness, "timeline_folder_of", lambda _run: str(tmp_path / "timelines"))
    (tmp_path / "counters").mkdir()
    (tmp_path / "counters" / "0.7").write_bytes(counters(0))
    (tmp_path / "secret").write_text("a key")
    return tmp_path


def begun() -> Any:
    one = timeline.Timeline(RUN)
    assert one.begin(5, 1.0, 1000) == {"begun": [0]}
    return one


def sent(one: Any) -> list[dict[str, Any]]:
    return list(one.send(0))


def test_a_file_of_a_rank_is_sent(folder: Path) -> None:
    one = begun()
    (folder / "timelines" / "0.7.json").write_text("what a rank wrote")
    *parts, end = sent(one)
    assert len(parts) == 1
    assert end == {"sent": 17}


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_file_is_not_sent(folder: Path, kind: str) -> None:
    one = begun()
    path = folder / "timelines" / "0.7.json"
    match kind:
        case "link":
            path.symlink_to(folder / "secret")
        case "pipe":
            os.mkfifo(path)
        case _:
            path.mkdir()
    assert sent(one) == [{"sent": 0}]
    if kind == "folder":
        path.rmdir()
    one.end()
    assert not (folder / "timelines").exists()
    assert (folder / "secret").read_text() == "a key"


def test_a_link_in_place_of_the_folder_ends_it(folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "file").touch()
    (folder / "timelines").symlink_to("other")
    one = timeline.Timeline(RUN)
    with pytest.raises(OSError, match="timelines"):
        one.begin(5, 1.0, 1000)
    one.end()
    assert (folder / "other" / "file").exists()


def test_a_link_in_place_of_the_orders_is_replaced(folder: Path) -> None:
    for name in ("control", "control.new"):
        (folder / "counters" / name).symlink_to(folder / "secret")
    begun().end()
    assert (folder / "secret").read_text() == "a key"
    assert sorted(path.name for path in (folder / "counters").iterdir()) == ["0.7"]


def test_the_orders_and_the_folder_are_closed_to_others(folder: Path) -> None:
    begun()
    control = folder / "counters" / "control"
    assert control.stat().st_mode & 0o777 == 0o600
    assert control.read_text() == f"5 1.000 1000 {folder}/timelines\n"
    assert (folder / "timelines").stat().st_mode & 0o777 == 0o700


def test_two_timelines_of_a_run_at_once_are_refused(folder: Path) -> None:
    first = begun()
    second = timeline.Timeline(RUN)
    with pytest.raises(timeline.TimelineError, match="another timeline of this run"):
        second.begin(6, 1.0, 1000)
    # The one that was refused removes nothing of the first one.
    second.end()
    assert (folder / "counters" / "control").exists()
    assert (folder / "timelines").exists()
    first.end()
    assert not (folder / "timelines").exists()
    third = begun()
    third.end()


def test_what_a_killed_process_left_is_not_sent(folder: Path) -> None:
    (folder / "timelines").mkdir(mode=0o755)
    (folder / "timelines" / "0.7.json").write_text("old")
    assert sent(begun()) == [{"sent": 0}]
    assert (folder / "timelines").stat().st_mode & 0o777 == 0o700


# What a host says


@contextmanager
def talking(*answers: dict[str, object]) -> Iterator[Talk]:
    """Talk to a host on which ranks 0 and 1 began, and which then says this."""
    hello, begun = {"kit-timeline": 1, "ranks": [0, 1], "size": 2}, {"begun": [0, 1]}
    transport = cast("LiveTransport", _Transport(_lines(hello, begun, *answers)))
    talk = Talk(host(1), lambda _host: transport, "kit-lab-mpinode", RUN)
    try:
        talk.open()
        talk.begin(7, 20.0, 1000)
        yield talk
    finally:
        talk.close()


def part(data: bytes) -> dict[str, object]:
    return {"data": base64.b64encode(zlib.compress(data, 9)).decode()}


def test_a_host_reports_only_ranks_that_began_there() -> None:
    with talking({"states": {"0": 2, "5": 2}}) as talk, pytest.raises(AnswerError, match="did not begin"):
        talk.states()
    with talking({"states": {"0": 2, "1": 2}}) as talk:
        assert talk.states() == {0: 2, 1: 2}


def test_a_host_that_another_timeline_blocks_says_when_it_is_free_again() -> None:
    busy = pytest.raises(StepError, match="another timeline of this run is being written")
    with talking({"error": "another timeline of this run is being written"}) as talk, busy as caught:
        talk.states()
    assert caught.value.hint
    assert "within 5 minutes" in caught.value.hint
    assert timeline.PATIENCE_S == 5 * 60


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([bytes((1 << 20) + 1)], "has more than 1048576 bytes"),
        ([b"x" * (1 << 20)] * 3, "it has more than 2500000 bytes"),
        ([b""], "a part is empty"),
    ],
    ids=["part", "file", "endless"],
)
def test_what_a_host_sends_of_a_rank_has_limits(parts: list[bytes], message: str) -> None:
    """A part of 1 kB could unpack to a gigabyte."""
    end: dict[str, object] = {"sent": sum(map(len, parts))}
    with talking(*map(part, parts), end) as talk, pytest.raises(AnswerError, match=message) as caught:
        talk.receive(0, 2_500_000)
    assert caught.value.host == "gpu1"


def test_names_of_tensors_reach_the_file_without_what_a_terminal_acts_on() -> None:
    name = "a\x1b]52;c;eA==\x07\x9b2J\u202eb"
    piece = trace.read(horovod.written(1_795_472_731_087_651, [(name, 0, 8100, 9200)]))
    rank = merge.RankTrace(rank=0, host="gpu1", trace=piece, offset_us=0.0)
    file = b"".join(merge.merged([rank], run=RUN, clock_error_us=1.0)).decode()
    assert "]52;c;eA==" in file
    assert file.isprintable()
    assert "\\u001b" not in file
