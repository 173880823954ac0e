"""The door to the runs for real: what it starts, passes on, refuses, and what an operator's coming and going does."""

from __future__ import annotations

import ast
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.plan.run import known
from kit.plan.run.code_record import diff_fields
from kit.plan.run.mpi import RUNS_FOLDER
from kit.remote.run.door import VERSION
from tests.fakes import launcher
from tests.fakes.head import Head, MakeHead, place, until

FILES = sorted(
    path
    for path in (*launcher.LIB.rglob("*.py"), *(launcher.IMAGES / "bin").iterdir())
    if path.is_file() and (path.suffix == ".py" or b"python" in path.read_bytes().partition(b"\n")[0])
)


def test_it_says_hello_with_the_record(head: Head) -> None:
    head.record.write_text('{"kit": 1}\n')
    hello = dict(head.door().hello)
    assert isinstance(hello.pop("now"), float)
    assert hello == {
        "kit-launch": VERSION,
        "stdin": True,
        "words": True,
        "diffs": True,
        "options": [*known.FLAGS],
        "record": '{"kit": 1}\n',
        "runs": [],
        "code": {},
        "needed": [],
        "waiting": 0,
        "cordons": {},
        "reserved": None,
    }


def test_it_says_hello_without_a_record(head: Head) -> None:
    door = head.door()
    door.hang_up()
    assert door.hello["record"] == ""
    assert door.end() == (0, b"", b"")


def test_what_it_passes_on(head: Head) -> None:
    run = head.new_id()
    hostfile = head.runs / run / "hostfile"
    script = 'cat "$1"; echo "$MINE|$2|$3"; echo oops >&2; cat'
    door, answer = head.run("sh", "-c", script, "mpirun", str(hostfile), "a 'b\n", "ü", id=run, env={"MINE": "x y"})
    assert answer == {"started": run}
    story = door.story()
    # mpirun reads nothing from kit: `cat` ended at once.
    assert sorted(story.mpirun) == ["10.0.0.1 slots=1", "oops", "x y|a 'b", "|ü"]
    assert (story.code, story.ending["stopped"], story.ending["failure"], story.ending["attempt"]) == (0, "", None, 1)
    assert door.end() == (0, b"", b"")
    head.nothing_left()


def test_a_word_that_is_not_utf_8_reaches_the_command_and_kit_can_read_the_record(head: Head) -> None:
    door, answer = head.run(
        "sh", "-c", 'printf %s "$1" | od -An -tx1; exec sleep 600', "x", "caf\udce9",
        info={"command": ["cat", "caf\udce9", "\N{GRINNING FACE}"], "env": [], "by": "me@here"},
    )  # fmt: skip
    door.read_until(" 63 61 66 e9")
    other = head.door()
    (record,) = other.hello["runs"]
    assert record["command"] == ["cat", "caf\\udce9", "\N{GRINNING FACE}"]
    attached = other.ask({"op": "attach", "id": answer["started"], "follow": False})["attached"]
    assert attached["command"] == record["command"]
    door.stop(grace=0.0, why="caf\udce9")
    assert door.story().ending["stopped"] == "caf\\udce9"


@pytest.mark.parametrize(
    ("script", "code", "failure"),
    [
        ("exit 3", 3, (3, "")),
        ("exit 255", 255, (255, "")),
        ("kill -9 $$", 137, (None, "SIGKILL")),
        ("kill -SEGV $$", 139, (None, "SIGSEGV")),
    ],
)
def test_how_mpirun_ends(head: Head, script: str, code: int, failure: tuple[object, str]) -> None:
    story = head.done("sh", "-c", f"echo its words >&2; {script}")
    assert story.code == code
    reported = story.ending["failure"]
    assert (reported["kind"], reported["host"], reported["mpirun"]) == ("mpirun", "gpu1", ["its words"])
    assert (reported["exit_code"], reported["signal"]) == failure
    head.nothing_left()


def test_half_a_line_is_a_line_at_the_end(head: Head) -> None:
    story = head.done("sh", "-c", "printf half >&2; printf other; exit 4")
    assert sorted(story.mpirun) == ["half", "other"]
    assert story.code == 4


