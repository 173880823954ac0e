"""Which runs that have ended the head forgets, and what stays of them (kitrun.retention)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import launcher

retention: Any = launcher.load("kitrun.retention")
store: Any = launcher.load("kitrun.store")

PLACES = [{"node": "gpu1"}, {"node": "gpu2"}]


def ended(root: Path, name: str, age: float, order: int) -> Any:
    """Make a run that wrote to its log last `age` seconds ago. Runs of a higher `order` began later."""
    run = store.Run(name, str(root))
    os.close(run.create({"id": name, "places": PLACES}))
    run.finish({"exit_code": 0})
    Path(run.path("log")).touch()
    now = time.time()
    os.utime(run.path("log"), (now - age, now - age))
    os.utime(run.path("record.json"), (order, order))
    return run


@pytest.mark.parametrize(
    ("keep_s", "keep_n", "old"),
    [
        (1000.0, 9, []),
        (250.0, 9, ["r1"]),
        (150.0, 9, ["r2", "r1"]),
        (1000.0, 2, ["r1"]),
        (1000.0, 0, ["r3", "r2", "r1"]),
        # Either is enough.
        (250.0, 1, ["r2", "r1"]),
    ],
)
def test_runs_go_by_their_age_and_by_their_number(tmp_path: Path, keep_s: float, keep_n: int, old: list[str]) -> None:
    for number, age in enumerate((300.0, 200.0, 100.0), 1):
        ended(tmp_path, f"r{number}", age, number)
    assert [run.id for run in retention.old(keep_s, keep_n, str(tmp_path))] == old


def test_a_run_that_lives_neither_goes_nor_counts(tmp_path: Path) -> None:
    ended(tmp_path, "r1", 10.0, 1)
    living = store.Run("r2", str(tmp_path))
    lock = living.create({"id": "r2", "places": PLACES})
    try:
        assert living.alive
        assert retention.old(1000.0, 1, str(tmp_path)) == []
        assert [run.id for run in retention.old(1000.0, 0, str(tmp_path))] == ["r1"]
    finally:
        os.close(lock)


def test_a_run_without_a_log_is_new(tmp_path: Path) -> None:
    """Nobody knows its age, so only the number of runs decides."""
    Path(ended(tmp_path, "r1", 0.0, 1).path("log")).unlink()
    assert retention.old(0.0, 1, str(tmp_path)) == []
    assert [run.id for run in retention.old(1000.0, 0, str(tmp_path))] == ["r1"]


@pytest.mark.parametrize(
    ("record", "kept", "nothing"),
    [
        ({"places": PLACES}, {"gpu2": []}, True),
        ({"places": PLACES}, {"gpu2": ["r0"]}, True),
        ({"places": PLACES}, {"gpu2": ["r0", "r1"]}, False),
        # A node that has not answered may have files of it.
        ({"places": PLACES}, {}, False),
        ({"places": PLACES}, {"gpu3": []}, False),
        ({"places": [*PLACES, {"node": "gpu3"}]}, {"gpu2": [], "gpu3": ["r1"]}, False),
        ({"places": PLACES, "helpers": [{"node": "gpu4"}]}, {"gpu2": []}, False),
        ({"places": PLACES, "helpers": [{"node": "gpu4"}]}, {"gpu2": [], "gpu4": []}, True),
        # Other nodes than those of its ranks have nothing of it.
        ({"places": PLACES[:1]}, {"gpu2": ["r1"]}, True),
        (None, {}, True),
    ],
)
def test_a_run_made_nothing_only_if_every_node_says_so(
    record: dict[str, Any] | None, kept: dict[str, list[str]], *, nothing: bool
) -> None:
    assert retention.made_nothing("r1", record, "gpu1", kept) is nothing


@pytest.mark.parametrize(
    ("made", "kept", "stays"),
    [(False, {"gpu2": []}, False), (True, {"gpu2": []}, True), (False, {"gpu2": ["r1"]}, True), (False, {}, True)],
)
def test_the_record_of_a_run_that_made_something_stays(
    tmp_path: Path, kept: dict[str, list[str]], *, made: bool, stays: bool
) -> None:
    run = ended(tmp_path, "r1", 10.0, 1)
    if made:
        Path(run.path(store.MADE[0])).mkdir()
    retention.prune([run], "gpu1", kept)
    assert Path(run.path("record.json")).exists() is stays
    assert not Path(run.path("log")).exists()
