"""The supervisor's decisions (kitrun.decide, kitrun.launch) and what it reads from mpirun (kitrun.output)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes import launcher

decide: Any = launcher.load("kitrun.decide")
launches: Any = launcher.load("kitrun.launch")
outputs: Any = launcher.load("kitrun.output")


def progress(**values: Any) -> Any:
    started = {"now": 1000.0, "run_began": 0.0, "began": 500.0, "spoke": 900.0, "up": 4, "ranks": 4}
    return decide.Progress(**{**started, **values})


def outcome(**values: Any) -> Any:
    ended = {"code": 1, "signal": 0, "stop": None, "first": None, "any_up": True, "words": (), "lost": ()}
    return decide.Outcome(**{**ended, **values})


def end(**values: Any) -> Any:
    return decide.RankEnd(**{"rank": 1, "host": "gpu2", "code": 5, "signal": 0, "oom": False, **values})


def place(number: int, ranks: int = 1) -> dict[str, Any]:
    return {"node": f"gpu{number}", "address": f"10.0.0.{number}", "ranks": ranks, "slots": list(range(ranks))}


def launch(*places: dict[str, Any], **values: Any) -> Any:
    hostfile = "".join(f"{place['address']} slots={place['ranks']}\n" for place in places)
    argv = ("mpirun", "-np", str(sum(place["ranks"] for place in places)), "true")
    whole = {"argv": argv, "env": {}, "hostfile": hostfile, "places": places, "helpers": (), "head": "gpu1"}
    return launches.Launch(**{**whole, **values})


# Stop: a request, an operator, limits


@pytest.mark.parametrize(
    ("request_", "why", "grace"),
    [
        ({"why": "Ctrl-C", "grace": 3, "by": "me"}, "Ctrl-C", 3.0),
        ({"why": None}, "stopped", 10.0),
        ({}, "stopped", 10.0),
    ],
)
def test_a_request_stops_the_run(request_: dict[str, Any], why: str, grace: float) -> None:
    assert decide.requested({}, request_, None) == decide.Stop(why, grace, 143)


@pytest.mark.parametrize(
    ("policy", "age", "stops"),
    [
        ({"operator": "stop"}, 60.1, True),
        ({"operator": "stop"}, 60.0, False),
        ({"operator": "stop"}, None, False),
        ({"operator": "keep"}, 1e9, False),
        ({}, 1e9, False),
    ],
)
def test_an_operator_who_went_away(policy: dict[str, Any], age: float | None, stops: bool) -> None:
    stop = decide.requested(policy, None, age)
    assert stop == (decide.Stop("its operator went away", 5.0, 143) if stops else None)


def test_a_request_comes_before_a_lost_operator() -> None:
    assert decide.requested({"operator": "stop"}, {"why": "enough"}, 1e9).why == "enough"


@pytest.mark.parametrize(
    ("policy", "values", "why"),
    [
        ({}, {}, None),
        ({"timeout": 1000.0}, {}, None),
        ({"timeout": 999.0}, {}, "its time of 999 s was over"),
        ({"timeout": 0}, {}, None),
        ({"stall_timeout": 99.0}, {}, "no rank had said anything for 99 s"),
        ({"stall_timeout": 100.0}, {}, None),
        ({"start_timeout": 499.0}, {"up": 3}, "3 of 4 ranks were up after 499 s"),
        ({"start_timeout": 499.0}, {}, None),
        ({"start_timeout": 500.0}, {"up": 3}, None),
        # Several at once: a start that takes too long explains the others.
        ({"start_timeout": 1, "timeout": 1, "stall_timeout": 1}, {"up": 0}, "0 of 4 ranks were up after 1 s"),
        ({"timeout": 1, "stall_timeout": 1}, {}, "its time of 1 s was over"),
    ],
)
def test_limits(policy: dict[str, Any], values: dict[str, Any], why: str | None) -> None:
    assert decide.limit(policy, progress(**values)) == (why and decide.Stop(why, 5.0, 124))


def test_a_lost_host_may_be_retried_and_no_limit_may() -> None:
    assert decide.lost_stop("gpu3") == decide.Stop("gpu3 went away", 0.0, 3, retry=True)
    assert not decide.limit({"timeout": 1}, progress()).retry


# How an attempt ends


def steps(*moments: tuple[float, bool, bool], grace: float = 10.0, reported_at: float = 0.0) -> list[str]:
    """What happens at each (time, no ranks left, hurry) after a stop at 0. The last rank's end is known at a time."""
    stopping = decide.begin_stop(decide.Stop("why", grace, 143), 0.0)
    done = []
    for now, gone, hurry in moments:
        reported = now >= reported_at
        step, stopping = decide.next_step(stopping, now, ranks_gone=gone, reported=reported, hurry=hurry)
        done.append(step)
    return done


