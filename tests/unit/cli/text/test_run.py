"""Tests the text of runs."""

from __future__ import annotations

import time

import pytest

from kit.cli.text import run as runtext
from kit.model.launch import LaunchPlan, Placement
from kit.model.result import RunResult, RunsResult
from kit.model.run import Failure, Member, Place, RunRecord
from kit.model.values import replace
from kit.plan.run import diagnose
from tests.fakes.facts import node

NOW = 1_800_000_000.0
PLACES = tuple(Place(node=f"gpu{n}", address=f"10.0.0.{n}", ranks=2, slots=(0, 1)) for n in (1, 2, 3))
RUN = RunRecord(
    id="20261121-101500-3fa2", cluster="lab", image="i", command=("python3", "train.py", "--name", "a b"),
    places=PLACES, started=NOW, ended=NOW + 200, state="ended", exit_code=0,
)  # fmt: skip
FAILURE = Failure(
    kind="rank", host="gpu2", rank=3, exit_code=1, lines=tuple(f"line {n}" for n in range(12)), mpirun=("aftermath",)
)


def rows(*runs: RunRecord) -> list[list[str]]:
    text = runtext.runs(RunsResult(cluster="lab", runs=runs))
    return [line.split() for line in text.splitlines()]


def test_no_run() -> None:
    assert runtext.runs(RunsResult(cluster="lab", runs=())) == "Cluster lab has had no run yet."


def test_hosts_that_were_dropped_are_there_until_the_next_commit() -> None:
    assert runtext.places(RUN) == f"run {RUN.id}: slots: 2 on gpu1, 2 on gpu2, 2 on gpu3"
    text = runtext.places(RUN, ["gpu3", "gpu1"])
    assert text == f"run {RUN.id}: slots: 2 on gpu2; until its next commit: 2 on gpu1, 2 on gpu3"
    assert runtext.places(RUN, ["gpu4"]) == runtext.places(RUN)


def test_runs_of_an_array_show_their_index() -> None:
    member = replace(RUN, array=Member(of="20261121-101500-aaaa", index=7, size=9))
    head, first, second = rows(member, RUN)
    assert head == ["RUN", "STATE", "NP", "HOSTS", "ARRAY", "AGE", "TOOK", "COMMAND"]
    assert "20261121-101500-aaaa[7]" in first
    assert len(second) == len(first) - 1


def test_after_ctrl_c_all_runs_of_an_array_count() -> None:
    """Only those that have ended are known then, and one that runs."""
    ended, other = (replace(RUN, array=Member(of="20261121-101500-aaaa", index=index, size=9)) for index in (0, 1))
    text = runtext.array_ended("20261121-101500-aaaa", [ended, replace(other, state="running", exit_code=None)])
    assert text.startswith("kit: 20261121-101500-aaaa: 1 of 9 runs succeeded, others go on")


def test_runs_of_several_people_show_whose_they_are() -> None:
    head, anna, ben = rows(replace(RUN, by="anna@laptop"), replace(RUN, by="ben@desk"))
    assert head == ["RUN", "STATE", "NP", "HOSTS", "BY", "AGE", "TOOK", "COMMAND"]
    assert ("anna@laptop" in anna, "ben@desk" in ben) == (True, True)
    assert "BY" not in rows(replace(RUN, by="anna@laptop"), replace(RUN, by="anna@laptop"))[0]


def test_the_table() -> None:
    began = time.time() - 7500
    head, row = rows(replace(RUN, started=began, ended=began + 200))
    assert head == ["RUN", "STATE", "NP", "HOSTS", "AGE", "TOOK", "COMMAND"]
    assert row[:3] == [RUN.id, "done", "6"]
    assert " ".join(row[3:]).endswith(" ".join(("2h", "5m", "3m", "20s", "python3", "train.py", "--name", "'a", "b'")))
    assert row[3:6] == ["3", "hosts:", "gpu[1-3]"]


@pytest.mark.parametrize("ahead", [-300, 300])
def test_the_clock_of_the_head_counts(ahead: int) -> None:
    """That of your machine may be minutes ahead or behind."""
    now = time.time() + ahead
    began = replace(RUN, state="running", started=now - 65, ended=None, exit_code=None)
    row = runtext.runs(RunsResult(cluster="lab", runs=(began,), now=now)).splitlines()[1].split()
    assert row[6:10] == ["1m", "5s", "1m", "5s"]


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({}, "done"), ({"exit_code": 137}, "failed (137)"), ({"exit_code": 143, "stopped": "Ctrl-C"}, "stopped"),
        ({"state": "running", "ended": None, "exit_code": None}, "running"),
        ({"state": "lost", "ended": None, "exit_code": None}, "lost"),
    ],
)  # fmt: skip
def test_states(change: dict[str, object], state: str) -> None:
    assert " ".join(rows(replace(RUN, **change))[1]).startswith(f"{RUN.id} {state} 6")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0s"), (59.9, "59s"), (60, "1m 0s"), (3599, "59m 59s"), (7500, "2h 5m"), (360000, "100h 0m"), (-3, "0s")],
)  # fmt: skip
def test_spans(seconds: float, text: str) -> None:
    assert f" {text} " in " ".join(rows(replace(RUN, ended=NOW + seconds))[1])


