"""Records on their way: from kit-rank through mpirun to the supervisor, and from the log to kit."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.remote.run.log import RunLog
from tests.fakes import launcher

frames = launcher.load("kitrun.frames")

# (rank, kind, more, body): what kit-rank sends, and (None, "m", ".", words): what mpirun says between.
Piece = tuple[bytes | None, str, str, bytes]

BODIES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([
        b"", b"\n", b"a line\n", b"\x1ekit-line 1 o . 3\n", b"\x1ekit-", b"x" * 4000, b"\x1e", b"\x1e12 3 o . 1\n",
    ]),
)  # fmt: skip
RECORDS = st.tuples(
    st.integers(0, 99999).map(lambda n: b"%d" % n), st.sampled_from("oeux"), st.sampled_from("+."), BODIES
)
# Whole lines of what is no record, some much like one.
WORDS = st.lists(
    st.sampled_from([
        b"mpirun has exited", b"", b"\x1e", b"\x1ekit-", b"\x1ekit-line ", b"\x1ekit-line 1 o . x",
        b"\x1ekit-line 1 o . 99999",
        b"\x1ekit-line 12345678901 o . 1", b"x" * 100, b"\x1ekit-line " + b"7" * 100, b"half \x1ekit-line 1 q . 1",
    ]),
    min_size=1, max_size=3,
).map(lambda lines: (None, "m", ".", b"".join(line + b"\n" for line in lines)))  # fmt: skip


def sent(piece: Piece) -> bytes:
    rank, kind, more, body = piece
    if rank is None:
        return body
    end = b"" if body.endswith(b"\n") else b"\n"
    return b"\x1ekit-line %s %s %s %d\n%s%s" % (rank, kind.encode(), more.encode(), len(body), body, end)


def bare(piece: Piece) -> bytes:
    """Return a record of a writer that ends it with its body, as kit-rank did once."""
    rank, kind, more, body = piece
    return body if rank is None else b"\x1ekit-line %s %s %s %d\n%s" % (
        rank, kind.encode(), more.encode(), len(body), body,
    )  # fmt: skip


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    bounds = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in itertools.pairwise(bounds)]


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    """mpirun's words may come in more pieces than they were made of."""
    out: list[Piece] = []
    for piece in pieces:
        if piece[0] is None and out and out[-1][0] is None:
            out[-1] = (None, "m", ".", out[-1][3] + piece[3])
        elif piece[0] is not None or piece[3]:
            out.append(piece)
    return out


def split(parts: Sequence[bytes]) -> list[Piece]:
    splitter = frames.Splitter()
    pieces = [piece for part in parts for piece in splitter.feed(part)]
    return joined([*pieces, *splitter.end()])


@given(st.lists(st.one_of(RECORDS, WORDS), max_size=8), st.lists(st.integers(0, 10**6), max_size=12))
def test_records_come_out_as_they_went_in_however_they_are_cut(pieces: list[Piece], places: list[int]) -> None:
    data = b"".join(map(sent, pieces))
    assert split(cut(data, places)) == joined(pieces)


@given(st.lists(RECORDS, max_size=8), WORDS, st.lists(st.integers(0, 10**6), max_size=12))
def test_records_without_the_newline_come_out_too(records: list[Piece], words: Piece, places: list[int]) -> None:
    pieces = [*records, (None, "m", ".", b"mpirun: " + words[3])]
    assert split(cut(b"".join(map(bare, pieces)), places)) == joined(pieces)


@pytest.mark.parametrize("words", [b"\nwords\n", b"\n\n", b"words\n", b"\n"])
@pytest.mark.parametrize("body", [b"gpu1 1 0 0", b"", b"a line\n"])
def test_only_the_records_own_newline_is_dropped(body: bytes, words: bytes) -> None:
    """mpirun's own words may begin with an empty line."""
    record: Piece = (b"1", "x", ".", body)
    data = sent(record) + words
    for place in range(len(data)):
        assert split(cut(data, [place])) == [record, (None, "m", ".", words)]
    assert split([data[n : n + 1] for n in range(len(data))]) == [record, (None, "m", ".", words)]


def test_a_record_does_not_wait_for_its_newline() -> None:
    splitter = frames.Splitter()
    assert list(splitter.feed(b"\x1ekit-line 1 x . 10\ngpu1 1 0 0")) == [(b"1", "x", ".", b"gpu1 1 0 0")]
    assert list(splitter.feed(b"")) == []
    assert list(splitter.feed(b"\n")) == []
    assert list(splitter.feed(b"\n")) == [(None, "m", ".", b"\n")]