def test_mpirun_ends_when_the_last_rank_has() -> None:
    assert steps((0.1, False, False), (0.3, True, False), (8.2, True, False)) == ["", "end", ""]


@pytest.mark.parametrize("grace", [10.0, 0.2])
def test_mpirun_lives_until_the_last_lines_of_its_ranks_are_here(grace: float) -> None:
    """It would drop them. A rank whose keeper was killed reports nothing, so kit waits 3 s at most."""
    moments = ((0.1, False, False), (0.3, True, False), (0.4, True, False), (0.6, True, False), (3.2, True, False))
    assert steps(*moments, grace=grace, reported_at=0.6) == ["", "count", "", "end", ""]
    silent = steps(*moments, (3.4, True, False), grace=grace, reported_at=9.0)
    assert silent == ["", "count", "", "count", "count", "end"]
    assert steps((0.3, True, False), (0.4, True, True), grace=grace, reported_at=9.0) == ["count", "end"]


def test_mpirun_ends_when_the_grace_is_over_and_is_killed_8_s_later() -> None:
    assert steps((10.0, False, False), (10.1, False, False), (18.1, False, False), (18.2, False, False)) == [
        "count", "end", "", "kill",
    ]  # fmt: skip


def test_hurry_ends_mpirun_at_once_and_kills_it_after_3_s() -> None:
    assert steps((1.0, False, True), (4.0, False, True), (4.1, False, True)) == ["end", "", "kill"]


def test_nodes_count_their_ranks_every_fifth_of_a_second() -> None:
    assert steps(*((tenth / 10, False, False) for tenth in range(1, 8))) == ["", "", "count", "", "", "count", ""]


# The first failure


LOST = """[lead:1] ORTE has lost communication with a remote daemon.

  HNP daemon   : [[1,0],0] on node gpu1
  Remote daemon: [[1,0],2] on node gpu3
"""
UNSTARTED = """ssh: connect to host 10.0.0.2 port 33: Connection refused
Connection closed by 10.0.0.3 port 33
ORTE was unable to reliably start one or more daemons.
"""


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({}, []),
        ({"lost": ("gpu2",)}, ["gpu2"]),
        ({"silent": ("gpu2",)}, ["gpu2"]),
        # After a failure or a stop, a node that does not answer is a consequence.
        ({"silent": ("gpu3",), "first": end()}, []),
        ({"silent": ("gpu2",), "stop": decide.Stop("why", 1.0, 143)}, []),
        # But a node that was quiet before was lost before. The host of the rank that failed was there.
        ({"silent": ("gpu2", "gpu3"), "quiet": ("gpu2", "gpu3"), "first": end()}, ["gpu3"]),
        ({"silent": ("gpu3",), "quiet": ("gpu3",), "stop": decide.Stop("why", 1.0, 143)}, []),
        ({"words": tuple(LOST.splitlines())}, ["gpu3"]),
        ({"words": tuple(LOST.splitlines()), "lost": ("gpu2", "gpu3")}, ["gpu2", "gpu3"]),
        ({"words": (LOST.splitlines()[0], "The process orted on node gpu3 did not answer")}, ["gpu3"]),
        ({"words": tuple(UNSTARTED.splitlines()), "any_up": False}, ["gpu2", "gpu3"]),
        # Later, or without mpirun's own words, such a line is a rank's own trouble.
        ({"words": tuple(UNSTARTED.splitlines())}, []),
        ({"words": tuple(UNSTARTED.splitlines()[:2]), "any_up": False}, []),
    ],
)
def test_lost_hosts(values: dict[str, Any], names: list[str]) -> None:
    places = [place(1), place(2), place(3)]
    assert decide.lost_hosts(outcome(**values), places, "gpu1") == names