def test_a_long_line_stays_one(head: Head) -> None:
    """mpirun's pipes are read in pieces of any size."""
    script = "for n in 1 2 3; do printf '%0700000d\\n' $n; printf '%0700000d\\n' $n >&2; done"
    assert [len(line) for line in head.done("sh", "-c", script).mpirun] == [700000] * 6


def test_no_mpirun(head: Head) -> None:
    story = head.done("no-such-mpirun")
    assert story.code == 127
    assert story.mpirun == ["no-such-mpirun: No such file or directory"]
    assert story.ending["failure"]["kind"] == "mpirun"
    head.nothing_left()


def test_a_folder_that_cannot_be_made(head: Head) -> None:
    head.runs.write_text("a file is in the way\n")
    door, answer = head.run("true")
    assert "exists" in answer["failed"] or "directory" in answer["failed"]
    assert door.end() == (1, b"", b"")
    head.nothing_left()


def test_an_id_is_given_once(head: Head) -> None:
    run = head.new_id()
    assert head.run("true", id=run)[0].story().code == 0
    _, answer = head.run("true", id=run)
    assert answer == {"taken": [run]}


def test_input_that_ends_before_or_within_the_request(head: Head) -> None:
    for text in (b"", b'{"op": "start", '):
        door = head.door()
        door.stdin.write(text)
        door.hang_up()
        assert door.end() == (0, b"", b"")
    assert not head.runs.exists()


RUBBISH = [
    b"rubbish", b"[]", b"{}", b"null", b"\xff\xfe", b'{"op": "start"}', b'{"op": "fly", "id": "a"}',
    b'{"op": ["start"], "id": "a"}', b'{"op": "start", "id": 3}', b'{"op": "start", "id": "../a"}',
    b'{"op": "attach", "id": 3}', b'{"op": "attach", "id": "", "offset": "x"}', b'{"op": "stop", "id": null}',
]  # fmt: skip


def test_rubbish_is_refused_in_a_line(head: Head) -> None:
    # An id that there is.
    head.done("true")
    before = sorted(head.runs.iterdir())
    for line in RUBBISH:
        door = head.door()
        door.stdin.write(line + b"\n")
        door.stdin.flush()
        code, out, err = door.end()
        assert (code, out) == (2, b""), line
        assert err.startswith(b"kit-launch: this is not a "), line
        assert err.count(b"\n") == 1, line
    assert sorted(head.runs.iterdir()) == before


NO_LAUNCH: list[dict[str, object]] = [
    {"argv": []}, {"argv": 3}, {"argv": "mpirun"}, {"argv": [3]}, {"env": 3}, {"env": {"A": 1}}, {"env": []},
    {"places": 3}, {"places": [{}]}, {"places": [place("gpu1", 1) | {"slots": 3}]}, {"policy": []}, {"policy": None},
    {"places": [place("gpu1", 1) | {"ranks": "1"}]}, {"info": []}, {"hostfile": None}, {"head": 1},
]  # fmt: skip


def test_a_launch_that_is_none_is_refused(head: Head) -> None:
    for change in NO_LAUNCH:
        door = head.door()
        door.send({**head.request("true"), **change})
        assert door.end() == (2, b"", b"kit-launch: this is not a launch\n"), change
    assert not head.runs.exists()


# Slots


def test_slots_that_a_run_holds_are_given_to_no_other(head: Head) -> None:
    head.ssh()
    holder, answer = head.run("sh", "-c", "echo up; exec sleep 600", places=[place("gpu1", 2), place("gpu2", 1, 3)])
    (known,) = head.door().hello["runs"]
    assert (known["id"], known["by"]) == (answer["started"], "me@here")
    for wanted in (place("gpu1", 1, 1), place("gpu2", 1, 3)):
        second, refused = head.run("true", places=[place("gpu3", 1), wanted])
        assert [record["id"] for record in refused["held"]] == [known["id"]]
        assert second.end()[0] == 3
    # Others are free, and --oversubscribe does not ask.
    assert head.done("true", places=[place("gpu1", 1, 2), place("gpu2", 1, 0)]).code == 0
    assert head.done("true", places=[place("gpu1", 1, 1)], policy={"share": True}).code == 0
    holder.stop(grace=0.0)
    holder.story()
    assert head.done("true", places=[place("gpu1", 1, 1)]).code == 0
    head.nothing_left()


