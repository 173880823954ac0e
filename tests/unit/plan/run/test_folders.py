"""Which runs a command means, and which of them made something."""

from __future__ import annotations

import pytest

from kit.errors import InputError, NotReadyError
from kit.model.results import RunFolder, RunStart, Survey
from kit.plan.run import folders

OLD, NEW, LIVE = "20261101-101500-aaaa", "20261121-101500-bbbb", "20261121-111500-cccc"
SURVEY = Survey(
    folders={
        "gpu1": (
            RunFolder(id=OLD, log=10),
            RunFolder(id=NEW, log=10, files=1, output=5),
            RunFolder(id=LIVE, live=True, log=1),
        ),
        "gpu2": (RunFolder(id=NEW, files=2, checkpoints=7, work=1),),
    },
    failures={},
)


def test_a_run_is_as_large_as_on_all_hosts_together() -> None:
    old, new, _ = folders.sizes(SURVEY)
    assert (new.id, new.hosts, new.size, new.checkpoints) == (NEW, ("gpu1", "gpu2"), 23, 7)
    assert (old.hosts, old.size) == ((), 10)


def test_down_keeps_runs_that_made_something() -> None:
    keeps, deletes = folders.split(SURVEY)
    assert [run.id for run in keeps] == [NEW]
    assert [run.id for run in deletes] == [OLD, LIVE]


def test_an_empty_file_is_a_result() -> None:
    survey = Survey(folders={"gpu1": (RunFolder(id=OLD, files=1),)}, failures={})
    assert [run.id for run in folders.split(survey)[0]] == [OLD]


def test_runs_are_chosen_by_the_beginning_of_an_id_or_by_age() -> None:
    assert [run.id for run in folders.chosen(SURVEY, ["2026110", NEW, "20261101"])] == [OLD, NEW]
    assert [run.id for run in folders.chosen(SURVEY, [], older_than="20261120-000000")] == [OLD]
    assert [run.id for run in folders.chosen(SURVEY, [], older_than="20261201-000000")] == [OLD, NEW]


def test_many_runs_are_chosen_with_one_look_at_those_that_live(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def living(_: Survey) -> tuple[str, ...]:
        nonlocal looks
        looks += 1
        return ()

    monkeypatch.setattr(Survey, "living", property(living))
    assert len(folders.chosen(SURVEY, [OLD, NEW], older_than="20261201-000000")) == 3
    assert looks == 1


def test_a_run_that_waited_in_line_is_as_old_as_its_start() -> None:
    waited = RunFolder(id=OLD, began="20261121-090000", checkpoints=9)
    survey = Survey(folders={"gpu1": (waited,), "gpu2": (RunFolder(id=OLD, output=1),)}, failures={})
    assert folders.chosen(survey, [], older_than="20261121-000000") == ()
    assert [run.id for run in folders.chosen(survey, [], older_than="20261121-100000")] == [OLD]


@pytest.mark.parametrize(("word", "message"), [("2027", "no run '2027'"), ("20261121", "the beginning of 2 runs")])
def test_a_word_must_mean_one_run(word: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        folders.chosen(SURVEY, [word])


def test_an_active_run_is_not_removed() -> None:
    with pytest.raises(NotReadyError) as caught:
        folders.chosen(SURVEY, [OLD, LIVE])
    assert LIVE in caught.value.message


def test_the_latest_run_is_the_last_to_start_or_lives() -> None:
    head = {OLD: RunStart(started=9), NEW: RunStart(started=8)}
    others = {NEW: RunStart(), LIVE: RunStart()}
    assert folders.latest([head, others]) == OLD
    assert folders.latest([head | {NEW: RunStart(live=True, started=8)}, others]) == NEW
    # Without the head, nobody knows when they started.
    assert folders.latest([others, {OLD: RunStart()}]) == LIVE