def test_the_head_and_strangers_are_never_lost() -> None:
    text = LOST.replace("gpu3", "gpu1") + "The process x on node elsewhere\n"
    assert decide.lost_hosts(outcome(words=tuple(text.splitlines())), [place(1)], "gpu1") == []


def failure(result: Any, *, lost: tuple[str, ...] = ()) -> Any:
    return decide.failure(result, lost=lost, head="gpu1", role="server 0", lines=["last"])


def test_a_lost_host_comes_before_a_rank_and_a_rank_before_mpirun() -> None:
    result = outcome(first=end(), words=("a", "b"))
    assert failure(result, lost=("gpu3", "gpu4")) == {"kind": "host", "host": "gpu3", "mpirun": ["a", "b"]}
    assert failure(result) == {
        "kind": "rank", "rank": 1, "role": "server 0", "host": "gpu2", "exit_code": 5, "signal": "", "oom": False,
        "lines": ["last"], "mpirun": ["a", "b"],
    }  # fmt: skip
    assert failure(outcome(words=("a",))) == {
        "kind": "mpirun", "host": "gpu1", "exit_code": 1, "signal": "", "mpirun": ["a"],
    }  # fmt: skip


def test_a_failure_names_the_rank_whose_end_it_follows_from() -> None:
    before = end(rank=3, host="gpu4", code=0)
    failure_ = decide.failure(outcome(first=end()), lost=(), head="gpu1", role="", lines=[], before=before)
    assert failure_["before"] == {"rank": 3, "host": "gpu4"}
    assert "before" not in failure(outcome(first=end()))


KILLED = (
    "--------------------------------------------------------------------------",
    "mpirun noticed that process rank 2 with PID 0 on node gpu2 exited on",
    "signal 9 (Killed).",
)
EXITED = (
    "mpirun detected that one or more processes exited with non-zero status, thus causing", "the job to be terminated."
    " The first process to do so was:", "", "  Process name: [[57005,1],2]", "  Exit code:    7",
)  # fmt: skip
EXITED_5 = (
    "prterun detected that one or more processes exited with non-zero status,", "thus causing the job to be terminated."
    " The first process to do so was:", "", "   Process name: [prterun-gpu1-4242@1,2]", "   Exit code:    7",
)  # fmt: skip
HOSTS = {0: "gpu1", 1: "gpu1", 2: "gpu2", 3: "gpu2"}
TERMINATED = decide.RankEnd(0, "gpu1", 0, 15, False)
# mpirun names no rank that ended before all ranks had started.
NAMELESS = (
    "Primary job  terminated normally, but 1 process returned",
    "a non-zero exit code. Per user-direction, the job has been aborted.",
)


@pytest.mark.parametrize(("words", "code", "signal"), [(KILLED, 0, 9), (EXITED, 7, 0), (EXITED_5, 7, 0)])
def test_a_rank_that_ended_with_its_keeper_is_the_first(words: tuple[str, ...], code: int, signal: int) -> None:
    """The keepers of other ranks only report what mpirun did to them afterwards."""
    result = outcome(first=TERMINATED, words=words, code=128 + signal if signal else code)
    expected = decide.RankEnd(2, "gpu2", code, signal, False)
    assert decide.first_end(result, HOSTS, {0: TERMINATED, 1: TERMINATED}) == expected
    assert decide.first_end(result._replace(first=None), HOSTS, {}) == expected


