"""kit-timeline is root in folders of the ranks' user: it follows no link, waits for no pipe, and removes its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import launcher
from tests.fakes.horovod import counters

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
