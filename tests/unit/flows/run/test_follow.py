"""Tests the follower with a real launcher: output, folded lines, broken connections and Ctrl-C."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kit.errors import EngineDownError, LoginRefusedError, NotReadyError, UnreachableError
from kit.events import Event, Note, OutputLine, Stream, UnfinishedLine
from kit.flows.run import follow
from kit.flows.run.follow import Follower, Manner
from kit.model.host import Login
from kit.plan.run.logevents import FIRST_RANK, hang_report, roles_of
from kit.remote.machine import interrupts
from kit.remote.machine.interrupts import Interrupts
from kit.remote.run.door import Door
from tests.fakes import launcher
from tests.fakes.head import IMPATIENT, MPIRUN, Head, MakeHead, place, until
from tests.fakes.reporter import Remembering

procs = launcher.load("kitrun.procs")
LOGIN = Login(host="gpu1", address="10.0.0.1", user="root", port=None, key=None, known_hosts=None)

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 and not shutil.which("sudo"), reason="needs root, or sudo without a password"
)

StartFollowing = Callable[..., Follower]


@pytest.fixture
def following(head: Head, monkeypatch: pytest.MonkeyPatch) -> StartFollowing:
    """A run that was started through a door, and its follower."""

    def start(*argv: str, before: str = ":", manner: Manner | None = None, **more: Any) -> Follower:
        monkeypatch.setenv("PATH", f"{head.reached_by_ssh(before)}:{os.environ['PATH']}")
        door = Door(LOGIN, "kit-lab-mpihead")
        door.open()
        answer = door.ask(head.request(*argv, **more))
        assert "started" in answer, answer
        return Follower(head.ids[-1], door, Remembering(), manner or Manner(operator=True, by="me"))

    return start


def remembered(follower: Follower) -> Remembering:
    assert isinstance(follower.reporter, Remembering)
    return follower.reporter


def texts(follower: Follower, stream: str = "stdout") -> list[str]:
    return [line.text for line in remembered(follower).lines if line.stream == stream]


def to_its_end(follower: Follower, **more: Any) -> Mapping[str, Any]:
    try:
        ending = follower.follow(**more)
    finally:
        follower.door.close()
    assert ending is not None
    return ending


def ranks(np: int, script: str) -> tuple[str, ...]:
    return (*MPIRUN, "-np", str(np), "sh", "-c", script)


@pytest.mark.parametrize("tagged", [True, False])
def test_a_whole_run(following: StartFollowing, head: Head, tagged: bool) -> None:
    script = "echo out; echo err >&2; printf half; exit 7"
    follower = following(*ranks(1, script), manner=Manner(operator=True, tagged=tagged))
    ending = to_its_end(follower)
    assert (ending["exit_code"], ending["failure"]["rank"]) == (7, 0)
    tag = "0" if tagged else ""
    assert sorted(remembered(follower).lines, key=lambda line: line.text)[:3] == [
        OutputLine(text="err", stream="stderr", source=tag),
        OutputLine(text="half", stream="stdout", source=tag),
        OutputLine(text="out", stream="stdout", source=tag),
    ]
    assert follower.interrupted == 0
    head.nothing_left()


def test_bytes_that_are_no_text(following: StartFollowing) -> None:
    follower = following(*ranks(1, r"printf 'a\377b\n'"))
    to_its_end(follower)
    assert [line for line in remembered(follower).lines if line.stream == "stdout"] == [
        OutputLine(text="a\ufffdb", raw=b"a\xffb")
    ]


def test_a_line_of_mpirun_that_is_no_text_keeps_its_bytes(following: StartFollowing) -> None:
    """Also in an open frame, which waits for its end."""
    rule = "-" * 20
    follower = following("sh", "-c", rf"printf 'a\377b\n%s\nc\377d\n' {rule} >&2")
    to_its_end(follower)
    raw = [line.raw for line in remembered(follower).lines if line.stream == "stderr"]
    assert raw == [b"a\xffb", None, b"c\xffd"]


# Rank 0 fails when rank 1 is ready to print something about it.
AFTERMATH = (
    "ready=$KIT_CHECKPOINT_DIR.ready; "
    "if [ $OMPI_COMM_WORLD_RANK = 0 ]; then until [ -e $ready ]; do sleep 0.02; done; echo cause >&2; exit 3; fi; "
    "trap 'echo aftermath 1 >&2; echo aftermath 2 >&2; echo result; exit 1' TERM; >$ready; while :; do sleep 0.02; done"
)


def test_the_aftermath_of_a_failure_is_folded(following: StartFollowing) -> None:
    follower = following(*ranks(2, AFTERMATH), places=[place("gpu1", 2)])
    to_its_end(follower)
    assert texts(follower, "stderr") == ["cause"]
    # The other rank's two lines and mpirun's line; its shell may print a line, too.
    assert follower.folded in (3, 4)
    assert texts(follower) == ["result"]


def test_a_requested_log_is_printed_in_full(following: StartFollowing) -> None:
    follower = following(*ranks(2, AFTERMATH), places=[place("gpu1", 2)], manner=Manner())
    to_its_end(follower)
    lines = [text for text in texts(follower, "stderr") if text != "Terminated"]
    assert lines == ["cause", "aftermath 1", "aftermath 2", "mpirun: a rank ended badly"]
    assert follower.folded == 0


def test_what_another_attempt_says_is_no_aftermath(following: StartFollowing) -> None:
    script = "echo attempt $KIT_ATTEMPT >&2; [ $KIT_ATTEMPT = 2 ]"
    follower = following(*ranks(1, script), policy={"retries": 1, "backoff": 0.01})
    ending = to_its_end(follower)
    assert (ending["exit_code"], ending["attempt"]) == (0, 2)
    assert [text for text in texts(follower, "stderr") if text.startswith("attempt")] == ["attempt 1", "attempt 2"]
    assert [warning.text for warning in remembered(follower).warnings] == [
        "rank 0 on gpu1 ended with exit code 1; attempt 2 starts in 0 s"
    ]


# Rank 1 fails, and torchrun then starts both ranks again, which write once more.
RESTARTED = (
    r"printf '\036kit-line 0 u . 6\ngpu1 8\036kit-line 1 u . 6\ngpu1 9\036kit-line 1 x . 10\ngpu1 3 0 0' >&2; "
    r"printf '\036kit-line 0 e . 10\naftermath\n\036kit-line 0 x . 11\ngpu1 0 15 0' >&2; "
    r"printf '\036kit-line 0 u . 6\ngpu1 8\036kit-line 0 e . 5\nagain\036kit-line 1 u . 6\ngpu1 9' >&2"
)


def test_what_ranks_say_that_torchrun_restarted_is_no_aftermath(following: StartFollowing) -> None:
    follower = following("sh", "-c", RESTARTED, torchrun=True)
    assert to_its_end(follower)["exit_code"] == 0
    assert texts(follower, "stderr") == ["again"]
    assert follower.folded == 1


# The record of how torchrun ended rank 1 comes after rank 0 has started again.
LATE_END = (
    r"printf '\036kit-line 0 u . 6\ngpu1 8\036kit-line 1 u . 6\ngpu2 9\036kit-line 0 x . 10\ngpu1 3 0 0' >&2; "
    r"printf '\036kit-line 0 u . 6\ngpu1 8\036kit-line 1 x . 11\ngpu2 0 15 0\036kit-line 1 u . 6\ngpu2 9' >&2; "
    r"printf '\036kit-line 0 e . 5\nagain' >&2"
)


def test_an_end_whose_record_comes_after_the_restart_hides_no_lines(following: StartFollowing) -> None:
    follower = following("sh", "-c", LATE_END, torchrun=True)
    assert to_its_end(follower)["exit_code"] == 0
    assert texts(follower, "stderr") == ["again"]


def test_one_rank_and_a_time(following: StartFollowing, head: Head) -> None:
    script = "echo rank $OMPI_COMM_WORLD_RANK; [ $OMPI_COMM_WORLD_RANK = 0 ] || echo more"
    one = following(*ranks(2, script), places=[place("gpu1", 2)], manner=Manner(rank=1))
    to_its_end(one)
    assert texts(one) == ["rank 1", "more"]
    assert texts(one, "stderr") == []
    door = Door(LOGIN, "kit-lab-mpihead")
    door.open()
    door.ask({"op": "attach", "id": "", "follow": False})
    late = Follower(head.ids[0], door, Remembering(), Manner(since=2e9, follow=False))
    to_its_end(late)
    assert texts(late) == []


# Lines that are unfinished for a while


class Watching(Remembering):
    """Touch a file for each state of an unfinished line: the rank waits for it."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head = head

    def report(self, event: Event) -> None:
        super().report(event)
        if isinstance(event, UnfinishedLine):
            (self.head.folder / f"saw{event.text.strip()}").touch()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_bar_is_seen_while_it_grows(following: StartFollowing, head: Head, stream: Stream) -> None:
    wait = f"until [ -e {head.folder}/saw$n ]; do sleep 0.01; done"
    bar = f"for n in 10 20 30; do printf '\\r%s ' $n; {wait}; done; printf '\\r\\303\\266\\n'"
    follower = following(*ranks(1, f"({bar}) {'>&2' if stream == 'stderr' else ''}"), manner=Manner(tagged=True))
    follower.reporter = Watching(head)
    to_its_end(follower)
    assert remembered(follower).of(UnfinishedLine) == [
        UnfinishedLine(text=text, stream=stream, source="0") for text in ("10 ", "20 ", "30 ")
    ]
    assert remembered(follower).lines == [OutputLine(text="ö", stream=stream, source="0")]