@pytest.mark.parametrize(
    ("words", "ended"),
    [
        # Its keeper reported the end, so the order of the reports counts.
        (KILLED, {0: TERMINATED, 2: TERMINATED._replace(rank=2, host="gpu2")}),
        (("mpirun: something else",), {0: TERMINATED}),
        (NAMELESS, {0: TERMINATED}),
        # mpirun's exit code says nothing if it ended that rank itself.
        (NAMELESS, {2: TERMINATED._replace(rank=2, host="gpu2"), 0: TERMINATED}),
        # The run has no such rank: a program printed mpirun's words.
        (tuple(line.replace("rank 2", "rank 9") for line in KILLED), {0: TERMINATED}),
    ],
)
def test_otherwise_the_first_report_counts(words: tuple[str, ...], ended: dict[int, Any]) -> None:
    assert decide.first_end(outcome(first=TERMINATED, words=words, code=143), HOSTS, ended) == TERMINATED


@pytest.mark.parametrize("first", [TERMINATED, TERMINATED._replace(code=143, signal=0), None])
@pytest.mark.parametrize(
    ("code", "exit_code", "signal"),
    [(137, 0, 9), (7, 7, 0), (1, 1, 0), (128, 128, 0), (129, 0, 1), (192, 0, 64), (193, 193, 0), (255, 255, 0)],
)
def test_without_a_name_mpiruns_exit_code_is_that_of_the_first_rank(
    first: Any, code: int, exit_code: int, signal: int
) -> None:
    result, ended = outcome(first=first, words=NAMELESS, code=code), {0: first} if first else {}
    assert decide.first_end(result, HOSTS, ended) == decide.RankEnd(None, "", exit_code, signal, False)
    # One of the keepers reported that end.
    late = decide.RankEnd(3, "gpu2", exit_code, signal, False)
    assert decide.first_end(result, HOSTS, {**ended, 3: late}) == late


@pytest.mark.parametrize(
    "values",
    [
        {"signal": 9, "code": 137},
        {"words": ("no such file",), "first": None},
        # It ended well, whatever a program printed.
        {"code": 0, "first": None},
    ],
)
def test_the_exit_code_of_mpirun_itself_is_that_of_no_rank(values: dict[str, Any]) -> None:
    result = outcome(**{"first": TERMINATED, "words": NAMELESS, **values})
    assert decide.first_end(result, HOSTS, {}) == result.first


@pytest.mark.parametrize("late", [decide.RankEnd(2, "gpu2", 0, 9, True), decide.RankEnd(2, "gpu2", 1, 0, False)])
@pytest.mark.parametrize("first", [TERMINATED, TERMINATED._replace(code=143, signal=0)])
def test_a_late_report_counts_before_those_of_ranks_that_mpirun_ended(late: Any, first: Any) -> None:
    """On a busy machine, the report of the rank that mpirun names arrives after its consequences."""
    assert decide.first_end(outcome(first=first, words=KILLED), HOSTS, {0: first, 2: late}) == late
    # Also before that of another rank that ended in the same way.
    alike = late._replace(rank=3)
    assert decide.first_end(outcome(first=first, words=KILLED), HOSTS, {0: first, 3: alike, 2: late}) == late


def test_a_report_of_success_is_no_failure() -> None:
    success = decide.RankEnd(2, "gpu2", 0, 0, False)
    assert (
        decide.first_end(outcome(first=TERMINATED, words=KILLED, code=143), HOSTS, {0: TERMINATED, 2: success})
        == TERMINATED
    )


def test_of_two_failures_the_first_report_counts() -> None:
    first, later = decide.RankEnd(1, "gpu1", 1, 0, False), decide.RankEnd(2, "gpu2", 0, 9, False)
    assert decide.first_end(outcome(first=first, words=KILLED), HOSTS, {1: first, 2: later}) == first


def test_what_mpirun_reports_after_a_stop_is_no_failure() -> None:
    result = outcome(first=None, words=KILLED, stop=decide.Stop("why", 1.0, 143))
    assert decide.first_end(result, HOSTS, {}) is None