def test_a_host_is_divided_in_one_way_at_a_time(head: Head) -> None:
    first = {**place("gpu1", 1, 0), "of": 2}
    other, _ = head.run("sh", "-c", "echo up; exec sleep 600", places=[first])
    other.read_until("up")
    _, answer = head.run("true", places=[{**place("gpu1", 1, 3), "of": 4}])
    assert [record["id"] for record in answer["held"]] == [head.ids[0]]
    for same in ({"of": 2}, {}):
        door, answer = head.run("true", places=[{**place("gpu1", 1, 1), **same}])
        assert "started" in answer
        door.story()
    other.stop(grace=0.0)
    other.story()


def test_a_run_may_wait_for_its_slots(head: Head) -> None:
    holder, answer = head.run("sh", "-c", "echo up; exec sleep 600")
    holder.read_until("up")
    second, waiting = head.run("echo", "mine", wait=True)
    assert [record["id"] for record in waiting["waiting"]] == [answer["started"]]
    assert not any((head.runs / run / "record.json").exists() for run in head.ids[1:])
    holder.stop(grace=0.0)
    assert second.answer() == {"started": head.ids[1]}
    assert second.story().mpirun == ["mine"]


def test_a_client_that_hangs_up_waits_no_longer(head: Head) -> None:
    holder, _ = head.run("sh", "-c", "echo up; exec sleep 600")
    second, _ = head.run("true", wait=True)
    second.hang_up()
    assert second.end() == (0, b"", b"")
    assert len(list(head.runs.glob(f"{head.stamp}-*"))) == 1
    holder.stop(grace=0.0)
    holder.story()


# Looking


def test_attach_shows_all_of_it_after_the_end_too(head: Head) -> None:
    assert head.done("sh", "-c", "echo one; echo two >&2; exit 3").ending
    run = head.ids[0]
    for word in (run, run[:9], ""):
        door = head.door()
        answer = door.ask({"op": "attach", "id": word})
        assert (answer["attached"]["id"], answer["alive"], answer["ending"]["exit_code"]) == (run, False, 3)
        story = door.story()
        assert sorted(story.mpirun) == ["one", "two"]
        assert story.code == 3


def test_attach_goes_on_where_a_log_was_left(head: Head) -> None:
    head.done("sh", "-c", "echo one; sleep 0.2; echo two")
    log = (head.runs / head.ids[0] / "log").read_bytes()
    offset = log.index(b"two\n") - len(log[: log.index(b"two\n")].rpartition(b"\x1e")[2]) - 1
    door = head.door()
    door.ask({"op": "attach", "id": "", "offset": offset})
    assert door.story().mpirun == ["two"]


def test_attach_begins_in_the_last_bytes(head: Head) -> None:
    head.done("sh", "-c", "echo one; sleep 0.2; echo two")
    log = (head.runs / head.ids[0] / "log").read_bytes()
    # A byte less than from the record of one on: it begins in the middle of that record.
    last = len(log) - len(log[: log.index(b"one\n")].rpartition(b"\x1e")[0]) - 1
    for count, lines in ((last, ["two"]), (10**9, ["one", "two"]), (0, ["one", "two"])):
        door = head.door()
        door.ask({"op": "attach", "id": "", "last": count})
        assert door.story().mpirun == lines


