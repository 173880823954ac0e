"""The supervisor as a process, with ranks under kit-rank: first failure, stop, retry and limits."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.remote.run.log import RunLog
from tests.fakes import launcher
from tests.fakes.head import IMPATIENT, MPIRUN, Head, MakeHead, Story, place, until

attempt, metrics, newest, nodes, procs, stacks, supervise, launching = (
    launcher.load(f"kitrun.{name}")
    for name in ("attempt", "metrics", "newest", "nodes", "procs", "stacks", "supervise", "launch")
)

SCRIPT = ("sh", "-c")


def spoken(head: Head, line: bytes = b"") -> set[str]:
    """Return the ranks that have written this line, or any line."""
    log = RunLog()
    entries = [*log.feed(head.log()), *log.end()]
    return {entry.rank for entry in entries if entry.kind == "out" and (not line or line in entry.lines)}


def ranks(head: Head, np: int, script: str, **more: object) -> Story:
    door, answer = head.ranks(np, script, **more)
    assert "started" in answer, answer
    return door.story()


def test_the_log_has_what_ranks_write(head: Head) -> None:
    story = ranks(head, 2, "echo out $OMPI_COMM_WORLD_RANK; echo err >&2")
    output = [entry for entry in story.entries if entry.kind in ("out", "err")]
    assert sorted((entry.rank, entry.kind, *entry.lines) for entry in output) == [
        ("0", "err", b"err"), ("0", "out", b"out 0"), ("1", "err", b"err"), ("1", "out", b"out 1"),
    ]  # fmt: skip
    lives = [entry for entry in story.entries if entry.kind in ("up", "end")]
    assert sorted((entry.rank, entry.kind, entry.words[0]) for entry in lives) == [
        ("0", "end", "gpu1"), ("0", "up", "gpu1"), ("1", "end", "gpu1"), ("1", "up", "gpu1"),
    ]  # fmt: skip
    assert [event["number"] for event in story.events("attempt")] == [1]
    assert story.code == 0
    head.nothing_left()


def test_the_first_failure_is_reported_and_not_its_aftermath(head: Head) -> None:
    script = (
        '[ $OMPI_COMM_WORLD_RANK = 1 ] || exec sleep 600; echo said; echo "cause 1" >&2; echo "cause 2" >&2; exit 5'
    )
    story = ranks(head, 3, script, env={"KIT_TEST_NODES": "gpu1 gpu2 gpu2"})
    assert story.code == 5
    failure = story.ending["failure"]
    assert (failure["kind"], failure["rank"], failure["host"]) == ("rank", 1, "gpu2")
    assert (failure["exit_code"], failure["signal"], failure["oom"]) == (5, "", False)
    assert failure["lines"] == ["cause 1", "cause 2"]
    assert failure["mpirun"] == ["mpirun: a rank ended badly"]
    head.nothing_left()


def test_a_rank_of_horovod_with_an_exception_is_the_failure_although_others_end_before_it(
    head: Head, tmp_path: Path
) -> None:
    raised = "Traceback (most recent call last):\n  File 'train.py', line 3\nValueError: bad batch"
    script = (
        f'if [ $OMPI_COMM_WORLD_RANK = 1 ]; then echo "{raised}" >&2; : >"$RAISED"; exec sleep 600; fi; '
        'until [ -e "$RAISED" ]; do sleep 0.02; done; echo "UnknownError: Horovod has been shut down." >&2; exit 1'
    )
    nodes = {"KIT_TEST_NODES": "gpu1 gpu2", "RAISED": str(tmp_path / "raised")}
    failure = ranks(head, 2, script, env=nodes).ending["failure"]
    assert (failure["rank"], failure["host"], failure["exit_code"], failure["signal"]) == (1, "gpu2", 1, "")
    assert failure["lines"] == raised.splitlines()
    head.nothing_left()


def test_a_rank_that_ended_too_early_without_an_error_is_named(head: Head) -> None:
    script = (
        "[ $OMPI_COMM_WORLD_RANK = 0 ] || exit 0; "
        f'until grep -q " 1 x " {head.runs}/$KIT_RUN/log; do sleep 0.02; done; '
        'echo "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:3" >&2; exit 1'
    )
    failure = ranks(head, 2, script, env={"KIT_TEST_NODES": "gpu1 gpu2"}).ending["failure"]
    assert (failure["rank"], failure["before"]) == (0, {"rank": 1, "host": "gpu2"})
    head.nothing_left()


def test_a_rank_that_a_signal_ends_and_that_only_spoke_on_stdout(head: Head) -> None:
    failure = ranks(head, 1, "echo last words; kill -SEGV $$").ending["failure"]
    assert (failure["exit_code"], failure["signal"], failure["lines"]) == (None, "SIGSEGV", ["last words"])


def test_mpiruns_harmless_warning_is_left_out(head: Head) -> None:
    warning = "[gpu1:1] plm:rsh: Warning: setpgid(1,1) failed in parent with errno=Permission denied(13)"
    story = head.done(*SCRIPT, f"echo '{warning}' >&2; echo kept >&2; exit 1")
    assert story.mpirun == story.ending["failure"]["mpirun"] == ["kept"]


def test_rubbish_in_a_record_ends_no_run(head: Head) -> None:
    """A rank that runs without kit-rank may write what it likes."""
    records = r"\036kit-line 0 x . 4\n\001\002 \n\036kit-line 1 u . 0\n\036kit-line 2 x . 6\na b c d\036kit-line 3"
    story = head.done(*SCRIPT, f"printf '{records}' >&2; printf '\\036kit-line 9 o . 99999999\\n' >&2; echo on >&2")
    assert (story.code, story.ending["failure"]) == (0, None)
    assert "on" in story.mpirun


# Stop


def test_stopped_ranks_end_one_by_one_in_their_own_time(head: Head) -> None:
    script = (
        "trap 'sleep 0.$OMPI_COMM_WORLD_RANK; echo bye $OMPI_COMM_WORLD_RANK; exit 0' TERM; echo up; "
        "while :; do sleep 0.02; done"
    )
    door, _ = head.ranks(3, script)
    for _ in range(3):
        door.read_until("up")
    until(lambda: (head.runs / head.ids[0] / "log").read_bytes().count(b"up\n") == 3)
    door.stop(grace=20.0)
    story = door.story()
    # mpirun would have killed the others at the end of the first.
    assert {line for line in story.out if line.startswith("bye")} == {"bye 0", "bye 1", "bye 2"}
    assert (story.code, story.ending["stopped"], story.ending["failure"]) == (143, "Ctrl-C", None)
    assert [event["why"] for event in story.events("stopping")] == ["Ctrl-C"]
    head.nothing_left()


@pytest.mark.parametrize("patience", ["over", "less", "hurry"])
def test_ranks_that_do_not_listen(head: Head, patience: str) -> None:
    """They are ended when the grace is over, or when somebody asks again with less of it."""
    deaf = "trap '' TERM; echo up; while :; do sleep 0.02; done"
    door, _ = head.ranks(2, deaf, env=IMPATIENT)
    until(lambda: (head.runs / head.ids[0] / "log").read_bytes().count(b"up\n") == 2)
    door.stop(grace=0.3 if patience == "over" else 600.0)
    if patience != "over":
        until(lambda: b'"stopping"' in (head.runs / head.ids[0] / "log").read_bytes())
        door.stop(grace=0.0 if patience == "hurry" else 0.3)
    story = door.story()
    assert (story.code, story.ending["stopped"], story.ending["left"]) == (143, "Ctrl-C", {"gpu1": 0})
    head.nothing_left()


def test_an_mpirun_that_does_not_listen(make_head: MakeHead) -> None:
    head = make_head(decide_MPIRUN_S=0.3)
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    door, _ = head.run("python3", "-IS", "-c", script)
    door.read_until("up")
    door.stop(grace=0.0)
    assert door.story().code == 143
    head.nothing_left()


def test_a_request_counts_if_mpirun_fails_before_anybody_reads_it(head: Head) -> None:
    request = shlex.quote(json.dumps({"why": "Ctrl-C", "grace": 600.0, "by": "me"}))
    story = head.done(*SCRIPT, f'echo {request} >"{head.runs}/$KIT_RUN/stop"; kill -KILL $$')
    assert (story.code, story.ending["stopped"], story.ending["failure"]) == (143, "Ctrl-C", None)
    assert [event["why"] for event in story.events("stopping")] == ["Ctrl-C"]
    head.nothing_left()


def test_a_wish_that_is_rubbish_is_a_wish(head: Head) -> None:
    door, _ = head.run(*SCRIPT, "echo up; exec sleep 600")
    door.read_until("up")
    door.send(["no", "object"])
    door.send({"stop": {"grace": "long"}})
    assert (door.story().ending["stopped"], door.end()[0]) == ("stopped", 0)
    head.nothing_left()


# What is left


@pytest.mark.parametrize("clean", [True, False])
def test_what_ranks_leave_in_the_background(make_head: MakeHead, clean: bool) -> None:
    """One process in the rank's group, and one in a new session, which only the guards see."""
    head = make_head(attempt_GUARD_AFTER_S=0.0)
    env = {} if clean else {"KIT_LEAVE": "1"}
    script = "sleep 601 >/dev/null 2>&1 & setsid sleep 602 >/dev/null 2>&1 & sleep 0.3"
    story = ranks(head, 1, script, env=env, policy={"clean": clean})
    assert story.code == 0
    until(lambda: not head.processes() or clean)
    if clean:
        head.nothing_left()
    else:
        assert len(head.left()) == 2