def test_a_rank_that_failed_before_a_stop_is_a_failure() -> None:
    result = outcome(first=end(), words=KILLED, stop=decide.Stop("why", 1.0, 143))
    assert decide.first_end(result, HOSTS, {1: end()}) == end()


def test_a_signal_replaces_the_exit_code() -> None:
    assert [failure(outcome(first=end(code=0, signal=11)))[key] for key in ("exit_code", "signal")] == [None, "SIGSEGV"]
    assert [failure(outcome(code=137, signal=9))[key] for key in ("exit_code", "signal")] == [None, "SIGKILL"]
    assert decide.signal_name(63) == "SIG63"


def test_no_failure_after_success_or_a_stop() -> None:
    assert failure(outcome(code=0)) is None
    assert failure(outcome(code=143, stop=decide.Stop("why", 1.0, 143))) is None


@pytest.mark.parametrize(
    ("stop", "failure_", "code"),
    [
        (None, None, 7),
        (None, {"kind": "rank"}, 7),
        (None, {"kind": "host"}, 3),
        # mpirun did not start a rank, so no rank printed anything.
        (None, {"kind": "mpirun", "exit_code": 5}, 7),
        (decide.Stop("why", 1.0, 124), {"kind": "host"}, 124),
    ],
)
def test_exit_codes(stop: Any, failure_: dict[str, Any] | None, code: int) -> None:
    assert decide.exit_code(stop, failure_, 7) == code


# Retry


@pytest.mark.parametrize(
    ("policy", "number", "stop", "kind", "again"),
    [
        ({"retries": 2}, 2, None, "rank", True),
        ({"retries": 2}, 3, None, "rank", False),
        ({}, 1, None, "rank", False),
        ({"retries": 2}, 1, None, "", False),
        ({"retries": 2}, 1, decide.Stop("why", 1.0, 124), "rank", False),
        ({"retries": 2}, 1, decide.lost_stop("gpu3"), "host", True),
        ({"retries": 2, "retry_on": "lost-host"}, 1, None, "rank", False),
        ({"retries": 2, "retry_on": "lost-host"}, 1, None, "host", True),
    ],
)
def test_retries(policy: dict[str, Any], number: int, stop: Any, kind: str, again: bool) -> None:
    assert decide.retries(policy, number, stop, {"kind": kind} if kind else None) is again


@pytest.mark.parametrize(
    ("policy", "number", "seconds"),
    [({}, 1, 1.0), ({}, 4, 8.0), ({"backoff": 0.5}, 2, 1.0), ({}, 20, 60.0), ({}, 5000, 60.0)],
)
def test_the_wait_doubles_up_to_a_minute(policy: dict[str, Any], number: int, seconds: float) -> None:
    assert decide.backoff(policy, number) == seconds


def test_the_next_attempt_leaves_lost_hosts_out() -> None:
    before = launch(place(1), place(2, 2), place(3, 2))
    dropped, after = launches.without(before, ["gpu3"], {"min_np": 3})
    assert (dropped, after.argv, after.np) == (["gpu3"], ("mpirun", "-np", "3", "true"), 3)
    assert after.hostfile == "10.0.0.1 slots=1\n10.0.0.2 slots=2\n"
    assert [kept["node"] for kept in after.places] == ["gpu1", "gpu2"]


@pytest.mark.parametrize(("lost", "least"), [(["gpu3"], 4), (["gpu3"], None), (["gpu1"], 1), ([], 1)])
def test_the_next_attempt_stays_as_it_was(lost: list[str], least: int | None) -> None:
    before = launch(place(1), place(2, 2), place(3, 2))
    assert launches.without(before, lost, {"min_np": least}) == ([], before)


def test_where_ranks_are_and_what_they_do() -> None:
    helpers = (
        {"role": "server", "node": "gpu9", "address": "a"},
        {"role": "scheduler", "node": "gpu1", "address": "b"},
    )
    whole = launch(place(1), place(2, 2), helpers=helpers)
    assert (whole.np, whole.ranks) == (3, 5)
    assert [whole.host_of(rank) for rank in range(6)] == ["gpu1", "gpu2", "gpu2", "gpu9", "gpu1", ""]
    assert [whole.role_of(rank) for rank in (2, 3, 4)] == ["worker 2", "server 0", "scheduler"]
    assert launch(place(1)).role_of(0) == ""