def test_attach_begins_at_a_record_before_the_last_bytes(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor notes where records begin. A full disk may have cut such a note."""
    store, frames = launcher.load("kitrun.store"), launcher.load("kitrun.frames")
    monkeypatch.setattr(store, "MARK_EVERY", 64)
    head.done("true")
    folder = head.runs / head.ids[0]
    os.truncate(folder / "log", 0)
    log, begins = store.Log(str(folder / "log")), []
    for number in range(20):
        begins.append((folder / "log").stat().st_size)
        # What a rank writes may look like a record.
        log.write(frames.record(1, b"0", "o", b"%d \x1e1 0 o . 5\nfake\n" % number))
    size = (folder / "log").stat().st_size
    with (folder / "log.marks").open("ab") as file:
        file.write(b"7\n%d" % size)
    for tail in (1, 100, size):
        door = head.door()
        offset = door.ask({"op": "attach", "id": "", "tail": tail})["offset"]
        assert offset in begins
        assert 0 <= size - tail - offset < 150
        assert len(door.story().entries) == 20 - begins.index(offset) + 1
    (folder / "log.marks").unlink()
    assert head.door().ask({"op": "attach", "id": "", "tail": 1})["offset"] == 0


def test_attach_to_a_run_that_goes_on(head: Head) -> None:
    first, _ = head.run("sh", "-c", "echo up; exec sleep 600")
    first.read_until("up")
    glance = head.door()
    assert glance.ask({"op": "attach", "id": "", "follow": False})["alive"]
    story = glance.story()
    assert story.mpirun == ["up"]
    assert not story.events("ended")
    other = head.door()
    other.ask({"op": "attach", "id": ""})
    other.read_until("up")
    # A client that looks may go away. The run continues.
    other.hang_up()
    other.end()
    assert first.process.poll() is None
    third = head.door()
    third.ask({"op": "attach", "id": "", "follow": True})
    third.stop(grace=0.0, why="from elsewhere")
    assert third.story().ending["stopped"] == first.story().ending["stopped"] == "from elsewhere"
    head.nothing_left()


def test_the_latest_is_one_that_lives(head: Head) -> None:
    head.ssh()
    living, answer = head.run("sh", "-c", "exec sleep 600")
    head.done("true", places=[place("gpu2", 1, address="127.0.0.2")])
    assert head.door().ask({"op": "attach", "id": "", "follow": False})["attached"]["id"] == answer["started"]
    living.stop(grace=0.0)
    living.story()
    assert head.door().ask({"op": "attach", "id": "", "follow": False})["attached"]["id"] == head.ids[1]


def test_the_latest_of_one_second_is_the_one_that_came_last(head: Head) -> None:
    for run in ("20261121-101500-f000", "20261121-101500-0000"):
        head.done("true", id=run)
    assert head.door().ask({"op": "attach", "id": "", "follow": False})["attached"]["id"] == "20261121-101500-0000"
    head.done("true", id="20261121-101500-5000", policy={"keep": 2})
    until(lambda: {path.name[-4:] for path in head.runs.glob("2026*")} == {"0000", "5000"})


@pytest.mark.parametrize("op", ["attach", "stop"])
def test_a_run_that_there_is_not(head: Head, op: str) -> None:
    for word in ("", "none"):
        door = head.door()
        assert door.ask({"op": op, "id": word}) == {"missing": word}
        assert door.end()[0] == 4
    head.done("true")
    head.done("true")
    # The beginning of two is the name of none.
    assert head.door().ask({"op": op, "id": head.stamp}) == {"missing": head.stamp}


def test_stop_from_another_door(head: Head) -> None:
    first, answer = head.run("sh", "-c", "echo up; exec sleep 600")
    first.read_until("up")
    second = head.door()
    reply = second.ask({"op": "stop", "id": "", "why": "stopped by you", "grace": 0.0, "by": "you"})
    assert reply["stopping"]["id"] == answer["started"]
    ending = second.story().ending
    assert (ending["exit_code"], ending["stopped"], ending["left"]) == (143, "stopped by you", {"gpu1": 0})
    assert first.story().ending["stopped"] == "stopped by you"
    third = head.door()
    reply = third.ask({"op": "stop", "id": "", "why": "again", "grace": 0.0, "by": "you"})
    assert reply["ending"]["stopped"] == "stopped by you"
    assert third.end()[0] == 0
    head.nothing_left()


# The operator


def supervised(head: Head) -> bool:
    return bool(head.processes())


@pytest.mark.parametrize("operator", ["keep", None])
def test_a_run_continues_without_its_client(head: Head, operator: str | None) -> None:
    """By the end of the line, and by the death of the door with all its group."""
    gate = head.folder / "gate"
    os.mkfifo(gate)
    script = f"echo up; read -r word <{gate}; echo $word"
    door, answer = head.run("sh", "-c", script, policy={"operator": operator}, detach=operator is None)
    assert answer == {"started": head.ids[0]}
    if operator is None:
        assert door.end() == (0, b"", b"")
    else:
        door.read_until("up")
        os.kill(door.process.pid, signal.SIGKILL)
        door.process.wait()
    gate.write_text("went-on\n")
    other = head.door()
    other.ask({"op": "attach", "id": ""})
    story = other.story()
    assert story.mpirun == ["up", "went-on"]
    assert (story.code, story.ending["stopped"]) == (0, "")
    head.nothing_left()


@pytest.mark.parametrize("how", ["hang up", "kill"])
def test_a_run_whose_operator_went_away_is_ended(make_head: MakeHead, how: str) -> None:
    head = make_head(front_COME_BACK_S=0.2)
    door, _ = head.run("sh", "-c", "echo up; exec sleep 600")
    door.read_until("up")
    if how == "hang up":
        door.hang_up()
        assert door.end()[0] == 0
    else:
        door.process.kill()
        door.process.wait()
        # Nobody has shown for long.
        (head.runs / head.ids[0] / "operator").write_text("61")
    other = head.door()
    other.ask({"op": "attach", "id": ""})
    ending = other.story().ending
    assert (ending["stopped"], ending["exit_code"]) == ("its operator went away", 143)
    head.nothing_left()


def test_a_clock_that_is_set_takes_no_operator_away(head: Head) -> None:
    gate = head.folder / "gate"
    os.mkfifo(gate)
    door, _ = head.run("sh", "-c", f"echo up; read -r word <{gate}; echo $word")
    door.read_until("up")
    # By the new clock, the operator's last word is old.
    os.utime(head.runs / head.ids[0] / "operator", (1, 1))
    head.ahead(1.0)
    head.wait_for_looks(1.0)
    gate.write_text("went-on\n")
    story = door.story()
    assert (story.mpirun, story.code, story.ending["stopped"]) == (["up", "went-on"], 0, "")


def test_an_operator_may_come_back(make_head: MakeHead) -> None:
    head = make_head(decide_OPERATOR_S=600.0, front_COME_BACK_S=300.0)
    gate = head.folder / "gate"
    os.mkfifo(gate)
    door, _ = head.run("sh", "-c", f"echo up; read -r word <{gate}; echo $word")
    door.read_until("up")
    door.hang_up()
    door.end()
    operator = head.runs / head.ids[0] / "operator"
    assert operator.read_text() == "300"
    again = head.door()
    again.ask({"op": "attach", "id": "", "operator": True})
    until(lambda: operator.read_text() == "")
    # And whatever it says is a word of it.
    operator.write_text("300")
    again.send({})
    until(lambda: operator.read_text() == "")
    gate.write_text("went-on\n")
    story = again.story()
    assert (story.mpirun, story.ending["stopped"]) == (["up", "went-on"], "")


def test_a_door_that_nobody_reads_from_is_left(make_head: MakeHead) -> None:
    """Its input is open still, and what it writes comes back: the operator is as gone as with the end of input."""
    head = make_head(front_COME_BACK_S=0.1, decide_OPERATOR_S=30.0)
    door, _ = head.run("sh", "-c", "echo up; while :; do echo more; sleep 0.05; done")
    door.read_until("up")
    door.stdout.close()
    assert door.process.wait(30) == 0
    until(lambda: not supervised(head))
    assert json.loads((head.runs / head.ids[0] / "end.json").read_text())["stopped"] == "its operator went away"
    head.nothing_left()


# What stays


def test_runs_that_ended_are_forgotten_by_number_and_age(head: Head) -> None:
    head.ssh()
    for _ in range(3):
        head.done("true", policy={"keep": 2})
    # The client gets the ending before old runs are removed.
    until(lambda: sorted(path.name for path in head.runs.glob(f"{head.stamp}-*")) == head.ids[1:])
    for run in head.ids[1:]:
        os.utime(head.runs / run / "log", (1, 1))
    living, _ = head.run("sh", "-c", "exec sleep 600")
    os.utime(head.runs / head.ids[3] / "log", (1, 1))
    head.done("true", places=[place("gpu2", 1, address="127.0.0.2")], policy={"keep_s": 3600})
    until(lambda: sorted(path.name for path in head.runs.glob(f"{head.stamp}-*")) == head.ids[3:])
    living.stop(grace=0.0)
    living.story()


def test_what_a_run_made_stays_when_its_log_goes(head: Head) -> None:
    head.done("sh", "-c", 'echo weights >"$KIT_CHECKPOINT_DIR/one"', policy={"keep": 1})
    head.done("true", policy={"keep": 1})
    folder = head.runs / head.ids[0]
    until(lambda: not (folder / "log").exists())
    assert (folder / "checkpoints" / "one").read_text() == "weights\n"
    until(lambda: sorted(path.name for path in folder.iterdir()) == ["checkpoints", "end.json", "lock", "record.json"])


def test_the_output_of_a_run_stays_when_its_log_goes(head: Head) -> None:
    head.done("sh", "-c", 'echo scores >"$KIT_OUTPUT_DIR/one"', policy={"keep": 1})
    head.done("true", policy={"keep": 1})
    folder = head.runs / head.ids[0]
    until(lambda: not (folder / "log").exists())
    until(lambda: sorted(path.name for path in folder.iterdir()) == ["end.json", "lock", "output", "record.json"])
    assert (folder / "output" / "one").read_text() == "scores\n"


def test_a_record_stays_until_all_hosts_of_the_run_have_said_that_they_have_nothing(make_head: MakeHead) -> None:
    head = make_head(attempt_GUARD_AFTER_S=0.05, supervise_KEPT_S=60.0)
    head.ssh()
    one, two = [place("gpu1", 1)], [place("gpu1", 1), place("gpu2", 1)]
    head.done("true", places=two)
    folder, made = head.runs / head.ids[0], head.folder / "nodes/10.0.0.2/runs" / head.ids[0]
    made.mkdir(parents=True)
    # gpu2 is not asked; then it has a folder of the run; then it has none.
    for places in (one, two):
        head.done("sleep", "1", places=places, policy={"keep": 1})
        until(lambda: not (head.runs / head.ids[-2] / "log").exists())
        assert sorted(path.name for path in folder.iterdir()) == ["end.json", "lock", "record.json"]
    made.rmdir()
    head.done("sleep", "1", places=two, policy={"keep": 1})
    until(lambda: sorted(path.name for path in head.runs.glob(f"{head.stamp}-*")) == head.ids[-1:])


def test_the_difference_of_the_code_has_a_file_that_stays(head: Head) -> None:
    """Each connection reads the records of living runs, so that they stay short."""
    info = {"cluster": "lab", "code": {"commit": "c", "dirty": True, "diff": "+\u00e9\ud800\n"}}
    head.done("sh", "-c", 'echo scores >"$KIT_OUTPUT_DIR/one"', policy={"keep": 1}, info=info)
    head.done("true", policy={"keep": 1})
    folder = head.runs / head.ids[0]
    until(lambda: not (folder / "log").exists())
    assert json.loads((folder / "record.json").read_text())["code"] == {"commit": "c", "dirty": True}
    assert (folder / "code.diff").read_text(encoding="utf-8") == "+\u00e9\\ud800\n"


def test_a_difference_that_is_no_text_keeps_its_bytes(head: Head) -> None:
    info = {"cluster": "lab", "code": {"commit": "c", "dirty": True, **diff_fields(b"+caf\xe9\r\n")}}
    head.done("true", info=info)
    folder = head.runs / head.ids[0]
    assert json.loads((folder / "record.json").read_text())["code"] == {"commit": "c", "dirty": True}
    assert (folder / "code.diff").read_bytes() == b"+caf\xe9\r\n"


def test_the_folder_is_the_heads_alone(head: Head) -> None:
    head.done("true", env={"TOKEN": "s3cret"})
    # The space reserved for a stop is released after the client gets the ending.
    head.nothing_left()
    run = head.runs / head.ids[0]
    assert run.stat().st_mode & 0o77 == 0
    assert {path.name for path in run.iterdir()} == {
        "record.json", "lock", "log", "operator", "end.json", "hostfile", "supervisor",
    }  # fmt: skip
    assert not any(b"s3cret" in path.read_bytes() for path in run.iterdir() if path.is_file())


def test_ranks_that_pass_through_the_folder_can_read_the_hostfile_alone(tmp_path: Path) -> None:
    """kit-rank opens the folder for their group. kit-role, which is their user, reads the hostfile."""
    code, store = launcher.load("kitrun.code"), launcher.load("kitrun.store")
    before = os.umask(0)
    try:
        run = store.Run("r1", str(tmp_path / "runs"))
        os.close(run.create({"places": [], "code": {"diff": "+x\n"}}, "10.0.0.1 slots=1\n"))
        run.open_stdin()
        run.take_stdin(b"secret")
        run.cut_stdin()
        run.touch_operator()
        run.change_places([])
        log = store.Log(run.path("log"))
        log.write(bytes(store.MARK_EVERY))
        log.write(b"more")
        run.ask_to_stop("user", 1.0, "me")
        made = open_to_others(Path(run.folder))
        run.finish({"exit_code": 0})
        store.overwrite(run.path("new"), b"")
        code.doubt(run.root)
    finally:
        os.umask(before)
    assert made == open_to_others(Path(run.folder)) == {"hostfile"}
    assert {path.name for path in Path(run.folder).iterdir()} == {
        "record.json", "code.diff", "lock", "log", "log.marks", "stdin", "stdin.cut", "stdin.end", "operator", "stop",
        "hostfile", "end.json", "new",
    }  # fmt: skip
    assert (tmp_path / code.MISSING).stat().st_mode & 0o77 == 0


def open_to_others(folder: Path) -> set[str]:
    """Return the names of the files of which others than the owner may do anything."""
    return {path.name for path in folder.iterdir() if path.stat().st_mode & 0o77}


# The files of the image


def test_the_folder_is_the_one_that_the_plan_names() -> None:
    assert launcher.load("kitrun.store").ROOT == RUNS_FOLDER
    assert launcher.load("kitrun.front").RECORD == "/etc/kit/cluster.json"


def test_the_programs_find_their_library() -> None:
    for name in ("kit-launch", "kit-node"):
        module = ast.parse((launcher.IMAGES / "bin" / name).read_text(encoding="utf-8"))
        assert '"lib"' in ast.unparse(module).replace("'", '"')


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_it_keeps_to_python_3_6(path: Path) -> None:
    """Vendor images bring old interpreters; a newer word of the language is a syntax error there."""
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 6))


def evaluated_annotations(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the annotations that Python evaluates: those of parameters, results, classes and modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            parameters = (
                *node.args.posonlyargs,
                *node.args.args,
                *node.args.kwonlyargs,
                node.args.vararg,
                node.args.kwarg,
            )
            yield from (argument.annotation for argument in parameters if argument and argument.annotation)
            yield from [node.returns] if node.returns else []
        if isinstance(node, ast.ClassDef | ast.Module):
            yield from (child.annotation for child in node.body if isinstance(child, ast.AnnAssign))


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_its_annotations_are_those_of_python_3_6(path: Path) -> None:
    """`list[int]` and `int | None` fail there when they are evaluated, unless they are in quotes."""
    newer = {"list", "dict", "tuple", "set", "frozenset", "type"}
    for annotation in evaluated_annotations(ast.parse(path.read_text(encoding="utf-8"))):
        for part in ast.walk(annotation):
            assert not isinstance(part, ast.BinOp), ast.unparse(annotation)
            generic = isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name) and part.value.id
            assert generic not in newer, ast.unparse(annotation)


def test_all_of_the_programs_are_looked_at() -> None:
    assert {"kit-launch", "kit-node", "kit-rank", "front.py", "supervise.py", "kit_stacks.py"} <= {
        p.name for p in FILES
    }
