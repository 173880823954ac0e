"""What one rank wrote: slices from events, and what is no such file."""

from __future__ import annotations

import json

import pytest

from kit.model.answer import OddAnswer
from kit.model.timeline import Slice
from kit.plan.timeline import trace
from tests.fakes import horovod

EPOCH = 1_795_472_731_087_651


def test_slices_have_their_tensor_their_depth_and_what_the_end_says() -> None:
    found = trace.read(horovod.written(EPOCH, [("grads/conv", -5, 20, 40)]))
    assert found.epoch_us == EPOCH
    assert found.slices == (
        Slice("grads/conv", "WAIT", -5, 20),
        Slice("grads/conv", "MPI_ALLREDUCE", 21, 39, depth=1),
        Slice("grads/conv", "ALLREDUCE", 20, 40, args=(("dtype", "float32"), ("shape", "[4]"))),
    )


def events(*more: dict[str, object]) -> bytes:
    first = {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": EPOCH}}
    return json.dumps([first, *more]).encode()


def test_a_slice_without_its_begin_or_its_end_is_left_out() -> None:
    end = {"ph": "E", "ts": 5, "pid": 1}
    begin = {"ph": "B", "name": "ALLREDUCE", "ts": 7, "pid": 1}
    ready = {"ph": "X", "name": "3", "ts": 8, "pid": 1, "dur": 0}
    cycle = {"ph": "i", "name": "CYCLE_START", "ts": 9, "s": "g"}
    assert trace.read(events(end, begin, ready, cycle)).slices == ()


def test_the_file_of_a_killed_rank_is_read_to_its_last_whole_event() -> None:
    whole = horovod.written(EPOCH, [("a", 0, 10, 20), ("a", 30, 40, 50)])
    for length in range(whole.rindex(b"MPI_ALLREDUCE"), len(whole)):
        assert [piece.name for piece in trace.read(whole[:length]).slices][:3] == ["WAIT", "MPI_ALLREDUCE", "ALLREDUCE"]
    assert len(trace.read(whole).slices) == 6


def test_a_rank_that_wrote_nothing_has_no_slices() -> None:
    assert trace.read(b"").slices == ()


def test_names_are_printable_and_short() -> None:
    found = trace.read(horovod.written(EPOCH, [("\x1b[31m" + "x" * 900, 0, 1, 2)]))
    assert "\x1b" not in found.slices[0].tensor
    assert len(found.slices[0].tensor) <= 200
    odd = {"ph": "E", "ts": 8, "pid": 1, "args": {"\u202e" + "k" * 900: ["\x1b[31m"]}}
    (piece,) = trace.read(events({"ph": "B", "name": "ALLREDUCE", "ts": 7, "pid": 1}, odd)).slices
    ((key, value),) = piece.args
    assert (key[:7], len(key)) == ("\\u202ek", 200)
    assert value.isprintable()


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"{}",
        b"rubbish",
        b"[1]",
        b'[{"ph": "B", "ts": 1, "pid": 1, "name": "x"}]',
        b'[{"ph": "M", "name": "process_name", "args": {"start_time_since_epoch_in_micros": -1}}]',
        b'[{"ph": "M", "name": "process_name", "args": {"start_time_since_epoch_in_micros": "now"}}]',
        b'[{"ph": "B", "ts": "soon"}]',
        b"[" * 100_000,
    ],
)
def test_what_is_no_timeline_is_odd(data: bytes) -> None:
    with pytest.raises(OddAnswer):
        trace.read(data)
