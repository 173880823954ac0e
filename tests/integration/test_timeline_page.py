"""A timeline in the viewers for which it is: that of Perfetto, and that of chrome://tracing, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kit.plan.timeline import trace
from kit.plan.timeline.merge import RankTrace, merged
from tests.fakes import horovod
from tests.integration.viewers import Viewers, viewers

RANKS, STEPS, TENSORS = 3, 50, ("conv1/kernel", "conv2/kernel", "head")
NAMES = [f"rank {rank} (gpu{rank // 2 + 1})" for rank in range(RANKS)]
# In each track: WAIT, ALLREDUCE and MPI_ALLREDUCE of a tensor; WAIT and ALLREDUCE of all. Rank 0 negotiates besides.
SLICES = {"all tensors": 2 * STEPS, **dict.fromkeys(TENSORS, 3 * STEPS)}


def operations(rank: int) -> list[horovod.Operation]:
    """Return steps in which rank 1 is late, with operations that begin at the same moment, and a little luck."""
    found: list[horovod.Operation] = []
    for step in range(STEPS):
        at = step * 20_000 + (rank * 37 + step * 13) % 200
        for n, tensor in enumerate(TENSORS):
            found.append((tensor, at + n + (8000 if rank == 1 else 0), at + 8100, at + 9200 + n))
    return found


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    ranks = []
    for rank in range(RANKS):
        data = horovod.written(1_795_472_731_087_651, operations(rank))
        ranks.append(RankTrace(rank=rank, host=f"gpu{rank // 2 + 1}", trace=trace.read(data), offset_us=150.0 * rank))
    content: dict[str, Any] = json.loads(b"".join(merged(ranks, run="20261121-101500-3fa2", clock_error_us=12.0)))
    return content


@pytest.fixture(scope="module")
def overlapping(content: dict[str, Any]) -> dict[str, Any]:
    """A timeline in which the slices of a track overlap and do not nest. Perfetto drops some, and says so."""
    events = content["traceEvents"]
    tracks = {event["pid"]: event["tid"] for event in events if event.get("args") == {"name": "conv1/kernel"}}
    wrong = [
        {**event, "ts": event["ts"] - 500 * (event["name"] == "ALLREDUCE")}
        if event["ph"] == "X" and event["tid"] == tracks[event["pid"]]
        else event
        for event in events
    ]
    return {**content, "traceEvents": wrong}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewers]:
    with viewers(tmp_path_factory.mktemp("profile")) as both:
        yield both


def test_perfetto_opens_it_and_drops_nothing(
    shown: Viewers, content: dict[str, Any], overlapping: dict[str, Any]
) -> None:
    assert shown.complaints(json.dumps(content), NAMES) == set()
    # The same look finds what is wrong.
    assert shown.complaints(json.dumps(overlapping), NAMES) == {"slice_drop_overlapping_complete_event"}


def test_chrome_tracing_opens_it_and_drops_nothing(shown: Viewers, content: dict[str, Any]) -> None:
    assert shown.tracing(json.dumps(content)) == {"warnings": [], "ranks": dict.fromkeys(NAMES, SLICES)}
