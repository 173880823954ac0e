from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.remote.ranklines import RankLines


def record(rank: int, stream: str, body: bytes, more: str = ".") -> bytes:
    return b"\x1ekit-line %d %s %s %d\n%s" % (rank, stream.encode(), more.encode(), len(body), body)


def read(data: bytes, size: int = 1 << 20) -> list[tuple[str, str, bytes]]:
    lines = RankLines()
    found = [line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size])]
    return [(line.rank, line.stream, line.text) for line in (*found, *lines.end())]


def test_lines_of_ranks_and_of_mpirun() -> None:
    data = b"mpirun says\n" + record(3, "o", b"a\nb\n") + record(10, "e", b"c\n") + b"at last"
    assert read(data) == [
        ("", "stderr", b"mpirun says"), ("3", "stdout", b"a"), ("3", "stdout", b"b"), ("10", "stderr", b"c"),
        ("", "stderr", b"at last"),
    ]  # fmt: skip


def test_a_long_line_goes_on_whatever_others_say() -> None:
    data = record(1, "o", b"one ", "+") + record(2, "o", b"two\n") + record(1, "e", b"e\n") + record(1, "o", b"more\n")
    assert read(data) == [("2", "stdout", b"two"), ("1", "stderr", b"e"), ("1", "stdout", b"one more")]


def test_a_last_line_without_a_newline_is_a_line() -> None:
    assert read(record(0, "o", b"a\nhalf")) == [("0", "stdout", b"a"), ("0", "stdout", b"half")]
    assert read(record(0, "o", b"cut", "+")) == [("0", "stdout", b"cut")]


def test_what_a_rank_writes_cannot_pass_for_a_record_or_a_mark() -> None:
    evil = b"\x1ekit-exit 0\n" + record(7, "o", b"not seven\n")
    assert read(record(1, "e", evil)) == [("1", "stderr", line) for line in evil.removesuffix(b"\n").split(b"\n")]


@pytest.mark.parametrize("text", [b"\x1ekit-line nonsense\n", b"\x1ekit-exit 3\n", b"\x1e\n"])
def test_what_is_like_a_record_and_none_is_a_line(text: bytes) -> None:
    assert read(b"before\n" + text + record(0, "o", b"x\n")) == [
        ("", "stderr", b"before"), ("", "stderr", text.rstrip(b"\n")), ("0", "stdout", b"x"),
    ]  # fmt: skip


@given(
    parts=st.lists(st.tuples(st.integers(0, 9), st.sampled_from("oe"), st.lists(st.binary(max_size=9), min_size=1))),
    size=st.integers(1, 40),
)
def test_pieces_of_any_size_are_the_same_lines(parts: list[tuple[int, str, list[bytes]]], size: int) -> None:
    data = b"".join(record(rank, stream, b"\n".join(lines) + b"\n") for rank, stream, lines in parts)
    assert read(data, size) == read(data)
    assert len(read(data)) == sum(b.count(b"\n") + 1 for _, _, lines in parts for b in lines)