def test_guards_on_other_nodes_end_nothing_that_may_stay(make_head: MakeHead) -> None:
    head = make_head(attempt_GUARD_AFTER_S=0.0)
    head.ssh(guard_ENDED_S=0.0)
    gate = head.folder / "gate"
    os.mkfifo(gate)
    env = {"KIT_LEAVE": "1"}
    script = f"setsid sleep 602 >/dev/null 2>&1 & echo up; read -r word <{gate}"
    places = [place("gpu1", 1), place("gpu2", 1, address="127.0.0.2")]
    door, _ = head.ranks(1, script, env=env, policy={"clean": False}, places=places)
    door.read_until("up")
    until(lambda: list(head.folder.glob("guards/127.0.0.2/*")))
    gate.write_text("on\n")
    assert door.story().code == 0
    until(lambda: not head.processes())
    assert len(head.left()) == 1
    assert not list(head.folder.glob("guards/127.0.0.2/*"))


def test_a_run_that_fails_leaves_nothing_either_way(head: Head) -> None:
    script = "setsid sleep 600 >/dev/null 2>&1 & echo up; exit 3"
    story = ranks(head, 1, script, env={"KIT_LEAVE": "1"}, policy={"clean": False})
    assert (story.code, story.ending["left"]) == (3, {"gpu1": 0})
    assert head.left() == []