@given(RECORDS)
def test_a_record_is_relayed_as_kit_rank_sends_it(piece: Piece) -> None:
    rank, kind, more, body = piece
    assert frames.relayed(rank, kind, body, more) == sent(piece)


# What Open MPI 5 does with the unfinished end of what it has read


def through_open_mpi_5(packets: Iterable[tuple[object, bytes]]) -> bytes:
    """Return what mpirun prints of packets by their sender. It holds unfinished lines back until more comes."""
    held: dict[object, bytes] = {}
    out = b""
    for sender, data in packets:
        lines, newline, held[sender] = (held.pop(sender, b"") + data).rpartition(b"\n")
        out += lines + newline
    return out + b"".join(held.values())


@given(st.lists(st.one_of(RECORDS, WORDS), max_size=12), st.lists(st.integers(0, 10**6), max_size=12))
def test_open_mpi_5_leaves_records_whole(pieces: list[Piece], places: list[int]) -> None:
    data = through_open_mpi_5((piece[0], sent(piece)) for piece in pieces)
    assert split(cut(data, places)) == joined(pieces)


UP: Piece = (b"0", "o", "+", b"\r10%")
END: Piece = (b"0", "x", ".", b"gpu1 1 0 0")
OTHER: Piece = (b"1", "o", ".", b"a line of the other rank\n")
BANNER: Piece = (None, "m", ".", b"-----------\nprterun detected that one or more processes exited\n")


@pytest.mark.parametrize("between", [OTHER, BANNER])
@pytest.mark.parametrize("record", [UP, END])
def test_open_mpi_5_tears_records_that_end_without_a_newline(record: Piece, between: Piece) -> None:
    pieces = [record, between]
    torn = split([through_open_mpi_5((piece[0], bare(piece)) for piece in pieces)])
    assert torn[0][3] != record[3]
    assert record[3] in torn[-1][3]
    assert split([through_open_mpi_5((piece[0], sent(piece)) for piece in pieces)]) == pieces


