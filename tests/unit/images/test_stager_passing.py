"""kitdata.passing: what a host sends next, what it keeps in memory, and how fast it may go."""

from __future__ import annotations

import itertools
import queue
from typing import Any

import pytest

from tests.fakes import launcher

passing: Any = launcher.load("kitdata.passing")


@pytest.fixture(autouse=True)
def hang_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peers here are no sockets."""
    monkeypatch.setattr(passing.tls, "hang_up", lambda peer: None)


class Peer:
    """The other end of a connection: keeps what was sent. The first `fails` connections cannot be made."""

    def __init__(self, fails: int = 0) -> None:
        self.sent = b""
        self.serials: list[int] = []
        self._fails = fails

    def connect(self, _: int, serial: int) -> Peer:
        self.serials.append(serial)
        if len(self.serials) <= self._fails:
            raise OSError("refused")
        return self

    def sendall(self, data: bytes) -> None:
        self.sent += bytes(data)

    def close(self) -> None:
        pass


class Line:
    """A sender and what it reports."""

    def __init__(self, peer: Peer) -> None:
        self.reports: queue.Queue[list[Any]] = queue.Queue()
        way = passing.Way(peer.connect, passing.Bucket(0))
        self.sender = passing.Sender(1, way, self.load, lambda _, report: self.reports.put(report))
        self.loaded: list[int] = []

    def load(self, _: int, piece: int) -> Any:
        self.loaded.append(piece)
        return whole(b"disk")

    def put(self, piece: int, buffer: Any) -> None:
        self.sender.put(passing.Item(1, piece, (1,), buffer, lambda: self.reports.put(["over", piece])))

    def next(self) -> list[Any]:
        return self.reports.get(timeout=30)


def whole(data: bytes) -> Any:
    buffer = passing.Buffer(len(data), 1, data)
    buffer.finish(b"s" * 32)
    return buffer


def test_a_piece_passes_on_while_it_comes() -> None:
    peer = Peer()
    line = Line(peer)
    buffer = passing.Buffer(6, 1)
    line.put(0, buffer)
    buffer.put(0, b"abc")
    while b"abc" not in peer.sent:
        assert line.reports.empty()
    buffer.put(3, b"def")
    buffer.finish(b"s" * 32)
    assert line.next() == ["sent", 0, 1, 1]
    assert peer.sent.endswith(b"abcdef" + b"s" * 32)
    line.sender.close()


def test_a_piece_that_does_not_come_holds_up_no_other() -> None:
    line = Line(Peer())
    slow = passing.Buffer(3, 1)
    line.put(0, slow)
    line.put(1, whole(b"here"))
    assert [line.next(), line.next()] == [["sent", 1, 1, 1], ["over", 1]]
    slow.put(0, b"abc")
    slow.finish(b"s" * 32)
    assert [line.next(), line.next()] == [["sent", 0, 1, 1], ["over", 0]]
    line.sender.close()


def test_a_piece_that_breaks_off_ends_its_connection_and_the_next_one_gets_another() -> None:
    peer = Peer()
    line = Line(peer)
    buffer = passing.Buffer(3, 1)
    line.put(0, buffer)
    buffer.put(0, b"a")
    while not peer.sent.endswith(b"a"):
        pass
    buffer.abort()
    assert [line.next(), line.next()] == [["unsent", 0, 1, True], ["over", 0]]
    line.put(1, whole(b"x"))
    assert line.next() == ["sent", 1, 1, 2]
    line.sender.close()


def test_a_host_out_of_reach_is_reported_with_all_that_waits_for_it() -> None:
    line = Line(Peer(fails=100))
    for piece in range(2):
        line.put(piece, whole(b"x"))
    assert [line.next() for _ in range(4)] == [
        ["unsent", 0, 1, False], ["over", 0], ["unsent", 1, 1, False], ["over", 1],
    ]  # fmt: skip
    line.sender.close()
    line.put(2, whole(b"x"))
    assert [line.next(), line.next()] == [["unsent", 2, 1, False], ["over", 2]]


def test_pieces_that_wait_and_are_on_the_disk_leave_memory() -> None:
    line = Line(Peer())
    blocked = passing.Buffer(2, 1)
    line.put(0, blocked)
    blocked.put(0, b"a")
    # The sender is in the middle of this piece.
    while line.sender._items:
        pass
    buffers = [whole(b"memory") for _ in range(passing.KEEP + 2)]
    for number, buffer in enumerate(buffers):
        buffer.stored = number != passing.KEEP
        line.put(number + 1, buffer)
    line.sender.trim()
    blocked.put(1, b"b")
    blocked.finish(b"s" * 32)
    for _ in range(2 * (len(buffers) + 1)):
        line.next()
    # Not the one that is not on the disk yet.
    assert line.loaded == [passing.KEEP + 2]
    line.sender.close()


@pytest.mark.parametrize("rate", [1000, 1_000_000])
def test_a_bucket_lets_its_rate_through(rate: int) -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    bucket = passing.Bucket(rate, lambda: clock[0], sleep)
    for _ in itertools.repeat(None, 100):
        bucket.take(rate // 10)
    # 10 seconds, less the first burst.
    assert 9.8 < clock[0] <= 10
    clock[0] += 1000
    start = clock[0]
    bucket.take(rate)
    # A long pause is no reason for a long burst.
    assert clock[0] - start == pytest.approx(0.9)


def test_without_a_limit_nothing_waits() -> None:
    def sleep(_: float) -> None:
        raise AssertionError

    passing.Bucket(0, sleep=sleep).take(1 << 40)