# Again


def attempts(head: Head) -> str:
    """A shell script that says which attempt this is and counts in a file."""
    return f'echo "attempt $KIT_ATTEMPT in $KIT_CHECKPOINT_DIR"; echo x >>{head.folder}/count; '


def test_it_is_started_again_until_it_is_well(head: Head) -> None:
    script = f"{attempts(head)} [ $KIT_ATTEMPT = 3 ]"
    story = head.done(*SCRIPT, script, policy={"retries": 5, "backoff": 0.02})
    folder = f"{head.runs}/{head.ids[0]}/checkpoints"
    assert story.mpirun == [f"attempt {n} in {folder}" for n in (1, 2, 3)]
    assert (story.code, story.ending["attempt"], story.ending["failure"]) == (0, 3, None)
    assert [(event["number"], event["wait"]) for event in story.events("again")] == [(2, 0.02), (3, 0.04)]
    assert [(event["failure"]["kind"], event["failure"]["exit_code"]) for event in story.events("again")] == [
        ("mpirun", 1), ("mpirun", 1),
    ]  # fmt: skip
    head.nothing_left()


def test_an_attempt_leaves_no_open_file_behind(head: Head) -> None:
    """A run may be started again for weeks."""
    # The ends of pipes that go to a new process are still open here for a moment.
    script = "ls /proc/$PPID/fd | wc -l; [ $KIT_ATTEMPT = 20 ]"
    story = head.done(*SCRIPT, script, policy={"retries": 20, "backoff": 1e-9})
    counts = list(map(int, story.mpirun))
    assert len(counts) == 20
    assert min(counts[-5:]) <= max(counts[:5])
    head.nothing_left()


def test_it_says_how_old_the_last_checkpoint_is(head: Head) -> None:
    script = 'mkdir -p $KIT_CHECKPOINT_DIR/a; touch -d "1 hour ago" $KIT_CHECKPOINT_DIR/a/model; [ $KIT_ATTEMPT = 2 ]'
    story = head.done(*SCRIPT, script, policy={"retries": 1, "backoff": 0.02})
    (again,) = story.events("again")
    assert 3600 <= again["checkpoint"] < 3600 + 600
    head.nothing_left()


