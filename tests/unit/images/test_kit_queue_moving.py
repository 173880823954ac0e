"""The line moves to another head: two real kit-launch, and kit between them."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any

import pytest

from kit.errors import StepError
from kit.flows.queue.move import move
from tests.fakes import launcher
from tests.fakes.head import MakeHead, until
from tests.fakes.line import Line

line: Any = launcher.load("kitqueue.line")
moving: Any = launcher.load("kitqueue.moving")


class Far:
    """A head as kit asks it. `refuses` is an operation that fails there."""

    def __init__(self, line: Line, host: str, *, refuses: str = "") -> None:
        self.line, self.host, self.refuses = line, host, refuses

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if request["op"] == self.refuses:
            return {"failed": "No space left on device"}
        return self.line.ask(**request)


@pytest.fixture
def heads(make_head: MakeHead, port: int) -> tuple[Line, Line]:
    old, new = (Line(make_head(keeper_TICK_S=0.05), port) for _ in range(2))
    return old, new


def becomes_a_node(old: Line) -> None:
    """Its container is another one then, so its keeper is gone, and it has no record."""
    until(old.keeper)
    os.kill(old.keeper(), signal.SIGKILL)
    until(lambda: not old.keeper())
    old.head.record.unlink()


def test_the_line_moves_with_its_order_its_cordons_and_what_it_waits_for(heads: tuple[Line, Line]) -> None:
    old, new = heads
    (done,) = old.queue(old.entry(1, script="true"))
    until((old.head.runs / done / "end.json").exists)
    (holder,) = old.queue(old.entry(2, 2, 2))
    old.hosts_of(holder)
    well, badly, last = old.queue(
        old.entry(1, after=[[done, "ok"]]), old.entry(1, after=[[done, "failed"]]), old.entry(2, after=[[holder, "ok"]])
    )
    old.ask("cordon", hosts=["gpu3"], why="slow", by="me")
    since = {entry["id"]: entry["queued"] for entry in old.ask("line")["line"]}
    becomes_a_node(old)

    # Nothing is lost where the new head cannot take it.
    with pytest.raises(StepError, match="No space left"):
        move(Far(old, "gpu2"), Far(new, "gpu1", refuses="take"))
    # kit ends after the new head has the line: the next time, nothing is in line twice.
    with pytest.raises(StepError, match="No space left"):
        move(Far(old, "gpu2", refuses="forget"), Far(new, "gpu1"))
    assert move(Far(old, "gpu2"), Far(new, "gpu1")) == 3
    assert move(Far(old, "gpu2"), Far(new, "gpu1")) == 0
    assert not old.keeper()

    # The new head has no record of the run that had ended on the earlier one.
    assert list(new.hosts_of(well)) != ["gpu3"]
    assert new.waits(badly, "never")
    assert new.waits(last, "never")
    assert new.waiting == [badly, last]
    assert {entry["id"]: entry["queued"] for entry in new.ask("line")["line"]}.items() <= since.items()
    assert new.ask("line")["cordons"]["gpu3"]["why"] == "slow"
    assert old.waiting == []
    for run in (holder, well):
        (old.head.folder / "gates" / run).write_text("0")


def test_cordons_move_where_nobody_waits(heads: tuple[Line, Line]) -> None:
    old, new = heads
    old.ask("cordon", hosts=["gpu1", "gpu3"], why="slow", by="me")
    with pytest.raises(StepError, match="No space left"):
        move(Far(old, "gpu2"), Far(new, "gpu1", refuses="take"))
    assert move(Far(old, "gpu2"), Far(new, "gpu1")) == 0
    assert [*new.ask("line")["cordons"]] == ["gpu1", "gpu3"]
    # What stayed there would undo this with the next deploy.
    new.ask("uncordon", hosts=["gpu1"])
    assert move(Far(old, "gpu2"), Far(new, "gpu1")) == 0
    assert [*new.ask("line")["cordons"]] == ["gpu3"]
    assert not (old.head.runs / ".queue" / ".cordons.json").exists()


def test_a_long_line_moves_in_parts(heads: tuple[Line, Line], monkeypatch: pytest.MonkeyPatch) -> None:
    old, _ = heads
    ids = old.queue(*(old.entry(1, held=True) for _ in range(3)))
    monkeypatch.setattr(moving, "MOST_BYTES", 10)
    given = moving.give({}, str(old.head.runs))
    assert [entry["id"] for entry in given["entries"]] == [ids[0]]


def test_the_differences_of_code_move_once(heads: tuple[Line, Line]) -> None:
    old, new = heads
    alike = old.queue(*(old.entry(1, held=True) for _ in range(2)), diff={"diff": "+x"})
    (other,) = old.queue(old.entry(1, held=True), diff={"diff64": "/w=="})
    (clean,) = old.queue(old.entry(1, held=True))
    given = moving.give({}, str(old.head.runs))
    assert given["diffs"] == [[{"diff": "+x"}, [*alike]], [{"diff64": "/w=="}, [other]]]
    # All are held, so no keeper lives there.
    old.head.record.unlink()
    assert move(Far(old, "gpu2"), Far(new, "gpu1")) == 4
    root = str(new.head.runs)
    assert [line.diff(run, root) for run in (*alike, other, clean)] == [{"diff": "+x"}] * 2 + [{"diff64": "/w=="}, {}]
    folder = ".queue/.diffs"
    assert len({(new.head.runs / folder / run).stat().st_ino for run in alike}) == 1
    assert not [*(old.head.runs / folder).iterdir()]


def test_only_the_head_changes_in_the_request() -> None:
    entry = {"id": "r", "request": {"id": "r", "head": "gpu1", "env": {"A": "1"}}}
    assert moving.moved(entry, "gpu2") == {"id": "r", "request": {"id": "r", "head": "gpu2", "env": {"A": "1"}}}
    assert entry["request"]["head"] == "gpu1"  # type: ignore[index]