def test_torchrun_numbers_hosts_by_their_addresses_as_text() -> None:
    whole = launch(place(9), place(10, 2), torchrun=True)
    assert [whole.host_of(rank) for rank in range(3)] == ["gpu10", "gpu10", "gpu9"]
    assert [whole._replace(torchrun=False).host_of(rank) for rank in range(3)] == ["gpu9", "gpu10", "gpu10"]


@pytest.mark.parametrize(("lost", "first"), [("gpu10", "1"), ("gpu2", "2"), ("gpu9", "2")])
def test_the_next_attempt_passes_the_input_to_the_host_of_rank_0(lost: str, first: str) -> None:
    argv = ("mpirun", "-np", "4", "--stdin", "2", "kit-torchrun", "--stdin", "x")
    before = launch(place(3), place(2), place(9), place(10), torchrun=True, argv=argv)
    _, after = launches.without(before, [lost], {"min_np": 1})
    assert after.argv == ("mpirun", "-np", "3", "--stdin", first, "kit-torchrun", "--stdin", "x")


# What mpirun prints


def record(rank: int, kind: str, body: bytes, more: str = ".") -> bytes:
    return b"\x1ekit-line %d %s %s %d\n%s" % (rank, kind.encode(), more.encode(), len(body), body)


def test_the_first_rank_that_fails_counts() -> None:
    output = outputs.Output()
    output.errors(record(0, "u", b"gpu1 17") + record(2, "x", b"gpu1 0 0 0") + record(1, "x", b"gpu2 0 9 1"))
    output.errors(record(0, "x", b"gpu1 1 0 0"))
    assert output.up == {0: "gpu1"}
    assert output.first == end(rank=1, host="gpu2", code=0, signal=9, oom=True)
    assert set(output.ended) == {0, 1, 2}


def test_a_rank_that_ends_after_a_stop_has_not_failed() -> None:
    output = outputs.Output()
    output.undisturbed = False
    output.errors(record(1, "x", b"gpu2 143 0 0"))
    assert (output.first, set(output.ended)) == (None, {1})


def test_the_end_of_what_a_rank_wrote() -> None:
    output = outputs.Output()
    output.errors(record(1, "o", b"out\n") + record(1, "e", b" \n") + record(12, "e", b"other\n"))
    assert output.last_lines(1) == ["out"]
    output.errors(record(1, "e", b"cause\n"))
    assert output.last_lines(1) == [" ", "cause"]
    assert output.last_lines(7) == []
    output.errors(record(1, "e", b"x" * 4000 + b"\n") * 3)
    assert len("\n".join(output.last_lines(1))) <= 8192


def test_nccl_s_warnings_on_standard_output_come_before_the_errors() -> None:
    output = outputs.Output()
    warning = "gpu1:7:9 [0] misc/ibvwrap.cc:160 NCCL WARN Call to ibv_modify_qp failed"
    output.errors(record(1, "o", f"epoch 1\n{warning}\n".encode() * 20))
    assert output.last_lines(1)[-2:] == ["epoch 1", warning]
    output.errors(record(1, "e", b"DistBackendError: NCCL error in: a.cpp:3, unhandled system error\n"))
    assert output.last_lines(1) == [warning] * 10 + ["DistBackendError: NCCL error in: a.cpp:3, unhandled system error"]
    output.errors(record(1, "e", b"x\n" * 100))
    assert output.last_lines(1) == [warning] * 10 + ["x"] * 50


def test_of_a_bar_the_last_state_is_kept() -> None:
    output = outputs.Output()
    for state in (b"loading", b"\r10%", b"\r20%\r"):
        output.errors(record(2, "e", state, "+"))
    assert output.last_lines(2) == ["20%"]
    output.errors(record(2, "e", b"30%\n") + record(2, "e", b"cause\n"))
    assert output.last_lines(2) == ["30%", "cause"]


