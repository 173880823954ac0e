"""Frames come out as they went in, or not at all."""

from __future__ import annotations

import io
import json
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.remote.ship.porter import wire

frames = st.tuples(st.sampled_from([wire.HEADER, wire.DATA, wire.KEEP, wire.END]), st.binary(max_size=300))


def written(kind: bytes, payload: bytes) -> bytes:
    stream = io.BytesIO()
    wire.write_frame(stream, kind, payload)
    return stream.getvalue()


@given(st.lists(frames, max_size=5))
def test_frames_come_out_as_they_went_in(given_frames: list[tuple[bytes, bytes]]) -> None:
    stream = io.BytesIO(b"".join(written(*frame) for frame in given_frames))
    assert [wire.read_frame(stream) for _ in given_frames] == given_frames
    assert stream.read() == b""


@given(st.binary(max_size=1000))
def test_a_packed_frame_is_data_again(payload: bytes) -> None:
    stream = io.BytesIO(written(wire.PACKED, zlib.compress(payload)))
    assert wire.read_frame(stream) == (wire.DATA, payload)


@given(frames, st.integers(min_value=0))
def test_a_frame_that_was_cut_is_broken(frame: tuple[bytes, bytes], cut: int) -> None:
    whole = written(*frame)
    with pytest.raises(wire.Broken):
        wire.read_frame(io.BytesIO(whole[: cut % len(whole)]))


def test_a_frame_longer_than_anybody_sends_is_not_waited_for() -> None:
    assert len(wire.read_frame(io.BytesIO(written(wire.DATA, b"x" * 2 * wire.CHUNK)))[1]) == 2 * wire.CHUNK
    stream = io.BytesIO(struct.pack(">cI", wire.DATA, 2 * wire.CHUNK + 1) + b"x" * 10)
    with pytest.raises(wire.Broken, match="impossible length"):
        wire.read_frame(stream)
    assert stream.read() == b"x" * 10


def test_a_packed_frame_of_garbage_is_broken() -> None:
    with pytest.raises(wire.Broken, match="cannot be unpacked"):
        wire.read_frame(io.BytesIO(written(wire.PACKED, b"not packed")))


def test_a_header_says_where_the_bytes_go() -> None:
    stream = io.BytesIO()
    wire.write_header(stream, "a" * 64, 7, 3)
    kind, payload = wire.read_frame(io.BytesIO(stream.getvalue()))
    assert kind == wire.HEADER
    assert json.loads(payload) == {"layer": "a" * 64, "size": 7, "at": 3}


@given(st.dictionaries(st.text(max_size=20), st.integers() | st.text(max_size=20)))
def test_a_line_comes_out_as_it_went_in_unless_it_was_cut(value: dict[str, object]) -> None:
    stream = io.BytesIO()
    wire.write_line(stream, value)
    assert wire.read_line(io.BytesIO(stream.getvalue())) == value
    with pytest.raises(wire.Broken):
        wire.read_line(io.BytesIO(stream.getvalue()[:-1]))


@pytest.mark.parametrize("line", [b"", b"[1]\n", b"7\n", b"{\n", b"\xff\n"])
def test_a_line_of_something_else_is_broken(line: bytes) -> None:
    with pytest.raises(wire.Broken):
        wire.read_line(io.BytesIO(line))