def test_only_a_bar_or_the_only_rank_is_live_in_a_pipe(following: StartFollowing, head: Head) -> None:
    """Another rank's line could interrupt it, and it would come twice."""
    wait = f"until [ -e {head.folder}/saw$seen ]; do sleep 0.01; done"
    states = "".join(f"printf '{text}'; seen={seen}; {wait}; " for text, seen in (("1", 1), ("2", 12), ("\\r3", 3)))
    follower = following(*ranks(2, f"[ $RANK = 0 ] || exit 0; {states}echo"), places=[place("gpu1", 2)])
    follower.reporter = Watching(head)
    to_its_end(follower)
    shown = remembered(follower).of(UnfinishedLine)
    assert [(event.text, event.live) for event in shown] == [("1", False), ("12", False), ("3", True)]


def test_another_ranks_bar_is_not_shown(following: StartFollowing) -> None:
    bar = "printf '10%%'; sleep 0.3; printf '\\r20%%\\n'"
    follower = following(*ranks(1, bar), manner=Manner(rank=1))
    to_its_end(follower)
    assert remembered(follower).of(UnfinishedLine) == []
    assert texts(follower) == []


def test_the_first_part_of_a_long_line_waits_for_its_end(following: StartFollowing) -> None:
    """On a pipe, another rank's line would cut it in two."""
    follower = following(*ranks(1, "printf '%05000d' 7; sleep 0.3; echo"))
    to_its_end(follower)
    assert remembered(follower).of(UnfinishedLine) == []
    assert [len(text) for text in texts(follower)] == [5000]


