"""Lines of JSON that kit sends to kit-launch, in pieces of any size."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes import launcher

requests: Any = launcher.load("kitrun.requests")


class Piece(bytes):
    """Counts in `copied` the bytes before it to which somebody adds it."""

    copied: int

    def __radd__(self, before: bytes) -> bytes:
        Piece.copied += len(before)
        return bytes.__add__(before, bytes(self))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[bytes]], Any]:
    """Return an input whose reads give these pieces, and then the end."""

    def make(pieces: list[bytes]) -> Any:
        left = [Piece(piece) for piece in pieces]
        Piece.copied = 0
        monkeypatch.setattr(requests, "select", SimpleNamespace(select=lambda *_: ([0], [], [])))
        monkeypatch.setattr(requests, "os", SimpleNamespace(read=lambda *_: left.pop(0) if left else b""))
        return requests.Input()

    return make


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_lines_come_whole_however_they_are_cut(sent: Callable[[list[bytes]], Any], size: int) -> None:
    data = b'{"a": 1}\nno JSON\n\n{"b": "\xc3\xa4"}\n{"c": 3}\n{"never'
    read = sent([data[at : at + size] for at in range(0, len(data), size)])
    values = []
    while not read.over:
        values += read.lines(None)
    assert values == [{"a": 1}, None, None, {"b": "ä"}, {"c": 3}]


def test_a_long_line_is_not_copied_again_for_each_of_its_pieces(sent: Callable[[list[bytes]], Any]) -> None:
    """The request for an array of 1,000 runs on 256 hosts has 25 MB."""
    line = json.dumps({"entries": "x" * 100_000}).encode() + b"\n"
    read = sent([line[at : at + 100] for at in range(0, len(line), 100)])
    assert read.first() == json.loads(line)
    assert Piece.copied <= len(line)
