"""The records of kit-rank among mpirun's own words, as kit local reads them."""

from __future__ import annotations

import random

import pytest

from kit.remote.run.relayed import Piece, Relayed
from tests.fakes import launcher

frames = launcher.load("kitrun.frames")


def pieces(*data: bytes) -> list[tuple[str, str, bytes]]:
    """Return what comes of these bytes, with the words of mpirun that follow each other as one."""
    relayed = Relayed()
    pieces: list[Piece] = [piece for part in data for piece in relayed.feed(part)]
    together: list[tuple[str, str, bytes]] = []
    for piece in [*pieces, *relayed.end()]:
        if piece.kind == "words" and together and together[-1][0] == "words":
            together[-1] = ("words", "", together[-1][2] + piece.data)
        else:
            together.append((piece.kind, piece.rank, piece.data))
    return together


def sent(rank: bytes, kind: str, body: bytes, more: str = ".") -> bytes:
    record: bytes = frames.relayed(rank, kind, body, more)
    return record


STREAM = (
    b"mpirun says\n"
    + sent(b"0", "u", b"gpu1 77")
    + sent(b"0", "o", b"one\ntwo\n")
    + sent(b"12", "e", b"\r10%", "+")
    + b"in between"
    + sent(b"0", "x", b"gpu1 0 0 0")
    + b"\x1e no record\n\x1ekit-line x\n"
    + sent(b"1", "o", b"\x1ekit-line 3 o . 2\n", "+")
    + b"the end"
)
EXPECTED = [
    ("words", "", b"mpirun says\n"),
    ("other", "0", b"gpu1 77"),
    ("out", "0", b"one\ntwo\n"),
    ("err", "12", b"\r10%"),
    ("words", "", b"in between"),
    ("other", "0", b"gpu1 0 0 0"),
    ("words", "", b"\x1e no record\n\x1ekit-line x\n"),
    ("out", "1", b"\x1ekit-line 3 o . 2\n"),
    ("words", "", b"the end"),
]


def test_records_and_words() -> None:
    assert pieces(STREAM) == EXPECTED


@pytest.mark.parametrize("seed", range(50))
def test_pieces_of_any_size_are_the_same(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  (the same bytes each time)
    cuts = sorted(chance.choices(range(len(STREAM) + 1), k=chance.randrange(1, len(STREAM))))
    parts = [STREAM[first:last] for first, last in zip([0, *cuts], [*cuts, len(STREAM)], strict=True)]
    assert pieces(*parts) == EXPECTED


@pytest.mark.parametrize("seed", range(50))
def test_it_reads_records_as_a_supervisor_does(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  (the same bytes each time)
    bodies = [chance.choice([b"a\n", b"a\nb", b"", b"\x1e", b"x" * 3000 + b"\n"]) for _ in range(20)]
    stream = b"".join(
        sent(b"%d" % chance.randrange(9), chance.choice("oeuxl"), body, chance.choice(".+")) for body in bodies
    )
    here = [piece for piece in Relayed().feed(stream) if piece.kind != "words"]
    there = [piece for piece in frames.Splitter().feed(stream) if piece[0] is not None]
    assert [(one.rank, one.more, one.data) for one in here] == [
        ((rank or b"").decode(), more == "+", body) for rank, _, more, body in there
    ]


def test_words_do_not_wait_for_their_line() -> None:
    """A program without kit-rank may write a bar or a prompt."""
    relayed = Relayed()
    assert [piece.data for piece in relayed.feed(b"name? ")] == [b"name? "]
    assert list(relayed.feed(b"\x1ekit-li")) == []
    assert [piece.data for piece in relayed.feed(b"fe\n")] == [b"\x1e", b"kit-life\n"]


def test_a_record_is_held_back_until_it_is_whole() -> None:
    relayed = Relayed()
    record = sent(b"0", "o", b"x" * 2000 + b"\n")
    assert list(relayed.feed(record[:-1])) == []
    assert [piece.data for piece in relayed.feed(record[-1:])] == [b"x" * 2000 + b"\n"]


def test_what_claims_to_be_longer_than_any_record_is_none() -> None:
    assert pieces(b"\x1ekit-line 0 o . 99999\nx") == [("words", "", b"\x1ekit-line 0 o . 99999\nx")]