@pytest.mark.parametrize(("sent", "logged"), [(record(0, "o", b"\r10%", "+"), True), (record(0, "l", b""), False)])
def test_any_byte_is_a_sign_of_life(sent: bytes, logged: bool) -> None:
    output = outputs.Output()
    output.spoke = 0.0
    assert bool(output.errors(sent)) is logged
    assert output.spoke > 0.0


def test_mpiruns_harmless_warning_is_left_out() -> None:
    output = outputs.Output()
    assert output.errors(b"[gpu1:1] plm:rsh: Warning: setpgid(1,1) failed\n") == b""
    assert b"kept" in output.errors(b"[gpu1:1] plm:rsh: Warning: setpgid(1,1) failed\nkept\n")
    assert list(output.words) == ["kept"]


def test_standard_output_is_passed_on_in_whole_lines() -> None:
    output = outputs.Output()
    assert output.standard(b"ha") == b""
    assert output.standard(b"lf\nre").endswith(b"half\n")
    assert output.end().endswith(b" 2\nre")
    assert list(output.words) == []


# Code


NOT_HERE = "kit-code: gpu2: the snapshot 1f2e3d of the code is not here (No such file or directory)"


def test_a_host_without_the_code_is_the_failure_and_not_what_mpirun_says_of_it() -> None:
    words = (NOT_HERE, "ORTE was unable to reliably start one or more daemons.")
    ended = outcome(any_up=False, words=words)
    lost = decide.lost_hosts(ended, [place(1), place(2)], "gpu1")
    failure_ = decide.failure(ended, lost=lost, head="gpu1", role="", lines=[])
    assert failure_["kind"] == "code"
    assert failure_["host"] == "gpu2"
    assert failure_["lines"] == [NOT_HERE.partition("gpu2: ")[2]]
    assert decide.exit_code(None, failure_, 213) == 4
    assert not decide.retries({"retries": 3}, 1, None, failure_)


def test_a_rank_that_prints_such_a_line_is_a_rank_that_failed() -> None:
    ended = outcome(first=end(), words=(NOT_HERE,))
    failure_ = decide.failure(ended, lost=[], head="gpu1", role="", lines=[])
    assert failure_["kind"] == "rank"


def test_a_launch_with_torchrun_has_a_process_for_each_host() -> None:
    places = tuple({"node": f"gpu{n}", "address": f"10.0.0.{n}", "ranks": 2, "slots": [0, 1]} for n in (1, 2, 3))
    before = launches.Launch(
        argv=("mpirun", "-np", "3", "kit-torchrun"), env={}, hostfile="", places=places, helpers=(), head="gpu1",
        torchrun=True,
    )  # fmt: skip
    _, after = launches.without(before, ["gpu3"], {"min_np": 4})
    assert after.argv == ("mpirun", "-np", "2", "kit-torchrun")
    assert after.np == 4


def test_ranks_that_use_too_much_memory_end_at_once() -> None:
    stop = decide.memory_stop("gpu2", 2300 << 20, 2 << 30)
    assert stop == decide.Stop(
        "its ranks on gpu2 used 2300 MiB of memory, and --memory allows 2048 MiB on each host", 0.0, 137
    )
    assert not decide.retries({"retries": 3}, 1, stop, {"kind": "rank"})


@pytest.mark.parametrize(
    ("code", "line", "expected"),
    [
        (5, "kit-rank: gpu2: NCCL uses the network Socket, and nccl.require is IB; NCCL did not say why", 5),
        (5, "my own words", 1),
        (3, "kit-rank: gpu2: NCCL uses the network Socket, and nccl.require is IB", 1),
    ],
)
def test_a_network_that_the_run_does_not_allow_is_5_under_torchrun_too(code: int, line: str, expected: int) -> None:
    """torchrun, whose end mpirun reports, exits with 1 whatever its rank exits with."""
    failure = {"kind": "rank", "exit_code": code, "lines": [line]}
    assert decide.exit_code(None, failure, 1) == expected