# Connections that break

BUSY = 'for n in $(seq 1 300); do echo "line $n"; [ $((n % 30)) -ne 0 ] || sleep 0.05; done; printf "no newline"'


def test_no_line_is_lost_or_printed_twice(
    following: StartFollowing, head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection forwards some bytes and breaks, even in the middle of a record.

    The rank prints more than the cuts let through, and waits for the last connection: the answer about a run that has
    ended is longer, and would be cut itself.
    """
    monkeypatch.setattr(follow, "AGAIN_EVERY_S", 0.01)
    # The first lines of a connection are answers.
    limit = "if [ $count -lt 6 ]; then cut_after $((count * 31 + 1200)); exit 255; fi"
    talk = 'for n in $(seq 1 300); do echo "line $n of a rank that talks"; [ $((n % 30)) -ne 0 ] || sleep 0.05; done'
    wait = f"until [ $(grep -c x {head.folder}/dialled) -ge 6 ]; do sleep 0.05; done"
    script = f'{talk}; {wait}; printf "no newline"'
    follower = following(*ranks(1, script), before=limit, policy={"operator": "keep"})
    ending = to_its_end(follower)
    assert ending["exit_code"] == 0
    assert texts(follower) == [*(f"line {n} of a rank that talks" for n in range(1, 301)), "no newline"]
    warnings = [warning.text for warning in remembered(follower).warnings]
    assert len(warnings) == 5, warnings
    assert all(text.endswith("the run continues, connecting again") for text in warnings)


def test_a_long_line_that_a_break_cuts(following: StartFollowing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "AGAIN_EVERY_S", 0.01)
    limit = "if [ $count -lt 3 ]; then cut_after 20000; exit 255; fi"
    follower = following(*ranks(1, "printf '%050000d\\n' 7; echo next"), before=limit)
    to_its_end(follower)
    assert [len(text) for text in texts(follower)] == [50000, 4]


def test_a_link_that_is_back_after_a_while(
    following: StartFollowing, head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "AGAIN_EVERY_S", 0.01)
    limit = (
        "if [ $count = 1 ]; then cut_after 1000; exit 255; fi; "
        "if [ $count -lt 5 ]; then echo 'ssh: connect: Connection refused' >&2; exit 255; fi"
    )
    follower = following(*ranks(1, BUSY), before=limit)
    assert to_its_end(follower)["exit_code"] == 0
    assert len(texts(follower)) == 301
    assert len(remembered(follower).warnings) == 1
    head.nothing_left()


def test_a_part_of_a_log_ends_after_a_break_too(
    following: StartFollowing, head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on, and nobody follows it."""
    monkeypatch.setattr(follow, "AGAIN_EVERY_S", 0.01)
    gate = head.folder / "gate"
    os.mkfifo(gate)
    limit = "if [ $count = 2 ]; then cut_after 1500; exit 255; fi"
    script = f"for n in $(seq 300); do echo line $n; done; read -r word <{gate}; echo late"
    run = following(*ranks(1, script), before=limit, policy={"operator": "keep"})
    until(lambda: b"line 300\n" in (head.runs / head.ids[0] / "log").read_bytes())
    ask = Door.ask

    def asked(door: Door, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if request.get("follow", True):
            gate.write_text("\n")
        return ask(door, request)

    monkeypatch.setattr(Door, "ask", asked)
    door = Door(LOGIN, "kit-lab-mpihead")
    door.open()
    door.ask({"op": "attach", "id": "", "follow": False})
    part = Follower(head.ids[0], door, Remembering(), Manner(follow=False))
    assert part.follow() is None
    part.door.close()
    gate.write_text("\n")
    assert len(remembered(part).warnings) == 1
    assert texts(part) == [f"line {n}" for n in range(1, 301)]
    assert to_its_end(run)["exit_code"] == 0


def held(follower: Follower, until_this: Callable[[], object]) -> None:
    """Let the follower hold the connection in a thread until then, and check that this thread ends at once."""
    over = threading.Event()
    thread = threading.Thread(target=follower.hold, args=(over,), daemon=True)
    thread.start()
    until(until_this)
    over.set()
    thread.join(10.0)
    assert not thread.is_alive()


def test_what_comes_while_a_connection_is_held_is_printed_once(following: StartFollowing, head: Head) -> None:
    cut, gate = head.folder / "cut", head.folder / "gate"
    script = f"echo one; until [ -e {gate} ]; do sleep 0.02; done; echo late; exit 3"
    follower = following(*ranks(1, script), before=head.breaks_when(cut))
    assert follower.wait_for_rank()
    reporter = follower.reporter

    def dialled(times: int) -> bool:
        return (head.folder / "dialled").read_text().count("x") == times

    def goes_on() -> bool:
        if b"one\n" in head.log():
            cut.touch()
        if dialled(2):
            gate.touch()
        return (head.runs / head.ids[0] / "end.json").exists() and head.processes() == []

    held(follower, goes_on)
    assert follower.reporter is reporter
    assert to_its_end(follower)["exit_code"] == 3
    assert texts(follower) == ["one", "late"]
    assert remembered(follower).warnings == []
    # The run's end is no break.
    assert dialled(2)


@pytest.mark.parametrize("refused", [False, True])
def test_a_connection_that_cannot_be_held_is_reported_afterwards(
    following: StartFollowing, head: Head, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    """The thread ends without the next try."""
    monkeypatch.setattr(follow, "AGAIN_S", 600.0 if refused else 0.2)
    monkeypatch.setattr(follow, "AGAIN_EVERY_S", 0.01)
    monkeypatch.setattr(follow, "REFUSED_EVERY_S", 600.0)
    words = "Permission denied (publickey)." if refused else "ssh: no route"
    cut = head.folder / "cut"
    limit = f"{head.breaks_when(cut)}; if [ $count != 1 ]; then echo '{words}' >&2; exit 255; fi"
    follower = following(*ranks(1, "exec sleep 600"), before=limit)
    assert follower.wait_for_rank()
    cut.touch()
    held(follower, lambda: (head.folder / "dialled").read_text().count("x") > 1)
    assert remembered(follower).warnings == []
    monkeypatch.setattr(follow, "AGAIN_S", 0.1)
    monkeypatch.setattr(follow, "REFUSED_EVERY_S", 0.1)
    with pytest.raises(UnreachableError):
        to_its_end(follower)
    assert len(remembered(follower).warnings) == 1


def test_it_gives_up_in_the_end(following: StartFollowing, head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "AGAIN_EVERY_S", 0.01)
    monkeypatch.setattr(follow, "AGAIN_S", 0.2)
    limit = 'if [ $count = 1 ]; then cut_after 1000; fi; echo "ssh: no route" >&2; exit 255'
    follower = following(*ranks(1, BUSY), before=limit)
    with pytest.raises(UnreachableError, match="no route"):
        to_its_end(follower)


def test_a_login_that_is_refused_is_seldom_tried(
    following: StartFollowing, head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sshd counts each try against this address."""
    monkeypatch.setattr(follow, "AGAIN_EVERY_S", 0.01)
    monkeypatch.setattr(follow, "REFUSED_EVERY_S", 0.4)
    monkeypatch.setattr(follow, "AGAIN_S", 0.6)
    limit = 'if [ $count = 1 ]; then cut_after 1000; exit 255; fi; echo "Permission denied (publickey)." >&2; exit 255'
    follower = following(*ranks(1, BUSY), before=limit)
    with pytest.raises(LoginRefusedError):
        to_its_end(follower)
    assert (head.folder / "dialled").read_text().count("x") in (2, 3)


ENGINE_DOWN = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"


@pytest.mark.parametrize("end", ["exit 255", "echo 'Error: No such exec instance: 1a2b' >&2; exit 1"])
def test_an_engine_that_restarts_and_spares_the_run(
    following: StartFollowing, head: Head, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """If its engine stops, Docker's client ends with 255 and prints nothing, as ssh does if its link breaks."""
    monkeypatch.setattr(follow, "AGAIN_EVERY_S", 0.01)
    limit = (
        f"if [ $count = 1 ]; then cut_after 1000; {end}; fi; "
        f"if [ $count -lt 5 ]; then echo '{ENGINE_DOWN}' >&2; exit 1; fi"
    )
    follower = following(*ranks(1, BUSY), before=limit)
    assert to_its_end(follower)["exit_code"] == 0
    assert len(texts(follower)) == 301
    warnings = [one for one in remembered(follower).warnings if "waiting up to 90 s for the engine" in one.text]
    assert [one.hint for one in warnings if "kit ssh gpu1 -- sudo systemctl start docker" in str(one.hint)]
    assert len(warnings) == 1
    head.nothing_left()


def test_an_engine_that_stays_down(following: StartFollowing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "AGAIN_EVERY_S", 0.01)
    monkeypatch.setattr(follow, "AGAIN_S", 0.2)
    limit = f"if [ $count = 1 ]; then cut_after 1000; exit 255; fi; echo '{ENGINE_DOWN}' >&2; exit 1"
    with pytest.raises(EngineDownError, match="no Docker Engine answers: Cannot connect"):
        to_its_end(following(*ranks(1, BUSY), before=limit))


def test_a_head_that_is_another_now(following: StartFollowing) -> None:
    """A run of another head, or of a head that was recreated."""
    second = """echo '{"kit-launch": 2, "record": "", "runs": []}'; read -r line; echo '{"missing": "x"}'; exit 0"""
    limit = f"if [ $count = 1 ]; then cut_after 1000; exit 255; fi; {second}"
    with pytest.raises(NotReadyError, match="no longer has run"):
        to_its_end(following(*ranks(1, BUSY), before=limit))


@pytest.mark.parametrize("error", ["container 1 is not running", "No such container: kit-lab-mpihead"])
def test_a_node_that_was_killed_or_is_replaced(following: StartFollowing, error: str) -> None:
    again = f"echo 'Error response from daemon: {error}' >&2; exit 1"
    limit = f"if [ $count = 1 ]; then cut_after 1000; exit 255; fi; {again}"
    assert to_its_end(following(*ranks(1, BUSY), before=limit)) == {"lost": True}


def test_a_supervisor_that_was_killed(following: StartFollowing, head: Head) -> None:
    follower = following("sh", "-c", "echo up; exec sleep 600")
    until(lambda: b"up\n" in (head.runs / head.ids[0] / "log").read_bytes())
    os.kill(head.supervisor(), signal.SIGKILL)
    assert to_its_end(follower)["lost"]


# Ctrl-C

DEAF = "trap '' TERM; echo up; while :; do sleep 0.02; done"


@pytest.fixture(autouse=True)
def heard(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of each counted signal."""
    numbers: list[int] = []
    note = Interrupts._note

    def noted(self: Interrupts, number: int, frame: FrameType | None) -> None:
        note(self, number, frame)
        numbers.append(number)

    monkeypatch.setattr(Interrupts, "_note", noted)
    return numbers


def interrupt_when(head: Head, text: bytes, heard: list[int], times: int = 1) -> threading.Thread:
    """Send SIGINT to this process when the run's log contains `text`, and again."""

    def work() -> None:
        # A signal that the follower does not count yet would end the tests.
        until(lambda: signal.getsignal(signal.SIGINT) is not signal.default_int_handler)
        until(lambda: text in (head.runs / head.ids[0] / "log").read_bytes())
        for number in range(1, times + 1):
            os.kill(os.getpid(), signal.SIGINT)
            # Two signals at the same time count as one.
            until(partial(lambda count: len(heard) == count, number))

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_ctrl_c_gives_ranks_their_grace(following: StartFollowing, head: Head, heard: list[int]) -> None:
    follower = following(*ranks(1, "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.02; done"))
    thread = interrupt_when(head, b"up\n", heard)
    ending = to_its_end(follower)
    thread.join()
    assert (ending["stopped"], ending["exit_code"], follower.interrupted) == ("Ctrl-C", 143, 1)
    assert texts(follower) == ["up", "saved"]
    (note,) = [event.text for event in remembered(follower).of(Note)]
    assert f"stopping run {head.ids[0]}; its ranks have 5 s" in note
    head.nothing_left()


def test_ctrl_c_twice_is_heard_at_once(
    following: StartFollowing, head: Head, heard: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "GRACE_S", 600.0)
    follower = following(*ranks(1, DEAF), env=IMPATIENT)
    thread = interrupt_when(head, b"up\n", heard, times=2)
    ending = to_its_end(follower)
    thread.join()
    assert (ending["stopped"], follower.interrupted) == ("Ctrl-C", 2)
    head.nothing_left()


class Closing(Remembering):
    """A terminal whose window is closed. kit notices that when it writes."""

    def report(self, event: Event) -> None:
        super().report(event)
        signal.raise_signal(signal.SIGHUP)


def test_a_closed_window_takes_no_grace_from_ranks(following: StartFollowing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its signal came while the head started the run."""
    follower = following(*ranks(1, "exec sleep 600"))
    follower.before, follower.reporter = 1, Closing()
    stops: list[Mapping[str, Any]] = []
    send = follower.door.send

    def note(value: Mapping[str, Any]) -> None:
        stops.extend([value["stop"]] if "stop" in value else [])
        send(value)

    monkeypatch.setattr(follower.door, "send", note)
    to_its_end(follower)
    assert ([stop["grace"] for stop in stops], follower.interrupted) == ([follow.GRACE_S], 1)


def test_ctrl_c_a_third_time_waits_for_nobody(
    following: StartFollowing, head: Head, heard: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "GRACE_S", 600.0)
    follower = following(*ranks(1, DEAF), env=IMPATIENT)
    monkeypatch.setattr(follower.door, "send", lambda value: None)
    thread = interrupt_when(head, b"up\n", heard, times=3)
    assert follower.follow() is None
    thread.join()
    assert follower.interrupted == 3
    follower.door.close()


def test_a_head_that_does_not_answer_a_stop_is_left(
    following: StartFollowing, head: Head, heard: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "STOP_S", 0.2)
    follower = following("sh", "-c", "echo up; exec sleep 600")
    monkeypatch.setattr(follower.door, "send", lambda value: None)
    thread = interrupt_when(head, b"up\n", heard)
    assert follower.follow() is None
    thread.join()
    follower.door.close()


def test_only_looking_ends_nothing(following: StartFollowing, head: Head, heard: list[int]) -> None:
    follower = following("sh", "-c", "echo up; exec sleep 600", manner=Manner(), policy={"operator": None})
    thread = interrupt_when(head, b"up\n", heard)
    assert follower.follow() is None
    thread.join()
    follower.door.close()
    other = head.door()
    assert [run["id"] for run in other.hello["runs"]] == head.ids
    other.ask({"op": "stop", "id": "", "grace": 0})
    other.story()


def test_ctrl_c_while_connecting_again(following: StartFollowing, head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "AGAIN_EVERY_S", 0.05)
    limit = f"if [ $count = 1 ]; then cut_after 1000; fi; echo x >>{head.folder}/tried; exit 255"
    follower = following(*ranks(1, BUSY), before=limit)

    def work() -> None:
        until(lambda: (head.folder / "tried").exists() and (head.folder / "tried").read_text().count("x") > 1)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=work)
    thread.start()
    with pytest.raises(UnreachableError):
        to_its_end(follower)
    thread.join()
    assert follower.interrupted == 1


# Words


def test_a_hang_is_reported_rank_by_rank() -> None:
    lines = hang_report(
        {
            "why": "no rank had said anything for 60 s",
            "ranks": [
                {"rank": 0, "host": "gpu1", "pid": 12, "state": "S", "wchan": "futex_wait", "command": "python3 a.py",
                 "last": "step 3", "stack": "Thread 0x1:\n  File \"a.py\", line 3 in main\n"},
                {"rank": 1, "host": "gpu1", "pid": 13, "state": "R", "wchan": "0", "command": "./a.out", "stack": ""},
                {"rank": 2, "host": "gpu2", "ended": True},
                {"rank": 3, "host": "gpu2", "waiting": True},
                {"rank": 4, "host": "gpu3"},
            ],
        }
    )  # fmt: skip
    assert lines == [
        "── no rank had said anything for 60 s; what each rank was doing",
        "rank 0 on gpu1: waits in futex_wait (pid 12: python3 a.py); last line: step 3",
        "  Thread 0x1:",
        '    File "a.py", line 3 in main',
        "rank 1 on gpu1: computes (pid 13: ./a.out)",
        "rank 2 on gpu2: has ended",
        "rank 3 on gpu2: has not started",
        "rank 4 on gpu3: unknown: its node did not answer",
        "──",
    ]


def test_a_hang_and_a_lost_host_reach_the_person(following: StartFollowing, head: Head) -> None:
    follower = following(*ranks(1, "echo up; exec sleep 600"), policy={"stall_timeout": 600.0})
    until(lambda: b"up\n" in head.log())
    until(lambda: [procs.state(pid) for pid in head.left() if procs.command(pid)[:1] == [b"sleep"]] == ["S"])
    head.ahead(601.0)
    ending = to_its_end(follower)
    assert ending["exit_code"] == 124
    lines = texts(follower, "stderr")
    assert any(text.startswith("rank 0 on gpu1: waits") and text.endswith("last line: up") for text in lines), lines


def test_a_node_that_is_silent_is_reported(make_head: MakeHead, monkeypatch: pytest.MonkeyPatch) -> None:
    head = make_head(attempt_GUARD_AFTER_S=0.0, nodes_LOST_S=0.3)
    head.ssh("exec sleep 600")
    monkeypatch.setenv("PATH", f"{head.reached_by_ssh()}:{os.environ['PATH']}")
    door = Door(LOGIN, "kit-lab-mpihead")
    door.open()
    door.ask(head.request("sleep", "600", places=[place("gpu1", 1), place("gpu2", 1)]))
    follower = Follower(head.ids[0], door, Remembering(), Manner(operator=True))
    assert to_its_end(follower)["exit_code"] == 3
    assert [warning.text for warning in remembered(follower).warnings] == [
        "gpu2 does not answer any more: kit ends the run"
    ]


@pytest.mark.parametrize("stops_kit", [True, False])
def test_ctrl_z_warns_that_the_run_needs_kit(
    following: StartFollowing,
    head: Head,
    heard: list[int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    stops_kit: bool,
) -> None:
    """Unless kit goes on at once, as in `ssh -t HOST kit run …`."""
    stops: list[str] = []
    monkeypatch.setattr("kit.flows.run.follow.stoppable", lambda: stops_kit)
    monkeypatch.setattr(interrupts, "suspend", lambda: stops.append("stopped"))
    gate = tmp_path / "gate"
    manner = Manner(operator=True, needed=True)
    follower = following(*ranks(1, f"while [ ! -e {gate} ]; do sleep 0.02; done"), manner=manner)

    def press() -> None:
        until(lambda: callable(signal.getsignal(signal.SIGTSTP)))
        os.kill(os.getpid(), signal.SIGTSTP)
        until(lambda: bool(stops))
        gate.touch()

    thread = threading.Thread(target=press)
    thread.start()
    assert to_its_end(follower)["exit_code"] == 0
    thread.join()
    warning = f"run {head.ids[0]} ends if kit is suspended for a minute"
    assert [event.text for event in remembered(follower).warnings] == ([warning] if stops_kit else [])
    assert (heard, follower.interrupted, stops) == ([signal.SIGTSTP], 0, ["stopped"])


def test_ctrl_z_stops_kit_at_once_where_the_run_goes_on() -> None:
    with Interrupts():
        assert signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL


_SUSPENDS = "from kit.remote.machine.interrupts import suspend; suspend(); print('on')"


def test_suspend_stops_and_continues() -> None:
    argv = [sys.executable, "-c", _SUSPENDS]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, process_group=0) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        assert process.communicate()[0] == b"on\n"


def test_suspend_goes_on_where_no_shell_could_continue_it() -> None:
    argv = [sys.executable, "-c", _SUSPENDS]
    assert subprocess.run(argv, capture_output=True, start_new_session=True, timeout=60, check=True).stdout == b"on\n"


_STOPPABLE = "from kit.remote.machine.interrupts import stoppable; print(stoppable())"
# A wrapper in the group of its program, as `timeout` and `uv run`.
_WRAPPED = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_STOPPABLE!r}])"


@pytest.mark.parametrize("program", [_STOPPABLE, _WRAPPED], ids=["alone", "in a wrapper"])
@pytest.mark.parametrize("group", ["own session", "own group"])
def test_ctrl_z_stops_only_what_a_shell_can_continue(program: str, group: str) -> None:
    own_session = group == "own session"
    argv = [sys.executable, "-c", program]
    done = subprocess.run(
        argv,
        capture_output=True,
        timeout=60,
        check=True,
        start_new_session=own_session,
        process_group=None if own_session else 0,
    )
    assert done.stdout == f"{not own_session}\n".encode()


def test_interrupts_leave_what_is_ignored_alone() -> None:
    """With nohup, a closed terminal does not count."""
    script = (
        "import os, signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from kit.remote.machine.interrupts import Interrupts\n"
        "with Interrupts() as found:\n"
        "    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT): os.kill(os.getpid(), number)\n"
        "    found.drain()\n"
        "    found.drain()\n"
        "print(found.count, signal.getsignal(signal.SIGINT) is signal.default_int_handler)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == b"2 True\n", done.stderr


def test_roles_of_a_parameter_server_by_rank() -> None:
    fields = {"event": "attempt", "np": 2, "roles": ["server", "server", "scheduler"]}
    names = ["worker 0", "worker 1", "server 0", "server 1", "scheduler"]
    assert list(roles_of(fields).items()) == [(str(rank), name) for rank, name in enumerate(names)]
    assert roles_of({"event": "attempt", "np": 2}) == {}
    assert roles_of(fields)["0"] in FIRST_RANK


def test_a_hang_report_shows_roles() -> None:
    lines = hang_report({"why": "w", "ranks": [{"rank": 2, "role": "server 0", "host": "gpu1", "waiting": True}]})
    assert lines[1] == "rank 2 (server 0) on gpu1: has not started"
