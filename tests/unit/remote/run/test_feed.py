"""Tests what kit does with its standard input."""

from __future__ import annotations

import base64
import io
import os
import socket
from pathlib import Path
from typing import Any

from kit.remote.run.feed import CHUNK, Feed, holds_data, piped
from tests.fakes.head import until


class Sent:
    """A door that keeps what is sent."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def send(self, value: Any) -> None:
        self.values.append(value["stdin"])


def test_pipes_and_files_are_read_and_terminals_are_not(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    read_end, write_end = os.pipe()
    master, terminal = os.openpty()
    try:
        with open(read_end, closefd=False) as pipe, (tmp_path / "file").open() as file:
            assert piped(pipe) == read_end
            assert piped(file) == file.fileno()
        with Path(os.devnull).open() as nothing, open(terminal, closefd=False) as screen:
            assert piped(nothing) is None
            assert piped(screen) is None
    finally:
        for descriptor in (read_end, write_end, master, terminal):
            os.close(descriptor)
    assert piped(None) is None
    assert piped(io.StringIO("x")) is None


def test_only_input_that_nobody_has_read_is_data(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("xy")
    with (tmp_path / "file").open("rb", buffering=0) as file:
        assert holds_data(file.fileno())
        file.read()
        assert not holds_data(file.fileno())
    assert not holds_data(closed())
    left, right = socket.socketpair()
    read_end, write_end = os.pipe()
    with left, right, os.fdopen(read_end, "rb", 0) as pipe:
        assert not holds_data(left.fileno())
        right.send(b"x")
        assert holds_data(left.fileno())
        # A pipe that is open and empty, as in CI.
        assert not holds_data(read_end)
        os.write(write_end, b"x" * 300)
        os.close(write_end)
        assert holds_data(read_end)
        assert pipe.read() == b"x" * 300
        assert not holds_data(read_end)


def closed() -> int:
    """Return a descriptor that is not open any more."""
    read_end, write_end = os.pipe()
    os.close(write_end)
    os.close(read_end)
    return read_end


def test_all_of_it_is_sent_and_then_its_end(tmp_path: Path) -> None:
    content = os.urandom(2 * CHUNK + 7)
    (tmp_path / "file").write_bytes(content)
    door = Sent()
    with (tmp_path / "file").open("rb") as file:
        feed = Feed(file.fileno(), door)  # type: ignore[arg-type]
        feed.run()
    *pieces, end = door.values
    assert b"".join(base64.b64decode(piece) for piece in pieces) == content
    assert end is None
    assert not feed.cut()


def test_an_empty_pipe_that_another_program_made_fail_is_not_at_its_end() -> None:
    """ssh and Node leave the pipe of a script like this."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    door = Sent()
    feed = Feed(read_end, door)  # type: ignore[arg-type]
    feed.start()
    # Without a wait, the feed has sent the end here.
    until(lambda: os.get_blocking(read_end) or bool(door.values))
    os.write(write_end, b"late")
    os.close(write_end)
    feed.join()
    os.close(read_end)
    assert door.values == [base64.b64encode(b"late").decode(), None]


def test_after_a_cut_nothing_more_is_sent() -> None:
    read_end, write_end = os.pipe()
    door = Sent()
    feed = Feed(read_end, door)  # type: ignore[arg-type]
    assert feed.cut()
    os.write(write_end, b"late")
    feed.run()
    assert door.values == []
    os.close(read_end)
    os.close(write_end)
