"""The file of all ranks: what a viewer of the Trace Event Format requires, and what each rank waited."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kit.model.timeline import Slice, Trace
from kit.plan.timeline import trace
from kit.plan.timeline.merge import RankTrace, merged, overview, rank_times, seconds
from tests.fakes import horovod

# (tensors of one operation, each with the time from its enqueue to the begin; the operation's time; pause after it)
STEPS = st.lists(
    st.tuples(st.lists(st.integers(0, 500), min_size=1, max_size=4), st.integers(10, 300), st.integers(0, 50)),
    min_size=1,
    max_size=12,
)


def traced(steps: list[tuple[list[int], int, int]], epoch: int = 1_000_000) -> Trace:
    """Return the timeline of a rank: its operations run one after the other."""
    operations: list[horovod.Operation] = []
    at = 0
    for waits, length, pause in steps:
        at += max(waits) + pause
        operations += [(f"part{n}", at - wait, at, at + length) for n, wait in enumerate(waits)]
        at += length
    return trace.read(horovod.written(epoch, operations))


def written(ranks: list[RankTrace], *, clock_error_us: float) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(b"".join(merged(ranks, run="a-run", clock_error_us=clock_error_us)))
    return content


def check(content: dict[str, Any]) -> dict[tuple[int, str], list[tuple[float, float]]]:
    """Check the file by the Trace Event Format: names, numbers, and slices of a track that nest.

    Return the slices by rank and name of the track.
    """
    assert set(content) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert content["displayTimeUnit"] in ("ms", "ns")
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    named = set()
    for event in content["traceEvents"]:
        assert event["ph"] in ("X", "M")
        assert isinstance(event["pid"], int)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "process_sort_index", "thread_name", "thread_sort_index")
            key = "sort_index" if event["name"].endswith("sort_index") else "name"
            assert list(event["args"]) == [key]
            named.add((event["pid"], event.get("tid")))
        else:
            assert event["name"]
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    # Perfetto may take threads with the same number as one, and one with the number of a process as its main thread.
    threads = [tid for _, tid in named if tid is not None]
    assert len(threads) == len(set(threads))
    assert not {pid for pid, _ in named} & set(threads)
    for track, slices in tracks.items():
        assert track in named
        open_: list[float] = []
        # Sorted by their begin alone: Perfetto takes the first of two that begin together as the outer one.
        for start, end in sorted(slices, key=lambda one: one[0]):
            while open_ and open_[-1] <= start + 1e-3:
                open_.pop()
            assert not open_ or end <= open_[-1] + 1e-3, (track, start, end, open_)
            open_.append(end)
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in content["traceEvents"]
        if event["name"] == "thread_name"
    }
    return {(pid, names[pid, tid]): slices for (pid, tid), slices in tracks.items()}


@given(ranks=st.lists(STEPS, min_size=1, max_size=4))
def test_the_file_is_in_the_trace_event_format(ranks: list[list[tuple[list[int], int, int]]]) -> None:
    every = [
        RankTrace(rank=rank, host=f"gpu{rank // 2}", trace=traced(steps), offset_us=rank * 100.5)
        for rank, steps in enumerate(ranks)
    ]
    tracks = check(written(every, clock_error_us=3.0))
    for rank, steps in enumerate(ranks):
        whole = tracks[rank, "all tensors"]
        assert len(whole) == sum(1 + (min(waits) > 0) for waits, _, _ in steps)
        assert len(tracks[rank, "part0"]) == 3 * len(steps)
    assert min(start for slices in tracks.values() for start, _ in slices) == 0


@given(steps=STEPS)
def test_a_rank_waits_from_its_last_tensor_to_the_begin(steps: list[tuple[list[int], int, int]]) -> None:
    rank = RankTrace(rank=0, host="gpu1", trace=traced(steps), offset_us=0.0)
    length = max(1.0, seconds([rank]) * 1e6)
    (time,) = rank_times([rank])
    assert time.operations == len(steps)
    assert abs(time.waited * length - sum(min(waits) for waits, _, _ in steps)) < 1e-3
    assert abs(time.operated * length - sum(operation for _, operation, _ in steps)) < 1e-3
    # Never more than all of the time.
    assert time.waited + time.operated <= 1 + 1e-9


def test_a_recording_that_was_cut_shows_no_rank_that_waits_less() -> None:
    """All would seem to wait for that rank."""
    steps = [([80], 20, 0)] * 8
    whole = RankTrace(rank=0, host="gpu1", trace=traced(steps), offset_us=0.0)
    cut = RankTrace(rank=1, host="gpu2", trace=traced(steps[:2]), offset_us=0.0)
    # It began later.
    late = RankTrace(rank=2, host="gpu2", trace=traced(steps[:3], epoch=1_000_500), offset_us=0.0)
    times = rank_times([whole, cut, late])
    assert [(time.operations, round(time.waited, 9), round(time.operated, 9)) for time in times] == [
        (8, 0.8, 0.2), (2, 0.8, 0.2), (3, 0.8, 0.2),
    ]  # fmt: skip


def test_the_clocks_of_hosts_are_taken_off() -> None:
    one = RankTrace(rank=0, host="gpu1", trace=traced([([5], 10, 0)], epoch=1000), offset_us=0.0)
    two = RankTrace(rank=1, host="gpu2", trace=traced([([5], 10, 0)], epoch=9000), offset_us=8000.0)
    tracks = check(written([one, two], clock_error_us=3.0))
    assert tracks[0, "all tensors"] == tracks[1, "all tensors"] == [(0, 5), (5, 15)]


def test_the_negotiation_of_the_coordinator_is_no_operation() -> None:
    trace_ = Trace(
        epoch_us=0,
        slices=(
            Slice("a", "NEGOTIATE_ALLREDUCE", 3, 8),
            Slice("a", "WAIT", 0, 10),
            Slice("a", "ALLREDUCE", 10, 20),
        ),
    )
    assert [(piece.name, piece.start, piece.end) for piece in overview(trace_)] == [
        ("WAIT", 0, 10),
        ("ALLREDUCE", 10, 20),
    ]
    check(written([RankTrace(rank=0, host="gpu1", trace=trace_, offset_us=0.0)], clock_error_us=0.0))


def test_the_events_of_one_rank_are_in_memory_at_a_time() -> None:
    """Those of all ranks of a large run take gigabytes."""
    ranks = [
        RankTrace(rank=rank, host="gpu1", trace=traced([([5], 10, 0)] * 1000), offset_us=0.0) for rank in range(20)
    ]
    sizes = [len(piece) for piece in merged(ranks, run="a-run", clock_error_us=0.0)]
    assert max(sizes) < sum(sizes) / 15