def test_no_checkpoint_has_no_age(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert newest.age(str(tmp_path), 1.0) is None
    assert newest.age(str(tmp_path / "missing"), 1.0) is None
    os.mkfifo(tmp_path / "fifo")
    assert newest.age(str(tmp_path), 1.0) is None


@pytest.mark.parametrize(
    ("policy", "expected"),
    [({"retries": 2}, 3), ({"retries": 0}, 1), ({}, 1), ({"retries": 2, "retry_on": "lost-host"}, 1)],
)
def test_how_often_it_is_started(head: Head, policy: dict[str, object], expected: int) -> None:
    story = head.done(*SCRIPT, f"{attempts(head)} exit 7", policy={**policy, "backoff": 0.01, "checkpoints": "/data/c"})
    assert (story.code, story.ending["attempt"]) == (7, expected)
    assert story.mpirun == [f"attempt {n} in /data/c" for n in range(1, expected + 1)]


LOST = """[lead:1] ORTE has lost communication with a remote daemon.

  HNP daemon   : [[1,0],0] on node gpu1
  Remote daemon: [[1,0],2] on node gpu3
"""


@pytest.mark.parametrize(("least", "np", "dropped"), [(2, "3", ["gpu3"]), (4, "5", []), (None, "5", [])])
def test_lost_hosts_are_left_out_where_enough_ranks_stay(
    head: Head, least: int | None, np: str, dropped: list[str]
) -> None:
    head.ssh()
    places = [place("gpu1", 1), place("gpu2", 2), place("gpu3", 2)]
    text = head.folder / "lost"
    text.write_text(LOST)
    script = f"echo np $2; cat {head.runs}/$KIT_RUN/hostfile; [ $KIT_ATTEMPT = 2 ] || {{ cat {text} >&2; exit 1; }}"
    story = head.done(
        *SCRIPT, script, "mpirun", "-np", "5", places=places,
        hostfile="10.0.0.1 slots=1\n10.0.0.2 slots=2\n10.0.0.3 slots=2\n",
        policy={"retries": 1, "retry_on": "lost-host", "min_np": least, "backoff": 0.01},
    )  # fmt: skip
    hosts = [f"10.0.0.{n} slots={1 if n == 1 else 2}" for n in (1, 2, 3) if f"gpu{n}" not in dropped]
    first = story.mpirun.index("np 5")
    assert story.mpirun[first + 1 : first + 4][0] == "10.0.0.1 slots=1"
    last = len(story.mpirun) - 1 - story.mpirun[::-1].index(f"np {np}")
    assert story.mpirun[last:] == [f"np {np}", *hosts]
    assert [event["dropped"] for event in story.events("again")] == [dropped]
    record = json.loads((head.runs / head.ids[-1] / "record.json").read_text())
    # kit logs and kit run --again need the number of the first attempt.
    assert (sum(one["ranks"] for one in record["places"]), record.get("most_np")) == (int(np), 5 if dropped else None)
    assert story.code == 0
    head.nothing_left()


def test_the_next_attempt_of_torchrun_gives_standard_input_to_the_host_of_rank_0() -> None:
    """torchrun numbers hosts by their addresses as text: without 10.0.0.10, 10.0.0.11 has rank 0."""
    hosts = {"gpu1": "10.0.0.9", "gpu2": "10.0.0.10", "gpu3": "10.0.0.11"}
    launch = supervise.launch_of({
        "argv": ["mpirun", "-np", "3", "--stdin", "1", "true", "--stdin", "x"],
        "env": {}, "hostfile": "", "head": "gpu1",
        "places": [{"node": name, "address": address, "ranks": 2, "slots": [0, 1]} for name, address in hosts.items()],
        "torchrun": True,
    })  # fmt: skip
    left, launch = launching.without(launch, ["gpu2"], {"min_np": 2})
    assert left == ["gpu2"]
    assert list(launch.argv) == ["mpirun", "-np", "2", "--stdin", "1", "true", "--stdin", "x"]
    # The report of a run that does not start names these hosts.
    assert [launch.host_of(rank) for rank in range(5)] == ["gpu3", "gpu3", "gpu1", "gpu1", ""]
    assert launching.without(launch, ["gpu3"], {"min_np": 2})[1].argv[:5] == ("mpirun", "-np", "1", "--stdin", "0")


def test_a_host_that_mpirun_misses_is_the_failure(head: Head) -> None:
    head.ssh()
    text = head.folder / "lost"
    text.write_text(LOST)
    story = head.done(*SCRIPT, f"cat {text} >&2; exit 1", places=[place("gpu1", 1), place("gpu3", 1)])
    assert story.code == 3
    assert (story.ending["failure"]["kind"], story.ending["failure"]["host"]) == ("host", "gpu3")


def test_a_stop_between_two_attempts(head: Head) -> None:
    door, _ = head.run("false", policy={"retries": 3, "backoff": 600.0})
    until(lambda: b'"again"' in (head.runs / head.ids[0] / "log").read_bytes())
    door.stop(why="enough")
    story = door.story()
    assert (story.ending["stopped"], story.code, story.ending["attempt"]) == ("enough", 143, 1)
    head.nothing_left()


def test_an_operator_who_goes_between_two_attempts(make_head: MakeHead) -> None:
    head = make_head(front_COME_BACK_S=0.1)
    door, _ = head.run("false", policy={"retries": 3, "backoff": 600.0})
    until(lambda: b'"again"' in (head.runs / head.ids[0] / "log").read_bytes())
    door.hang_up()
    until(lambda: not head.processes())
    ending = json.loads((head.runs / head.ids[0] / "end.json").read_text())
    assert (ending["stopped"], ending["exit_code"]) == ("its operator went away", 143)


def test_a_timeout_between_two_attempts(head: Head) -> None:
    story = head.done("false", policy={"retries": 3, "backoff": 600.0, "timeout": 0.3})
    assert (story.code, story.ending["stopped"]) == (124, "its time of 0.3 s was over")


# Limits


@pytest.mark.parametrize(
    ("policy", "script", "why"),
    [
        ({"start_timeout": 0.4}, "exec sleep 600", "0 of 2 ranks were up after 0.4 s"),
        ({"timeout": 600.0}, "while :; do echo busy; sleep 0.02; done", "its time of 600 s was over"),
        ({"stall_timeout": 600.0}, "echo once; exec sleep 600", "no rank had said anything for 600 s"),
    ],
)
def test_a_limit_reports_what_ranks_do_and_ends_the_run(
    head: Head, policy: dict[str, object], script: str, why: str
) -> None:
    if "start_timeout" in policy:
        # No rank says that it is up.
        story = head.done(*SCRIPT, script, places=[place("gpu1", 2)], policy={**policy, "retries": 3})
    else:
        door, _ = head.ranks(2, script, policy={**policy, "retries": 3})
        until(lambda: {"0", "1"} <= spoken(head))
        head.ahead(601.0)
        story = door.story()
    assert (story.code, story.ending["stopped"], story.ending["attempt"]) == (124, why, 1)
    (hang,) = story.events("hang")
    assert (hang["why"], [entry["rank"] for entry in hang["ranks"]]) == (why, [0, 1])
    for entry in hang["ranks"]:
        assert entry["host"] == "gpu1"
        if "start_timeout" in policy:
            assert entry["waiting"]
        else:
            assert entry["pid"] > 0
            assert entry["last"] == ("busy" if "timeout" in policy else "once")
    head.nothing_left()


def test_a_report_names_the_host_on_which_a_rank_of_torchrun_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun gives the first numbers to 10.0.0.10, and not to 10.0.0.9, whose node does not answer."""
    monkeypatch.setattr(attempt.nodes, "ask", lambda *_: {"gpu10": [{"rank": 0, "pid": 7, "state": "S", "stack": ""}]})
    log: list[bytes] = []
    run = object.__new__(attempt.Attempt)
    run.guarded, run.nodes = True, [SimpleNamespace(name="gpu9"), SimpleNamespace(name="gpu10")]
    up = {0: "gpu10", 1: "gpu9", 2: "\x1b[2J"}
    run.output = SimpleNamespace(up=up, ended=(), last_lines=lambda _: [])
    run.launch = SimpleNamespace(ranks=3, host_of=lambda rank: ("gpu9", "gpu10", "gpu9")[rank], role_of=lambda _: "")
    run.log = SimpleNamespace(write=log.append)
    run._report("stalled")
    (entry,) = RunLog().feed(log[0])
    assert [(one["rank"], one["host"], one.get("pid")) for one in entry.fields["ranks"]] == [
        (0, "gpu10", 7),
        (1, "gpu9", None),
        # A rank may report any name.
        (2, "gpu9", None),
    ]


def test_a_report_about_many_ranks_is_one_that_kit_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The main thread is the last one, and its innermost call comes first."""
    other = 'Thread 0x00007f (most recent call first):\n  File "/\u00e4/queue.py", line 171 in get\n\n'
    main = "Current thread 0x00007f (most recent call first):\n" + '  File "/work/train.py", line 3 in step\n' * 100
    count = 4096
    stacks = [{"rank": rank, "pid": 7, "state": "S", "stack": other * 40 + main} for rank in range(count)]
    monkeypatch.setattr(attempt.nodes, "ask", lambda *_: {"gpu1": stacks})
    log: list[bytes] = []
    run = object.__new__(attempt.Attempt)
    run.guarded, run.nodes, run.output = (
        True,
        [],
        SimpleNamespace(up=dict.fromkeys(range(count), "gpu1"), ended=(), last_lines=lambda _: ["\0" * 8192]),
    )
    run.launch = SimpleNamespace(ranks=count, host_of=lambda _: "gpu1", role_of=lambda _: "")
    run.log = SimpleNamespace(write=log.append)
    run._report("stalled")
    (entry,) = RunLog().feed(log[0])
    assert len(entry.fields["ranks"]) == count
    first, last = entry.fields["ranks"][0]["stack"], entry.fields["ranks"][0]["last"]
    assert first.startswith(f"(other threads are cut)\n{main[:200]}")
    assert first.endswith(" ... (cut)")
    assert last.endswith(" ... (cut)")


def test_a_short_stack_stays_whole_and_a_long_one_keeps_its_main_thread() -> None:
    stack = "Thread 1:\n  a\n\nThread 2:\n  b\n\nCurrent thread 3:\n  c\n"
    assert stacks.shortened(stack, 100) == stack
    assert stacks.shortened(stack, 55) == "(other threads are cut)\nCurrent thread 3:\n  c\n"
    assert stacks.shortened("\u00e4" * 20, 100) == "\u00e4" * 15 + " ... (cut)"
    assert stacks.shortened("\u00e4" * 20, 0) == ""


def test_a_timeout_is_that_of_all_attempts(head: Head) -> None:
    policy = {"timeout": 600.0, "retries": 1, "backoff": 0.001}
    door, _ = head.run(*SCRIPT, "[ $KIT_ATTEMPT = 1 ] || exec sleep 600; exit 1", policy=policy)
    until(lambda: head.log().count(b'"attempt"') == 2)
    head.ahead(601.0)
    story = door.story()
    assert story.code == 124
    assert story.ending["attempt"] == 2


# No header of a record, which may end with any number, has these words.
@pytest.mark.parametrize(("say", "text"), [("echo step $n", b"step %d\n"), ("printf '\\r%s0%%' $n", b"\r%d0%%")])
def test_who_talks_does_not_stall_and_who_is_up_has_started(head: Head, say: str, text: bytes) -> None:
    """A progress bar is one line without an end, but it is no silence."""
    script = f"for n in 1 2 3; do {say}; until [ -e {head.folder}/said$n ]; do sleep 0.02; done; done"
    door, _ = head.ranks(2, script, policy={"stall_timeout": 600.0, "start_timeout": 600.0})
    for n in (1, 2, 3):
        until(partial(lambda line: head.log().count(line) == 2, text % n))
        head.ahead(400.0 * n)
        head.wait_for_looks(400.0 * n)
        (head.folder / f"said{n}").touch()
    story = door.story()
    assert (story.code, story.ending["stopped"]) == (0, "")


# When things break


def test_a_supervisor_that_is_killed_leaves_a_run_that_is_lost(head: Head) -> None:
    door, _ = head.run(*SCRIPT, "echo up; exec sleep 600")
    door.read_until("up")
    store = head.runs / head.ids[0]
    os.kill(head.supervisor(), signal.SIGKILL)
    ending = door.story().ending
    assert ending["lost"]
    assert not (store / "end.json").exists()
    again = head.door()
    assert again.hello["runs"] == []
    assert again.ask({"op": "attach", "id": ""})["alive"] is False
    assert again.story().ending["lost"]
    over = head.door().ask({"op": "stop", "id": "", "why": "", "grace": 0, "by": ""})
    assert (over["over"]["id"], over["ending"]) == (head.ids[0], None)
    # Its slots are free, as far as anybody can tell.
    assert head.done("true").code == 0


def test_a_supervisor_that_breaks_says_so_and_ends_the_run(make_head: MakeHead) -> None:
    head = make_head(attempt_TICK_S="no number")
    story = head.done(*SCRIPT, "exec sleep 600")
    assert story.code == 70
    assert "Traceback" in (head.runs / head.ids[0] / "supervisor").read_text()
    head.nothing_left()


def test_a_log_that_finds_no_room_loses_lines_and_not_the_run(make_head: MakeHead, tmp_path: Path) -> None:
    """/dev/full is too blunt; a limit on the size of files replaces a full disk."""
    head = make_head()
    head.limit_files = 100_000
    script = "seq 1 40000; echo last >&2; exit 6"
    door, _ = head.ranks(1, script)
    door.story()
    # Who looked on meanwhile may have seen the piece of a record that was taken back.
    again = head.door()
    again.ask({"op": "attach", "id": ""})
    story = again.story()
    assert story.code == 6
    assert story.ending["lost_bytes"] > 100_000
    lines = story.out
    # Whole lines, in order; what is small may fit in later, where a large piece did not.
    numbers = [int(line) for line in lines]
    assert numbers == sorted(set(numbers))
    assert len(numbers) < 40_000
    head.nothing_left()


def test_the_room_of_the_end_is_taken_at_the_start(head: Head) -> None:
    door, _ = head.run(*SCRIPT, "echo up; exec sleep 600")
    door.read_until("up")
    store = head.runs / head.ids[0]
    reserved = (store / "end.reserved").stat()
    assert reserved.st_size == 65536
    assert reserved.st_blocks * 512 >= 65536
    door.stop(grace=0.0)
    ending = door.story().ending
    assert not (store / "end.reserved").exists()
    assert json.loads((store / "end.json").read_text())["exit_code"] == ending["exit_code"] == 143


def test_the_supervisor_is_nobodys_child(head: Head) -> None:
    door, _ = head.run(*SCRIPT, "echo up; exec sleep 600")
    door.read_until("up")
    pid = head.supervisor()
    assert os.getsid(pid) == pid
    # The signals of a terminal that is closed, and of Ctrl-C in it, do not concern it.
    for sign in (signal.SIGHUP, signal.SIGINT):
        os.kill(pid, sign)
    time.sleep(0.1)
    assert pid in head.processes()
    door.stop(grace=0.0)
    assert door.story().code == 143


def test_a_supervisor_may_have_more_open_files_than_ranks(make_head: MakeHead) -> None:
    head = make_head()
    head.limit_open = "200:300"
    door, _ = head.run(*SCRIPT, "ulimit -Sn; echo up; exec sleep 600")
    door.read_until("up")
    limits = Path(f"/proc/{head.supervisor()}/limits").read_text()
    assert re.search(r"^Max open files +300 +300 ", limits, re.MULTILINE)
    door.stop(grace=0.0)
    assert door.story().mpirun[:2] == ["200", "up"]


# Guards that do not start


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of kitrun.nodes, which a test moves."""
    now = [1000.0]
    monkeypatch.setattr(nodes, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


class FakeStreams:
    """In place of subprocess.Popen: no process. The first starts fail."""

    def __init__(self, failures: int) -> None:
        self.failures, self.starts = failures, 0

    def __call__(self, argv: Sequence[str], **_more: object) -> Any:
        self.starts += 1
        if self.starts <= self.failures:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        reading, writing = os.pipe()
        stdout, stdin = os.fdopen(reading, "rb"), os.fdopen(writing, "wb")
        return SimpleNamespace(stdin=stdin, stdout=stdout, kill=lambda: None, wait=lambda: 0)


def streams(monkeypatch: pytest.MonkeyPatch, failures: int) -> FakeStreams:
    made = FakeStreams(failures)
    monkeypatch.setattr(nodes, "subprocess", SimpleNamespace(Popen=made, PIPE=-1, DEVNULL=-3))
    return made


def test_a_guard_that_does_not_start_is_tried_again(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    streams(monkeypatch, 1)
    node = nodes.Node("gpu2", "10.0.0.2", "run")
    node.open()
    assert (node.fd, node.send("beat"), node.lost) == (None, False, False)
    node.tend()
    assert node.fd is None
    clock[0] += 3.0
    node.tend()
    assert node.fd is not None
    node.close()


def test_nodes_without_a_stream_delay_no_beat_of_others(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    made = streams(monkeypatch, 0)
    places = [place(f"gpu{number}", 1) for number in range(1, 2 * attempt.OPEN_AT_ONCE + 3)]
    launch = SimpleNamespace(places=places, head="gpu0", env={})
    recorder = metrics.Recorder("/nonexistent", "")
    one = attempt.Attempt(
        SimpleNamespace(id="run"), launch, {}, None, number=1, run_began=0.0, ports=set(), recorder=recorder
    )
    healthy, head = one.nodes[-2], one.nodes[-1]
    healthy.open()
    looks: list[float] = []
    head._watch = SimpleNamespace(look=lambda now: looks.append(now) or 0)
    # Guards that cannot run on their nodes, and nodes whose streams just broke.
    for node in one.nodes[: attempt.OPEN_AT_ONCE]:
        node.helpless = True
    for node in one.nodes[attempt.OPEN_AT_ONCE : -2]:
        node._tried = clock[0]
    one._tend_guards()
    assert os.read(healthy.fd, 16) == b"beat\n"
    # When they may be opened again, a few are at a time. The head is looked at in any case.
    clock[0] += 10.0
    for node in one.nodes:
        node.helpless = False
    one._tend_guards()
    assert made.starts == 1 + attempt.OPEN_AT_ONCE
    assert os.read(healthy.fd, 16) == b"beat\n"
    one._tend_guards()
    assert made.starts == 1 + 2 * attempt.OPEN_AT_ONCE
    assert len(looks) == 3
    one.close()


def test_a_run_may_have_any_number_of_ranks_on_a_host(head: Head) -> None:
    story = head.done(*MPIRUN, "-np", "5", *SCRIPT, "echo $OMPI_COMM_WORLD_RANK", places=[place("gpu1", 5)])
    assert sorted(story.out) == ["0", "1", "2", "3", "4"]
    assert story.code == 0


ROLES = [
    {"role": "server", "node": "gpu2", "address": "10.0.0.2"},
    {"role": "scheduler", "node": "gpu1", "address": "127.0.0.1"},
]


def test_the_roles_of_a_parameter_server(head: Head) -> None:
    """One worker, one server and the scheduler: where they are, and which of them failed."""
    head.ssh()
    script = (
        'cat $RUNS/$KIT_RUN/hostfile; echo "port $DMLC_PS_ROOT_PORT"; '
        '[ $OMPI_COMM_WORLD_RANK = 1 ] || exec sleep 600; echo "no room" >&2; exit 5'
    )
    env = {"DMLC_PS_ROOT_URI": "127.0.0.1", "RUNS": str(head.runs), "KIT_TEST_NODES": "gpu3 gpu2 gpu1"}
    story = ranks(
        head, 3, script, env=env, places=[place("gpu3", 1)], helpers=ROLES, hostfile="10.0.0.3\n10.0.0.2\n127.0.0.1\n"
    )
    failure = story.ending["failure"]
    assert (failure["rank"], failure["role"], failure["host"]) == (1, "server 0", "gpu2")
    assert story.code == 5
    lines = [
        line.decode() for entry in story.entries if entry.kind == "out" and entry.rank == "1" for line in entry.lines
    ]
    # mpirun knows the node that it is on by its name alone.
    assert lines[:3] == ["10.0.0.3", "10.0.0.2", os.uname().nodename]
    assert 1024 <= int(lines[3].split()[1]) <= 65535
    assert [(event["np"], event["roles"]) for event in story.events("attempt")] == [(1, ["server", "scheduler"])]
    head.nothing_left()


def test_a_port_of_the_persons_own(head: Head) -> None:
    env = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "9191"}
    story = ranks(head, 3, 'echo "port $DMLC_PS_ROOT_PORT"', env=env, helpers=ROLES)
    assert {line for entry in story.entries if entry.kind == "out" for line in entry.lines} == {b"port 9191"}


def test_a_head_without_the_address_of_its_scheduler(head: Head) -> None:
    story = ranks(head, 3, "true", env={"DMLC_PS_ROOT_URI": "192.0.2.1"}, helpers=ROLES)
    assert story.code == 127
    assert "annot assign requested address" in " ".join(story.ending["failure"]["mpirun"])
    head.nothing_left()


MEET = "echo meet $MASTER_ADDR $MASTER_PORT $KIT_PLACES"


def meetings(story: Story) -> list[list[str]]:
    lines = [line.decode().split() for entry in story.entries if entry.kind == "out" for line in entry.lines]
    return [words[1:] for words in lines if words[:1] == ["meet"]]


def test_ranks_meet_at_the_address_of_rank_0_and_a_retry_gets_another_port(head: Head) -> None:
    head.ssh()
    places = [place("gpu2", 1, address="127.0.0.2"), place("gpu1", 1)]
    script = f"{MEET}; [ $KIT_ATTEMPT = 2 ] || {{ sleep 0.1; exit 3; }}"
    story = ranks(head, 2, script, places=places, policy={"retries": 1, "backoff": 0.01})
    assert story.code == 0
    met = meetings(story)
    assert {(address, *hosts) for address, _, *hosts in met} == {("127.0.0.2", "gpu2=1", "gpu1=1")}
    first, second = dict.fromkeys(int(words[1]) for words in met)
    assert first != second
    assert 1024 <= first <= 65535


def test_where_ranks_meet_is_the_users_choice(head: Head) -> None:
    story = ranks(head, 1, MEET, env={"MASTER_ADDR": "10.9.8.7", "MASTER_PORT": "4711"})
    assert meetings(story) == [["10.9.8.7", "4711", "gpu1=1"]]


# Allocates 64 MB and writes to it; then says so, and waits.
GREEDY = "exec python3 -IS -c \"import time; kept = b'x' * (64 << 20); print('full', flush=True); time.sleep(600)\""


def test_ranks_that_use_more_memory_than_the_run_may_end_it(head: Head) -> None:
    story = ranks(head, 2, GREEDY, policy={"memory": 100 << 20, "retries": 3})
    assert story.code == 137
    (why,) = (event["why"] for event in story.events("stopping"))
    assert why == story.ending["stopped"]
    assert why.startswith("its ranks on gpu1 used 1")
    assert why.endswith(" MiB of memory, and --memory allows 100 MiB on each host")
    assert len(story.events("attempt")) == 1
    head.nothing_left()


def test_ranks_that_use_less_are_left_alone(head: Head) -> None:
    story = ranks(head, 2, GREEDY.replace("time.sleep(600)", "time.sleep(0.5)"), policy={"memory": 1 << 30})
    assert (story.code, story.ending["stopped"]) == (0, "")


# What it used


def test_a_run_leaves_what_it_used(make_head: MakeHead, tmp_path: Path) -> None:
    head = make_head(attempt_GUARD_AFTER_S=0.0, metrics_EVERY_S=0.05)
    head.ssh()
    go = tmp_path / "go"
    places = [place("gpu1", 1), {**place("gpu2", 1), "address": "10.0.0.2"}]
    script = f"echo up; while [ ! -e {go} ]; do sleep 0.05; done"
    door, answer = head.ranks(2, script, places=places, env={"KIT_TEST_NODES": "gpu1 gpu2"})
    assert "started" in answer, answer
    file = head.runs / head.ids[0] / "metrics.jsonl"
    # Two readings of each node: the second one knows how much time has passed.
    until(lambda: file.exists() and all(file.read_text().count(f'"{name}":') >= 2 for name in ("gpu1", "gpu2")))
    go.touch()
    story = door.story()
    assert story.code == 0
    used = story.ending["metrics"]
    assert (sorted(used["hosts"]), used["left_out"]) == (["gpu1", "gpu2"], 0)
    assert used["readings"] >= 4
    for host in used["hosts"].values():
        assert host["memory_peak"] > 0
        assert host["cores"] == os.cpu_count()
        assert host["cpu_mean"] is not None
    row = json.loads(file.read_text().splitlines()[0])
    assert set(row) == {"at", "hosts"}
    head.nothing_left()


def test_a_run_that_ends_before_its_guards_begin_has_no_readings(make_head: MakeHead) -> None:
    head = make_head(attempt_GUARD_AFTER_S=600.0)
    story = ranks(head, 1, "true")
    assert "metrics" not in story.ending
    assert not (head.runs / head.ids[0] / "metrics.jsonl").exists()


TO_DISK = """
import json, os, sys
sys.path.append({lib!r})
from kitrun import begin, store
real = os.fsync
def fsync(file):
    real(file)
    with open({log!r}, "a") as log:
        log.write(os.readlink("/proc/self/fd/%d" % file) + " " + str(os.fstat(file).st_size > 0) + "\\n")
os.fsync = fsync
request = json.loads({request!r})
launch = begin.launch_of(request, {root!r})
begin.begin(store.Run(request["id"], {root!r}), begin.record_of(request["id"], launch), launch)
"""


def test_a_power_cut_after_the_end_takes_neither_the_record_nor_the_end(head: Head, tmp_path: Path) -> None:
    request = head.request("true", policy={"operator": None})
    log = tmp_path / "to-disk"
    values = {"lib": str(launcher.LIB), "log": str(log), "request": json.dumps(request), "root": str(head.runs)}
    head.runs.mkdir()
    subprocess.run([*launcher.PYTHON, "-c", TO_DISK.format(**values)], check=True, timeout=60)
    folder = head.runs / request["id"]
    # The supervisor has gone when nobody holds the lock any more.
    until((folder / "end.json").exists)
    until(lambda: not launcher.load("kitrun.store").Run(request["id"], str(head.runs)).watched)
    assert (folder / "supervisor").read_text() == ""
    written = log.read_text().splitlines()
    # With its bytes, and its name.
    assert {f"{folder}/record.json True", f"{folder}/end.json True", f"{folder} True"} <= set(written)
    # The name of the end comes after its bytes. What the start writes may still be on its way when the run is over.
    assert f"{folder} True" in written[written.index(f"{folder}/end.json True") :]
