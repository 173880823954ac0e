"""Long lists and many reports: each frame has room for them, and a list that comes fast waits for its connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fakes import launcher
from tests.fakes.head import until

manifest, member, source, wire = (launcher.load(f"kitdata.{name}") for name in ("manifest", "member", "source", "wire"))
Entry = source.Entry
# Names that JSON makes six times as long, and twelve times for each character.
LONG = ["\x01" * 255, "\udce4" * 255, "\U0001f40d" * 63, "a" * 255]


class Many:
    """A source with a list without an end, unless `count` says how many files it has."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.listed = 0

    def entries(self) -> Iterator[Any]:
        for number in range(self.count):
            self.listed += 1
            yield Entry(f"{LONG[number % 4]}/{number:07}", number, 10**18, "0" * 32)

    def close(self) -> None:
        pass


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    listener = SimpleNamespace(port=1, close=lambda: None)
    monkeypatch.setattr(member.tls, "Listener", lambda *_: listener)
    monkeypatch.setattr(wire, "BATCH", 100)
    monkeypatch.setattr(wire, "FULL", 50_000)
    made = member.Member(str(tmp_path), member.Joining("id", "address", None, None), lambda _: None, lambda: None)
    yield made
    made.close()


def started(work: Any, *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


def test_a_list_of_very_many_files_waits_and_comes_in_frames_with_room(one: Any) -> None:
    one._source = Many(6000)
    listing = started(one._list)
    until(lambda: one._reports.qsize() == member.AHEAD and one._source.listed > member.AHEAD * 10)
    assert one._source.listed < 6000
    ours, theirs = socket.socketpair()
    sending = started(one._send_reports, theirs)
    rows: list[Any] = []
    reports: list[Any] = []
    with ours:
        while ["listed"] not in reports:
            # What a row more than a full frame has.
            reports = wire.receive(ours, wire.FULL + 10_000)["reports"]
            rows += [row for report in reports if report[0] == "list" for row in report[1]]
    assert [tuple(row) for row in rows] == [tuple(entry) for entry in Many(6000).entries()]
    one.close()
    for thread in (listing, sending):
        thread.join(10)
        assert not thread.is_alive()
    theirs.close()


@pytest.mark.parametrize("connected", [False, True])
def test_a_list_that_nobody_takes_ends_with_its_member(one: Any, connected: bool) -> None:
    one._source = Many(10**9)
    listing = started(one._list)
    until(lambda: one._reports.qsize() == member.AHEAD)
    if connected:
        ours, theirs = socket.socketpair()
        ours.close()
        one._send_reports(theirs)
        theirs.close()
    else:
        one.close()
    listing.join(10)
    assert not listing.is_alive()


@given(st.lists(st.tuples(st.integers(0, 2), st.text(max_size=40)), max_size=30), st.integers(1, 100))
def test_reports_share_frames_that_have_room(items: list[tuple[int, str]], full: int) -> None:
    reports = [(round_, ["gone", text]) for round_, text in items]
    most, wire.FULL = wire.FULL, full
    try:
        frames = list(wire.frames(reports))
    finally:
        wire.FULL = most
    got = []
    for frame in frames:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(frame)
            value = wire.receive(ours)
        assert value["reports"]
        size = sum(len(wire._ENCODER.encode(report)) for report in value["reports"])
        assert size <= full or len(value["reports"]) == 1
        got += [(value["round"], report) for report in value["reports"]]
    assert got == reports


@given(st.lists(st.text(max_size=300), max_size=60))
@example([chr(0x1F400 + number) * 300 for number in range(7)])
def test_a_list_is_sent_in_parts_that_have_room(paths: list[str]) -> None:
    listed = [Entry(path, 1 << 50, (-1) ** number << 62, "0" * 32) for number, path in enumerate(paths)]
    before = wire.BATCH, wire.FULL
    wire.BATCH, wire.FULL = 7, 5000
    try:
        batches = list(wire.batches(listed))
    finally:
        wire.BATCH, wire.FULL = before
    assert [entry for batch in batches for entry in batch] == listed
    for batch in batches:
        text = wire._ENCODER.encode(manifest.columns(batch))
        assert 0 < len(batch) <= 7
        assert len(text) <= 5000 or len(batch) == 1