@given(
    st.lists(
        st.sampled_from([
            b"\x1ekit-line 3 o . 4\nabc\n", b"\x1ekit-line 3 o + 2\nab", b"\x1ekit-line 3 l . 0\n", b"\x1ekit-line ",
            b"\x1e", b"\n", b"4", b" o . ", b"x" * 70,
        ])
    )
)  # fmt: skip
def test_any_bytes_give_the_same_however_they_are_cut(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    whole = split([data])
    assert split([data[n : n + 1] for n in range(len(data))]) == whole
    assert split(pieces) == whole


def test_a_record_behind_what_is_none_is_found() -> None:
    data = b"\x1ekit-line " + b"7" * 80 + b"\x1ekit-line 3 o . 4\nabc\nwords\n"
    assert split([data]) == [
        (None, "m", ".", b"\x1ekit-line " + b"7" * 80), (b"3", "o", ".", b"abc\n"), (None, "m", ".", b"words\n"),
    ]  # fmt: skip


@pytest.mark.parametrize("words", [b"a line\n", b"\x1ekit-line 1 o . 99999999\n", b"\x1ekit-line nonsense\n"])
def test_words_are_reported_when_their_line_ends(words: bytes) -> None:
    """Nothing waits for more of a record that none is."""
    splitter = frames.Splitter()
    assert joined(splitter.feed(words + b"and ")) == [(None, "m", ".", words)]
    assert list(splitter.end()) == [(None, "m", ".", b"and ")]


# The log

ENTRIES = st.one_of(
    st.tuples(RECORDS, st.integers(0, 2**42)).map(
        lambda pair: frames.record(pair[1], pair[0][0], *pair[0][1::2], pair[0][2])
    ),
    WORDS.map(lambda piece: frames.record(7, b"-", "m", piece[3])),
    st.just(frames.event(7, "lost", host="gpu2")),
)  # fmt: skip


def read(parts: Iterable[bytes]) -> tuple[list[object], int]:
    log = RunLog()
    pieces: list[object] = [entry for part in parts for entry in log.feed(part)]
    return [*pieces, *log.end()], log.taken


@given(st.lists(ENTRIES, max_size=8), st.lists(st.integers(0, 10**6), max_size=12))
def test_a_log_reads_the_same_however_it_comes(records: list[bytes], places: list[int]) -> None:
    data = b"".join(records)
    entries, taken = read(cut(data, places))
    assert (entries, taken) == read([data])
    assert taken == len(data)
    assert len([entry for entry in entries if entry.time]) <= len(records)  # type: ignore[attr-defined]


@given(st.lists(ENTRIES, min_size=1, max_size=6), st.integers(0, 10**6), st.lists(st.integers(0, 10**6), max_size=3))
def test_reading_goes_on_behind_every_whole_record(records: list[bytes], place: int, places: list[int]) -> None:
    """A stream that broke anywhere: what was taken, and the rest on another, are the whole."""
    data = b"".join(records)
    first = RunLog()
    before = [entry for part in cut(data[: place % (len(data) + 1)], places) for entry in first.feed(part)]
    assert first.taken in {len(b"".join(records[:n])) for n in range(len(records) + 1)}
    first.again()
    after = list(first.feed(data[first.taken :]))
    assert [*before, *after, *first.end()] == read([data])[0]
    assert first.taken == len(data)


def test_reading_that_begins_within_a_record_finds_the_next() -> None:
    one = frames.record(1000, b"0", "o", b"one\n" * 30)
    two = frames.record(2000, b"1", "e", b"two\n")
    for start in (1, 10, 40, len(one) - 1):
        log = RunLog()
        (entry,) = log.feed((one + two)[start:])
        assert (entry.rank, entry.kind, entry.lines, entry.time) == ("1", "err", (b"two",), 2.0)
        assert log.taken == len(one) - start + len(two)


def test_a_line_may_come_in_pieces() -> None:
    log = RunLog()
    parts = (("0", "o", b"a\nbe", "+"), ("1", "o", b"x\n", "."), ("0", "e", b"e\n", "."), ("0", "o", b"gun\n", "."))
    data = b"".join(frames.record(1, rank.encode(), kind, body, more) for rank, kind, body, more in parts)
    assert [(e.rank, e.kind, e.lines) for e in log.feed(data)] == [
        ("0", "out", (b"a",)), ("1", "out", (b"x",)), ("0", "err", (b"e",)), ("0", "out", (b"begun",)),
    ]  # fmt: skip
    assert list(log.end()) == []


def test_events() -> None:
    log = RunLog()
    data = frames.event(1500, "hang", why="x", ranks=[{"rank": 0}]) + frames.record(1, b"-", "k", b"rubbish")
    hang, rubbish = log.feed(data)
    assert (hang.kind, hang.rank, hang.time) == ("event", "", 1.5)
    assert hang.fields == {"event": "hang", "why": "x", "ranks": [{"rank": 0}]}
    assert rubbish.fields == {}
    assert json.loads(data.partition(b"\n")[2].partition(b"\x1e")[0]) == hang.fields


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"a\r", b"a"), (b"\r10%\r20%", b"20%"), (b"10%\r20%\r", b"20%"), (b"\b\b\b\r 2/10", b" 2/10"),
        (b"100%\r    \rdone", b"done"), (b"no bar\b", b"no bar\b"), (b"\r", b""), (b"", b""),
    ],
)  # fmt: skip
def test_a_line_is_what_a_terminal_shows(line: bytes, text: bytes) -> None:
    (entry,) = RunLog().feed(frames.record(1, b"0", "o", line + b"\n"))
    assert entry.lines == (text,)
    assert frames.shown(line) == text


def grow(log: RunLog, body: bytes, more: str = "+", rank: bytes = b"0") -> list[tuple[str, bytes]]:
    """Feed a record. Return (rank, line) of the unfinished lines that have changed."""
    assert [entry.lines for entry in log.feed(frames.record(1, rank, "o", body, more))]
    return [(entry.rank, entry.lines[0]) for entry in log.unfinished()]


def test_unfinished_lines_are_known_as_far_as_they_are() -> None:
    log = RunLog()
    assert grow(log, b"10%\r") == [("0", b"10%")]
    assert grow(log, b"20%\r") == [("0", b"20%")]
    assert grow(log, b"Name: ", rank=b"1") == [("1", b"Name: ")]
    assert grow(log, b"x\n", ".", rank=b"1") == []
    assert grow(log, b"100%\nnext", "+") == [("0", b"next")]
    assert [entry.lines for entry in log.end()] == [(b"next",)]
    assert log.unfinished() == []


def test_a_bar_of_any_length_takes_little_memory_and_a_long_line_is_whole() -> None:
    log = RunLog()
    for n in range(5000):
        grow(log, b"\r%08d" % n)
        grow(log, b"%08d" % n, rank=b"1")
    assert max(len(text) for key, text in log._lines._partial.items() if key[0] == b"0") < 9000
    (entry,) = log.feed(frames.record(1, b"1", "o", b"\n"))
    assert entry.lines == (b"".join(b"%08d" % n for n in range(5000)),)
    (entry,) = log.feed(frames.record(1, b"0", "o", b"\n"))
    assert entry.lines == (b"00004999",)
