"""kit wait of an array whose records go while kit waits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kit.errors import NotReadyError
from kit.events import Warned
from kit.flows.context import Context
from kit.flows.queue import arrays
from kit.model.result import RunsResult
from kit.model.run import Member, RunRecord
from tests.fakes.reporter import Remembering

ARRAY = "20261121-101500-ffff"


def run(index: int, state: Any = "ended", code: int | None = 0) -> RunRecord:
    member = Member(of=ARRAY, index=index, size=3)
    name = f"20261121-101500-000{index}"
    return RunRecord(
        id=name, cluster="c", image="", command=("true",), places=(), state=state, exit_code=code, array=member
    )


class Head:
    """A head that lists these runs, one look after the other. Runs end as in `ends` when kit waits for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *looks: list[RunRecord], ends: tuple[RunRecord, ...]) -> None:
        self.reporter = Remembering()
        self._looks, self._ends = list(looks), {one.id: one for one in ends}
        monkeypatch.setattr(arrays, "listing", lambda _: RunsResult(cluster="c", runs=tuple(self._looks.pop(0))))
        monkeypatch.setattr(arrays, "wait", lambda _, name: self._ends[name])

    def wait(self) -> list[tuple[int, int | None]]:
        records = arrays.wait_for_all(cast(Context, SimpleNamespace(reporter=self.reporter)), ARRAY)
        return [(cast(Member, one.array).index, one.exit_code) for one in records]


def test_a_run_that_failed_counts_when_its_record_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head keeps the newest 200 records, and others' runs end, too."""
    head = Head(
        monkeypatch,
        [run(0, code=3), run(1, "running", None), run(2, "running", None)],
        [run(2, "running", None)],
        [],
        ends=(run(1), run(2)),
    )
    assert head.wait() == [(0, 3), (1, 0), (2, 0)]
    assert head.reporter.of(Warned) == []


def test_a_run_of_which_kit_did_not_see_the_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    head = Head(monkeypatch, [run(1, "running", None), run(2)], [run(2)], ends=(run(1),))
    assert head.wait() == [(1, 0), (2, 0)]
    (warned,) = head.reporter.of(Warned)
    assert warned.text.startswith(f"the head does not know 1 run of {ARRAY} any more: taken out of the line, or")
    assert warned.hint == "list the runs: kit runs"
    with pytest.raises(NotReadyError, match="does not know any run of"):
        Head(monkeypatch, [], ends=()).wait()