def test_a_long_command_is_cut_and_newlines_are_no_rows() -> None:
    run = replace(RUN, command=("sh", "-c", "one\ntwo " + "x" * 80))
    table = rows(run)
    assert len(table) == 2
    text = " ".join(table[1])
    assert "one two" in text
    assert text.endswith("…")


def test_a_run_that_failed_is_a_story() -> None:
    lines = runtext.story(replace(RUN, exit_code=1, failure=FAILURE)).splitlines()
    assert lines[0] == f"kit: error: run {RUN.id} failed: {diagnose.headline(FAILURE)}"
    assert lines[1:9] == [f"  │ line {n}" for n in range(4, 12)]
    assert not any("aftermath" in line for line in lines)


@pytest.mark.parametrize("kind", ["rank", "mpirun"])
def test_the_last_lines_are_not_mpiruns_banner(kind: str) -> None:
    banner = ("-" * 74, "mpirun noticed that process rank 3 with PID 7 on node gpu2 exited on signal 9.", "-" * 74)
    lines = ("cause", *banner)
    failure = replace(FAILURE, kind=kind, lines=lines, mpirun=lines)
    text = runtext.story(replace(RUN, exit_code=1, failure=failure))
    assert [line for line in text.splitlines() if "│" in line] == ["  │ cause"]


def test_a_lost_host_needs_only_the_headline() -> None:
    failure = Failure(kind="host", host="gpu2", mpirun=("has lost communication",), lines=("a rank's",))
    lines = runtext.story(replace(RUN, exit_code=3, failure=failure)).splitlines()
    assert not [line for line in lines if "│" in line]
    assert "gpu2 went away" in lines[0]


def test_a_known_cause_comes_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    def cause(failure: Failure, run: str) -> diagnose.Cause:
        return diagnose.Cause(text="GPU memory was over.", hint=f"again: {run}")

    monkeypatch.setattr(diagnose, "cause", cause)
    lines = runtext.story(replace(RUN, failure=FAILURE)).splitlines()
    assert lines[-2:] == ["  GPU memory was over.", f"  → again: {RUN.id}"]


def test_the_end_of_kit_run() -> None:
    plan = LaunchPlan(run_id="r1", placement=Placement(nodes=(node(1),), counts=(1,)), hostfile="", argv=())
    well = RunResult(plan=plan, exit_code=0, seconds=1.0)
    assert runtext.ended(well) == ""
    assert runtext.ended(replace(well, exit_code=143, stopped="Ctrl-C")) == "kit: run r1 was ended: Ctrl-C"
    lines = runtext.ended(replace(well, exit_code=1, failure=FAILURE, folded=7)).splitlines()
    assert lines[-1] == "  7 more lines from other ranks; print them: kit logs r1"
    one = runtext.ended(replace(well, exit_code=1, failure=FAILURE, folded=1)).splitlines()
    assert one[-1] == "  1 more line from other ranks; print them: kit logs r1"


def test_a_run_that_ended_well_has_no_story() -> None:
    assert runtext.story(RUN) == ""
    assert "is lost: its supervisor" in runtext.story(replace(RUN, state="lost"))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"state": "running", "ended": None}, f"Run {RUN.id} is being stopped."),
        ({}, f"Nothing to do: run {RUN.id} has ended."),
        ({"stopped": "by me", "left": {"gpu1": 0, "gpu2": 1}},
         f"Run {RUN.id} was stopped on 2 hosts: gpu[1-2]; processes left: 1."),
    ],
)  # fmt: skip
def test_stop(change: dict[str, object], text: str) -> None:
    assert runtext.stop(replace(RUN, **change)) == text


def test_the_table_counts_servers_beside_ranks() -> None:
    _, row = rows(replace(RUN, roles=("server", "server", "scheduler")))
    assert row[2] == "6+3"
    line = diagnose.headline(Failure(kind="rank", host="gpu2", rank=9, role="server 1", signal="SIGKILL"))
    assert line == "server 1 (rank 9) on gpu2 was killed by SIGKILL"
