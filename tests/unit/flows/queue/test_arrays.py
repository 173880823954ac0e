"""kit wait with the id of an array: what a look at the head's runs may miss, or see twice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kit.flows.queue import arrays
from kit.flows.run.listing import arrays_of
from kit.model.queue import WaitingRun
from kit.model.result import RunsResult
from kit.model.run import Member, RunRecord
from kit.model.values import replace
from tests.fakes.reporter import Remembering

ARRAY = "20261121-101500-9c1e"
FIRST, SECOND = (
    RunRecord(
        id=f"20261121-101500-000{index}", cluster="lab", image="i", command=(), places=(), state="ended",
        exit_code=index, array=Member(of=ARRAY, index=index, size=2),
    )
    for index in (0, 1)
)  # fmt: skip
RUNNING = replace(SECOND, state="running", exit_code=None)
IN_LINE = WaitingRun(id=SECOND.id, np=1, counts=(1,), hosts=("gpu1",), array=SECOND.array)


def listed(*runs: RunRecord, waiting: tuple[WaitingRun, ...] = ()) -> RunsResult:
    return RunsResult(cluster="lab", runs=runs, waiting=waiting)


def test_a_run_that_starts_during_a_look_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look reads the runs and then the line. As the first run ends, the second one leaves the line."""
    looks = iter([listed(FIRST), listed(RUNNING, FIRST), listed(SECOND, FIRST)])
    monkeypatch.setattr(arrays, "listing", lambda _: next(looks))
    awaited: list[str] = []
    monkeypatch.setattr(arrays, "wait", lambda _, run: awaited.append(run) or SECOND)
    reporter = Remembering()
    context: Any = SimpleNamespace(reporter=reporter)
    assert arrays.wait_for_all(context, ARRAY) == (FIRST, SECOND)
    assert awaited == [SECOND.id]
    assert reporter.warnings == []


def test_a_run_that_is_still_in_line_as_it_starts_counts_once() -> None:
    assert arrays_of(listed(RUNNING, FIRST, waiting=(IN_LINE,))) == {ARRAY: [FIRST.id, SECOND.id]}
