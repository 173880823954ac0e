"""Tests kit run and the verbs for runs, on VMs in memory with a real launcher as their head."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import queue
import shutil
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.cli.screen import jsonout
from kit.errors import AnswerError, EngineDownError, InputError, Interrupted, NotReadyError, StepError, UnreachableError
from kit.events import Note, UnfinishedLine, Warned
from kit.flows.context import Context
from kit.flows.run import attach as attaching
from kit.flows.run import follow
from kit.flows.run.attach import attach, run_logs, wait
from kit.flows.run.dial import dialled
from kit.flows.run.hosts import drop_hosts
from kit.flows.run.listing import listing, show
from kit.flows.run.ready import planned
from kit.flows.run.run import run
from kit.flows.run.stop import stop
from kit.model.launch import RunPolicy, RunRequest
from kit.model.result import RunResult
from kit.model.run import RUN_ID, Place, RunCode, RunRecord
from kit.model.values import asdict, replace
from kit.remote.run.door import Door
from tests.fakes.cluster import Cluster
from tests.fakes.fleet import Fleet
from tests.fakes.head import Head, MakeHead, until
from tests.fakes.reporter import Remembering
from tests.fakes.vm import listed

DETACHED = RunPolicy(operator=None)

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 and not shutil.which("sudo"), reason="needs root, or sudo without a password"
)


def test_a_whole_run(cluster: Cluster) -> None:
    result = cluster.run("echo rank $OMPI_COMM_WORLD_RANK of $A", env=(("A", "b c"),), tag_output=True)
    assert (result.exit_code, result.stopped, result.failure, result.attempts) == (0, "", None, 1)
    assert sorted((line.source, line.text) for line in cluster.reporter.lines) == [
        ("0", "rank 0 of b c"), ("1", "rank 1 of b c"),
    ]  # fmt: skip
    (record,) = cluster.records
    assert RUN_ID.fullmatch(record["id"])
    assert (record["cluster"], record["env"], record["command"][0]) == ("lab", ["A"], "sh")
    assert record["image"].startswith("kit:cpu-")
    assert [(place["node"], place["ranks"], place["slots"]) for place in record["places"]] == [("gpu1", 2, [0, 1])]
    cluster.head.nothing_left()


def test_run_and_wait_and_stop_are_one_shape(cluster: Cluster) -> None:
    result = cluster.run("echo a; exit 3", env=(("A", "b"),), np=1)
    own = jsonout.run(checked(result.record), result)
    later = [jsonout.run(verb(cluster.context(), result.plan.run_id)) for verb in (wait, partial(stop, grace_s=None))]
    only_run_knows = {"seconds", "folded", "interrupted", "plan", "started"}
    for other in later:
        assert list(other) == list(own)
        assert {key: other[key] for key in other.keys() - only_run_knows} == {
            key: own[key] for key in own.keys() - only_run_knows
        }
    assert (own["id"], own["exit_code"], own["np"], own["env"]) == (result.plan.run_id, 3, 1, ["A"])
    # Both are times by the head's clock; the record is written before the first line of the log.
    assert later[0]["started"] <= own["started"] <= own["ended"]


def checked(record: RunRecord | None) -> RunRecord:
    assert record is not None
    return record


def test_a_run_that_fails(cluster: Cluster) -> None:
    result = cluster.run("echo why >&2; exit 9", np=1)
    assert result.exit_code == 9
    assert result.failure is not None
    assert (result.failure.rank, result.failure.exit_code, result.failure.lines) == (0, 9, ("why",))
    assert result.left == {"gpu1": 0}


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"command": ("cat", "caf\udce9")}, "a word of the command is not UTF-8: caf\\udce9"),
        ({"command": ("ls",), "workdir": "caf\udce9"}, "--workdir is not UTF-8: caf\\udce9"),
        ({"command": ("ls",), "env": (("caf\udce9", "1"),)}, "the name of a variable is not UTF-8: caf\\udce9"),
        (
            {"command": ("cat", *["0123456789"] * 11_550)},
            "the command is too long: it has 127053 bytes, and a run can have at most 124 KiB",
        ),
        ({"command": ("ls",), "env": (("KIT_RUN", "mine"),)}, "-x KIT_RUN: kit sets this variable"),
        (
            {"command": ("ls",), "env": (("KIT_CHECKPOINT_DIR", "/mnt"),)},
            "-x KIT_CHECKPOINT_DIR: kit sets this variable",
        ),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_words_that_cannot_travel_are_refused(
    cluster: Cluster, more: dict[str, Any], text: str, *, dry_run: bool
) -> None:
    with pytest.raises(InputError) as caught:
        run(cluster.context(), RunRequest(dry_run=dry_run, **more))
    assert caught.value.message == text
    assert cluster.records == []


@pytest.mark.parametrize("room", [True, False])
def test_a_run_whose_slots_another_one_takes_is_planned_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *, room: bool
) -> None:
    """Both began side by side, and saw the same slots free."""
    others: list[Any] = []

    def overtaken(context: Context, ready: Any, **more: Any) -> Any:
        plan = planned(context, ready, **more)
        if not others:
            places = [asdict(place) for place in plan.places]
            slots = places[0]["slots"] if room else [0, 1]
            door, answer = cluster.head.run("sh", "-c", "exec sleep 600", places=[{**places[0], "slots": slots}])
            assert "started" in answer
            others.append(door)
        return plan

    monkeypatch.setattr("kit.flows.run.run.planned", overtaken)
    if room:
        result = cluster.run("true", np=1)
        assert (result.exit_code, [place.slots for place in result.plan.places]) == (0, [(1,)])
    else:
        with pytest.raises(NotReadyError, match="other runs hold them"):
            cluster.run("true", np=1)
    others[0].stop(grace=0.0)
    others[0].story()
    cluster.head.nothing_left()


@pytest.mark.parametrize("dry_run", [True, False])
def test_an_option_for_retries_is_refused_without_retries(cluster: Cluster, dry_run: bool) -> None:
    policy = RunPolicy(retry_on="lost-host")
    with pytest.raises(InputError, match="has no effect without --retries"):
        cluster.run("true", policy=policy, given=frozenset({"retry_on"}), dry_run=dry_run)
    assert cluster.records == []


def test_more_servers_than_a_host_has_room_for_are_warned_of(cluster: Cluster) -> None:
    cluster.run("true", launcher="ps", servers=1, dry_run=True)
    assert not cluster.reporter.warnings
    cluster.run("true", launcher="ps", servers=100, dry_run=True)
    (warned,) = cluster.reporter.warnings
    assert "100 servers on 1 host put 100 on gpu1" in warned.text
    assert warned.hint == "use --servers 1: one on each host that has workers"


def test_the_settings_of_runs_reach_the_head(cluster: Cluster) -> None:
    spec = {"runs": {"keep": 1, "clean": "none"}}
    for _ in range(3):
        result = cluster.run("setsid sleep 600 >/dev/null 2>&1 &", np=1, spec=spec)
    until(lambda: [record["id"] for record in cluster.records] == [result.plan.run_id])
    until(lambda: not cluster.head.processes())
    assert len(cluster.head.left()) == 3


CHANGED = {"env": {"FOO": "1"}, "shm_size": "2gb", "mpi": {"bind_to": "core"}}


def test_a_run_refuses_settings_that_are_not_deployed(cluster: Cluster) -> None:
    with pytest.raises(NotReadyError) as caught:
        cluster.run("true", spec=CHANGED)
    assert "env.FOO: added; shm_size: 1gb → 2gb" in caught.value.message
    assert "bind_to" not in caught.value.message
    assert caught.value.exit_code == 5
    assert cluster.records == []
    cluster.head.nothing_left()


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"user": "1000:1000"}, "user: unset → 1000:1000"),
        ({"pids": 100}, "security.pids: 32768 → 100"),
        ({"security": {"read_only": False}}, "security.read_only: True → False"),
        ({"nccl": {"plugin": "/opt/plugin"}}, "nccl.plugin: unset → /opt/plugin"),
    ],
)
def test_a_run_refuses_another_user_or_fence_or_plugin(cluster: Cluster, spec: dict[str, object], text: str) -> None:
    with pytest.raises(NotReadyError) as caught:
        cluster.run("true", spec=spec)
    assert caught.value.message.endswith(f"(deployed → now): {text}")
    assert cluster.records == []


def test_a_run_may_use_the_cluster_as_it_was_deployed(cluster: Cluster) -> None:
    assert cluster.run("true", spec=CHANGED, as_deployed=True).exit_code == 0
    assert cluster.run("true", spec={"mpi": {"bind_to": "core"}, "command": ["true"]}).exit_code == 0


def stdin_of(content: bytes) -> int:
    """Return a descriptor from which a process reads this."""
    read_end, write_end = os.pipe()
    threading.Thread(target=lambda: (os.write(write_end, content), os.close(write_end)), daemon=True).start()
    return read_end


def test_rank_0_gets_standard_input(cluster: Cluster) -> None:
    """The others see its end at once. Each attempt gets all of it."""
    script = 'cat | sed "s/^/$KIT_ATTEMPT: /"; [ $OMPI_COMM_WORLD_RANK = 1 ] || [ $KIT_ATTEMPT = 2 ]'
    policy = RunPolicy(retries=1, backoff=0.01)
    result = cluster.run(script, np=2, stdin=stdin_of(b"one\ntwo\n"), policy=policy, tag_output=True)
    assert result.exit_code == 0
    lines = [(line.source, line.text) for line in cluster.reporter.lines if line.stream == "stdout"]
    assert lines == [("0", "1: one"), ("0", "1: two"), ("0", "2: one"), ("0", "2: two")]
    # What was sent is not kept.
    assert not list(cluster.head.runs.glob("*/stdin*"))
    cluster.head.nothing_left()


def test_much_input_arrives_whole(cluster: Cluster) -> None:
    content = os.urandom(3 << 20)
    assert cluster.run("sha256sum", np=1, stdin=stdin_of(content)).exit_code == 0
    assert cluster.out == [f"{hashlib.sha256(content).hexdigest()}  -"]


def test_input_that_the_heads_disk_cuts_is_reported(cluster: Cluster) -> None:
    """A limit on the size of files replaces a full disk. Who looks at the log later learns it, too."""
    docker = cluster.head.folder / "kit-bin" / "docker"
    docker.write_text(docker.read_text().replace("\nexec ", "\nexec prlimit --fsize=100000 ", 1))
    result = cluster.run("wc -c", np=1, stdin=stdin_of(b"x" * 300_000))
    assert (result.exit_code, int(cluster.out[0]) < 300_000) == (0, True)
    text = "rank 0 got only a part of {} standard input, because the disk of the head was full"
    (warned,) = cluster.reporter.of(Warned)
    assert warned.text == text.format("your")
    assert "kit ssh gpu1 -- df -h" in str(warned.hint)
    assert not list(cluster.head.runs.glob("*/stdin*"))
    run_logs(cluster.context(), None, rank=None, since_s=None, follow=False, tagged=False)
    assert cluster.reporter.of(Warned)[1:] == [replace(warned, text=text.format("its"))]


def test_a_run_that_does_not_read_its_input_ends(cluster: Cluster) -> None:
    assert cluster.run("exit 3", np=1, stdin=stdin_of(b"x" * (2 << 20))).exit_code == 3
    read_end, write_end = os.pipe()
    assert cluster.run("true", np=1, stdin=read_end).exit_code == 0
    os.close(write_end)
    cluster.head.nothing_left()


def test_an_image_that_takes_no_input_is_named(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Door.open

    def old(self: Door) -> None:
        opened(self)
        self.takes_stdin = False

    monkeypatch.setattr(Door, "open", old)
    with pytest.raises(NotReadyError, match="does not pass standard input on"):
        cluster.run("true", np=1, stdin=stdin_of(b""))
    assert cluster.run("true", np=1).exit_code == 0


def test_an_option_that_the_launcher_would_ignore_is_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Door.open

    def old(self: Door) -> None:
        opened(self)
        self.options = self.waiting = None

    monkeypatch.setattr(Door, "open", old)
    with pytest.raises(NotReadyError, match="an older kit deployed the cluster, which would ignore --memory"):
        cluster.run("true", np=1, policy=RunPolicy(memory=1 << 30))
    assert cluster.run("true", np=1).exit_code == 0
    cluster.head.nothing_left()


def test_a_run_uses_the_door_that_is_already_connecting(cluster: Cluster) -> None:
    with dialled(cluster.context()) as door:
        assert cluster.run("true", door=door).exit_code == 0
    assert (cluster.head.folder / "dialled").read_text().count("x") == 1
    cluster.head.nothing_left()


def test_a_door_that_is_not_used_is_closed_after_an_error(cluster: Cluster) -> None:
    with pytest.raises(InputError), dialled(cluster.context()) as door:
        cluster.run("true", hosts="nosuch", door=door)
    with pytest.raises(ValueError, match="closed file"):
        door.answer()
    cluster.head.nothing_left()


def test_detached(cluster: Cluster) -> None:
    gate = cluster.head.folder / "gate"
    os.mkfifo(gate)
    result = cluster.run(f"read -r word <{gate}; echo $word", np=1, detach=True, policy=RunPolicy(operator=None))
    assert result.exit_code is None
    assert cluster.out == []
    gate.write_text("went-on\n")
    ended = attach(cluster.context(), None, tagged=False)
    assert (ended.id, ended.state, ended.exit_code) == (result.plan.run_id, "ended", 0)
    assert cluster.out == ["went-on"]
    # attach prints the log again, for the start of an id; wait prints nothing.
    assert attach(cluster.context(), ended.id[:12], tagged=False).exit_code == 0
    assert wait(cluster.context(), ended.id).exit_code == 0
    assert run_logs(cluster.context(), ended.id, rank=0, since_s=600, follow=None, tagged=True).exit_code == 0
    assert cluster.out == ["went-on"] * 3
    cluster.head.nothing_left()


def test_parts_of_a_log(cluster: Cluster) -> None:
    result = cluster.run("for n in 1 2 3; do echo $OMPI_COMM_WORLD_RANK.$n; done", np=2)
    verbs: tuple[Callable[..., Any], ...] = (attach, partial(run_logs, follow=False))
    for verb in verbs:
        cluster.reporter.events.clear()
        part: dict[str, Any] = {"rank": 1, "tail": 2, "since_s": 60.0, "tagged": False}
        # The beginning of an id, or nothing for the latest run.
        for word in (result.plan.run_id[:15], None):
            verb(cluster.context(), word, **part)
        assert cluster.out == ["1.2", "1.3"] * 2
        cluster.reporter.events.clear()
        verb(cluster.context(), None, **{**part, "tail": 0})
        assert cluster.out == []
        with pytest.raises(InputError, match=f"run {result.plan.run_id} has no rank 2") as caught:
            verb(cluster.context(), None, **{**part, "rank": 2})
        assert caught.value.hint == "its ranks are 0 to 1"
        with pytest.raises(InputError, match="no run 'x' on the head"):
            verb(cluster.context(), "x", **part)


def test_the_log_of_a_rank_on_a_host_that_a_retry_left_out(cluster: Cluster) -> None:
    run_id = cluster.run("echo $OMPI_COMM_WORLD_RANK", np=2).plan.run_id
    file = cluster.head.runs / run_id / "record.json"
    record = json.loads(file.read_text())
    places = [{**place, "ranks": 1 if number == 0 else 0} for number, place in enumerate(record["places"])]
    file.write_text(json.dumps({**record, "places": places, "most_np": 2}))
    cluster.reporter.events.clear()
    assert run_logs(cluster.context(), None, rank=1, since_s=None, follow=False, tagged=False).np == 1
    assert cluster.out == ["1"]


def test_the_last_seconds_of_a_log_are_those_of_the_heads_clock(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its times are those of the head."""
    cluster.run("echo a", np=1)
    clock = SimpleNamespace(time=lambda: time.time() + 3600)
    monkeypatch.setattr(attaching, "time", clock)

    def last_minutes() -> list[str]:
        cluster.reporter.events.clear()
        run_logs(cluster.context(), None, rank=None, since_s=600.0, follow=False, tagged=False)
        return cluster.out

    assert last_minutes() == ["a"]
    ask = Door.ask

    def older(door: Door, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: value for name, value in ask(door, request).items() if name != "now"}

    # Images of an older kit give no time.
    monkeypatch.setattr(Door, "ask", older)
    assert last_minutes() == []


Asked = list[tuple[int, object]]


@pytest.fixture
def asked(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The requests for a log: how much of its end was wanted, and where it began. Records have marks."""
    requests: Asked = []
    ask = Door.ask

    def remember(door: Door, request: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = ask(door, request)
        if request["op"] == "attach":
            requests.append((request.get("tail", 0), answer.get("offset")))
        return answer

    monkeypatch.setattr(Door, "ask", remember)
    cluster.head.values["store_MARK_EVERY"] = 1
    cluster.reach()
    return requests


def test_only_the_end_of_a_log_is_read_for_its_last_lines(
    cluster: Cluster, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = cluster.head.folder / "gate"
    os.mkfifo(gate)
    cluster.run(f"echo one; echo two; read -r word <{gate}; echo three; echo four", np=1, detach=True, policy=DETACHED)
    until(lambda: b"two\n" in cluster.log())
    begin = len(cluster.log())
    gate.write_text("\n")
    assert wait(cluster.context(), None).exit_code == 0
    monkeypatch.setattr(attaching, "TAIL", len(cluster.log()) - begin)
    monkeypatch.setattr(attaching, "TAIL_LINE", 0)

    def last(count: int, since_s: float | None = None) -> list[str]:
        asked.clear()
        cluster.reporter.events.clear()
        run_logs(cluster.context(), None, rank=None, since_s=since_s, follow=False, tagged=False, tail=count)
        return cluster.out

    assert last(2) == ["three", "four"]
    assert asked == [(attaching.TAIL, begin)]
    # Too few: the whole log is read.
    assert last(3) == ["two", "three", "four"]
    assert asked == [(attaching.TAIL, begin), (0, 0)]
    # What is wanted is not older.
    assert last(3, since_s=0.0) == []
    assert len(asked) == 1
    asked.clear()
    assert wait(cluster.context(), None).exit_code == 0
    ((_, offset),) = asked
    assert isinstance(offset, int)
    assert offset >= begin
    # An older launcher sends the whole log, and does not say where it begins.
    monkeypatch.setattr(attaching, "_wanted_bytes", lambda *_, **__: 0)
    assert last(3) == ["two", "three", "four"]
    cluster.head.nothing_left()


@pytest.mark.parametrize("offset", [-1, "7", None, 1.5, 2**60])
def test_a_log_that_begins_nowhere_is_an_error_of_the_head(cluster: Cluster, offset: object) -> None:
    door = Door(cluster.context().login(cluster.fleet["gpu1"].host), "")
    with pytest.raises(AnswerError, match="kit cannot read an answer of its launcher"):
        attaching._offset(door, {"offset": offset})


@pytest.mark.parametrize("part", [False, True])
def test_a_tail_goes_on_with_what_comes(
    cluster: Cluster, asked: Asked, monkeypatch: pytest.MonkeyPatch, part: bool
) -> None:
    if part:
        monkeypatch.setattr(attaching, "TAIL", 1)
        monkeypatch.setattr(attaching, "TAIL_LINE", 0)
    gate = cluster.head.folder / "gate"
    os.mkfifo(gate)
    cluster.run(f"echo old; echo new; read -r word <{gate}; echo $word", np=1, detach=True, policy=DETACHED)
    until(lambda: b"new\n" in cluster.log())

    def go_on() -> None:
        until(lambda: cluster.out == ["new"])
        gate.write_text("later\n")

    opener = threading.Thread(target=go_on)
    opener.start()
    ended = attach(cluster.context(), None, tagged=False, tail=1)
    opener.join()
    assert (ended.exit_code, cluster.out) == (0, ["new", "later"])
    assert (asked[0][1] != 0) == part
    cluster.head.nothing_left()


def test_a_line_that_is_unfinished_at_the_end_of_a_tail_stays_whole(cluster: Cluster) -> None:
    gate = cluster.head.folder / "gate"
    os.mkfifo(gate)
    script = f"echo old; printf 'half '; read -r word <{gate}; echo $word; exit 0"
    cluster.run(script, np=1, detach=True, policy=DETACHED)
    until(lambda: b"half " in cluster.log())
    shown = [UnfinishedLine(text="half ", stream="stdout", source="")]

    def go_on() -> None:
        # It is shown as soon as kit follows.
        until(lambda: [event for event in cluster.reporter.events if isinstance(event, UnfinishedLine)][:1] == shown)
        gate.write_text("whole\n")

    opener = threading.Thread(target=go_on)
    opener.start()
    attach(cluster.context(), None, tagged=False, tail=1)
    opener.join()
    assert cluster.out == ["old", "half whole"]
    # Without following, the unfinished line is the last one.
    cluster.reporter.events.clear()
    cluster.run("echo old; printf half", np=1)
    cluster.reporter.events.clear()
    run_logs(cluster.context(), None, rank=None, since_s=None, follow=False, tagged=False, tail=1)
    assert cluster.out == ["half"]
    cluster.head.nothing_left()


def test_a_log_that_was_deleted_is_named_with_the_next_step(cluster: Cluster) -> None:
    run_id = cluster.run("echo gone; exit 3", np=1).plan.run_id
    cluster.reporter.events.clear()
    (cluster.head.runs / run_id / "log").unlink()
    verbs: tuple[Callable[..., Any], ...] = (
        partial(attach, tagged=False),
        partial(run_logs, rank=None, since_s=None, follow=False, tagged=False, tail=2),
        wait,
    )
    for verb in verbs:
        assert verb(cluster.context(), run_id).exit_code == 3
    assert cluster.out == []
    warned = [(warning.text, warning.hint) for warning in cluster.reporter.warnings]
    text = f"the log of run {run_id} was deleted, as runs.keep and runs.ttl_days in kit.yaml say"
    assert warned == [(text, f"see what is left of the run: kit runs show {run_id}")] * 2


def detached(cluster: Cluster, **more: Any) -> RunResult:
    return cluster.run("echo up; exec sleep 600", detach=True, policy=RunPolicy(operator=None), **more)


def test_stop(cluster: Cluster) -> None:
    result = detached(cluster)
    ended = stop(cluster.context(), result.plan.run_id, grace_s=0.0)
    assert (ended.state, ended.exit_code, ended.left) == ("ended", 143, {"gpu1": 0})
    assert ended.stopped.startswith("stopped by ")
    again = stop(cluster.context(), None, grace_s=None)
    assert (again.id, again.stopped) == (ended.id, ended.stopped)
    cluster.head.nothing_left()


def test_a_supervisor_that_is_killed_while_it_stops_a_run(cluster: Cluster) -> None:
    run_id = cluster.run(
        "trap '' TERM; echo up; while :; do sleep 0.05; done", detach=True, policy=RunPolicy()
    ).plan.run_id
    until(lambda: b"up\n" in (cluster.head.runs / run_id / "log").read_bytes())

    def work() -> None:
        until((cluster.head.runs / run_id / "stop").exists)
        os.kill(cluster.head.supervisor(), signal.SIGKILL)

    thread = threading.Thread(target=work)
    thread.start()
    with pytest.raises(NotReadyError, match=f"^gpu1: run {run_id} is lost: its supervisor .* killed$") as caught:
        stop(cluster.context(), run_id, grace_s=60.0)
    thread.join()
    assert caught.value.hint == "check the nodes with kit ps, then restore them: kit deploy"


def test_stop_without_an_id_spares_the_run_of_somebody_else(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = detached(cluster, np=1).plan.run_id
    monkeypatch.setattr("kit.flows.run.ready.operator", lambda: "anna@laptop")
    theirs = detached(cluster, np=1).plan.run_id
    with pytest.raises(NotReadyError, match=f"^anna@laptop started the latest run, {theirs}") as caught:
        stop(cluster.context(), None, grace_s=0.0)
    assert caught.value.hint == f"to stop it, name it: kit stop {theirs}; your latest run: kit stop {mine}"
    assert stop(cluster.context(), theirs, grace_s=0.0).id == theirs
    # Now the latest one is yours.
    assert stop(cluster.context(), None, grace_s=0.0).id == mine
    cluster.head.nothing_left()


def test_a_lost_run_holds_its_slots_but_is_not_the_latest_one_to_stop(
    fleet: Fleet, make_head: MakeHead, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head's VM has just come back, so other hosts may still have ranks of the lost run."""
    cluster = Cluster(fleet, make_head(leases_RANKS_S=1e9), reporter, monkeypatch)
    place = Place(node="gpu2", address="10.0.0.2", ranks=2, slots=(0, 1), of=2)
    folder = cluster.head.runs / "20261121-101500-3fa2"
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(json.dumps({"id": folder.name, "by": "anna@x", "places": [asdict(place)]}))
    with pytest.raises(NotReadyError, match=f"{folder.name} of anna@x, which was lost with the head$") as caught:
        cluster.run("true", np=1, hosts="gpu2")
    assert "end the ranks of a lost run within a minute: run the same again then" in str(caught.value.hint)
    for word, message in ((None, "no run is running, so none can change"), (folder.name, f"{folder.name} has ended$")):
        with pytest.raises(NotReadyError, match=message):
            drop_hosts(cluster.context(), word, "gpu2")
    mine = detached(cluster).plan.run_id
    with pytest.raises(NotReadyError, match=f"run {mine} stay the same: run {mine} is not elastic"):
        drop_hosts(cluster.context(), None, "gpu1")
    assert stop(cluster.context(), None, grace_s=0.0).id == mine
    cluster.head.nothing_left()


@pytest.mark.parametrize("verb", [wait, lambda context, word: stop(context, word, grace_s=None)])
def test_a_run_that_there_is_not(cluster: Cluster, verb: Callable[[Context, str | None], object]) -> None:
    with pytest.raises(NotReadyError, match="has had no run yet"):
        verb(cluster.context(), None)
    cluster.run("true")
    with pytest.raises(InputError, match="no run 'x' on the head"):
        verb(cluster.context(), "x")
    # The launcher says only that it has no such run. kit reads the head's disk to say why.
    ids = ("20250101-000000-0001", "20250101-000000-0002")
    cluster.fleet["gpu1"].runs = listed(*(({"id": run, "started": at}, None) for at, run in enumerate(ids)))
    with pytest.raises(InputError, match=rf"'2025' is the beginning of 2 runs: {ids[1]}, {ids[0]}$"):
        verb(cluster.context(), "2025")


# Slots


def test_free_slots_are_taken_and_held_ones_refused(cluster: Cluster) -> None:
    first = detached(cluster, np=1)
    # One slot of gpu1 is free, and the run gets the number of that slot.
    second = cluster.run("echo slots $KIT_HELD_SLOTS", np=1)
    assert second.plan.places[0].slots == (1,)
    assert second.plan.env["KIT_HELD_SLOTS"] == "gpu1=1"
    with pytest.raises(NotReadyError) as caught:
        cluster.run("true", np=2)
    assert first.plan.run_id in caught.value.message
    assert cluster.run("true", np=3, oversubscribe=True, policy=RunPolicy(share=True)).exit_code == 0
    stop(cluster.context(), first.plan.run_id, grace_s=0.0)
    assert cluster.run("true", np=2).exit_code == 0


# GPUs


@pytest.fixture
def on_gpus(fleet: Fleet, head: Head, reporter: Remembering, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster whose head has two GPUs."""
    fleet["gpu1"].gpus = 2
    # Only some hosts have GPUs, so they cannot choose the image.
    one = Cluster(fleet, head, reporter, monkeypatch, image={"flavour": "cpu"})
    yield one
    head.ids += [record["id"] for record in one.records]


def test_ranks_get_gpus_of_the_hosts_as_deployed(on_gpus: Cluster) -> None:
    result = on_gpus.run("true", np=1, gpus_per_rank=1)
    assert result.plan.places[0].slots == (0,)
    assert (result.plan.env["KIT_GPUS_PER_RANK"], result.plan.env["KIT_HELD_SLOTS"]) == ("1", "gpu1=0")
    # This machine, where the rank runs, has no GPU.
    assert result.failure is not None
    assert (result.exit_code, result.failure.kind, result.failure.exit_code) == (4, "rank", 4)
    assert "this node sees no GPU, and each rank gets 1 for itself" in result.failure.lines[-1]
    with pytest.raises(InputError, match="gpu1 has 2 GPUs, and each rank gets 4"):
        on_gpus.run("true", gpus_per_rank=4)
    with pytest.raises(InputError, match="gpu2 has no GPU, and each rank gets 1"):
        on_gpus.run("true", hosts="gpu2", spec={"gpus_per_rank": 1})


def test_programs_of_others_on_the_gpus_stop_a_run(on_gpus: Cluster) -> None:
    vm = on_gpus.fleet["gpu1"]
    # Ranks of this cluster have leases.
    vm.gpu_processes = ["GPU-gpu1-0 41 100 root lab python"]
    assert on_gpus.run("true").exit_code == 0
    vm.gpu_processes += ["GPU-gpu1-0 42 100 alice - jupyter"]
    with pytest.raises(NotReadyError, match=r"gpu1: GPU 0: jupyter \(PID 42 of alice, 100 MiB\)"):
        on_gpus.run("true")
    assert on_gpus.run("true", ignore_busy_gpus=True).exit_code == 0
    assert [warning.text for warning in on_gpus.reporter.of(Warned)][-1:] == [
        "other programs use GPUs of this run: gpu1: GPU 0: jupyter (PID 42 of alice, 100 MiB)"
    ]
    # A run on the other GPU starts.
    vm.gpu_processes[1] = "GPU-gpu1-1 42 100 alice - jupyter"
    assert on_gpus.run("true", np=1).exit_code == 0


@pytest.fixture
def all_gpus(fleet: Fleet, head: Head, reporter: Remembering, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster whose hosts have two GPUs each."""
    for vm in fleet.vms.values():
        vm.gpus = 2
    one = Cluster(fleet, head, reporter, monkeypatch, image={"flavour": "cpu"})
    yield one
    head.ids += [record["id"] for record in one.records]


def test_a_run_goes_around_busy_gpus(all_gpus: Cluster) -> None:
    vms = all_gpus.fleet
    vms["gpu1"].gpu_processes = ["GPU-gpu1-0 42 100 alice - jupyter"]
    vms["gpu2"].gpu_processes = ["GPU-gpu2-7 43 100 bob - python"]
    vms["gpu3"].hidden_gpus = (1,)
    vms["gpu3"].containers[0].running = True
    result = all_gpus.run("true", hosts=None, np=3)
    # GPU 0 of gpu1 is busy, gpu2 has a program on a GPU that it does not list, and the node of gpu3 sees one of two.
    assert {place.node: place.slots for place in result.plan.places} == {"gpu1": (1,), "gpu4": (0, 1)}
    assert result.exit_code == 0
    assert [record["id"] for record in all_gpus.records] == [result.plan.run_id]
    (text,) = [warned.text for warned in all_gpus.reporter.of(Warned) if "the run uses others" in warned.text]
    assert text.startswith("programs that kit did not start use GPUs: gpu1: GPU 0: jupyter (PID 42 of alice, 100 MiB)")
    assert text.endswith("the run uses others: gpu1: GPU 1; gpu4: GPUs 0, 1")
    alone = all_gpus.run("true", hosts=None, np=2, gpus_per_rank=1)
    assert {place.node: place.slots for place in alone.plan.places} == {"gpu1": (1,), "gpu4": (0,)}


def test_too_few_other_gpus_or_a_wait_refuse_a_run(all_gpus: Cluster) -> None:
    all_gpus.fleet["gpu1"].gpu_processes = ["GPU-gpu1-0 42 100 alice - jupyter"]
    for wish in ({"np": 4, "hosts": "gpu[1-2]"}, {"np": 4, "hosts": "gpu[1-2]", "wait": True}, {"oversubscribe": True}):
        with pytest.raises(NotReadyError, match=r"use GPUs of this run: gpu1: GPU 0: jupyter"):
            all_gpus.run("true", **wish)
    assert all_gpus.records == []


def test_what_a_run_says_of_pretended_gpus_says_so(all_gpus: Cluster) -> None:
    vm = all_gpus.fleet["gpu1"]
    vm.model, vm.gpu_processes = "NVIDIA H200 (PRETENDED)", ["GPU-gpu1-0 42 100 alice - jupyter"]
    with pytest.raises(NotReadyError, match=r"gpu1: GPU 0 \(PRETENDED\): jupyter \(PID 42 of alice"):
        all_gpus.run("true", np=4, hosts="gpu[1-2]")
    vm.hidden_gpus = (1,)
    with pytest.raises(NotReadyError, match=r"GPU-gpu1-1 is missing \(PRETENDED\)"):
        all_gpus.run("true", np=1)


def test_a_node_that_lost_some_of_its_gpus_gets_no_run(all_gpus: Cluster) -> None:
    all_gpus.fleet["gpu1"].hidden_gpus = (1,)
    with pytest.raises(
        NotReadyError, match="gpu1: the node sees 1 of the host's 2 GPUs: GPU-gpu1-1 is missing"
    ) as caught:
        all_gpus.run("true", np=1)
    assert "kit deploy" in str(caught.value.hint)
    # The host itself lost one, so that its node cannot see it either.
    all_gpus.fleet["gpu1"].hidden_gpus, all_gpus.fleet["gpu1"].gpus = (), 1
    with pytest.raises(NotReadyError, match="gpu1: the host has 1 of the 2 GPUs that it had at the deploy"):
        all_gpus.run("true", np=1)


def test_a_node_that_lost_its_gpus_gets_no_run(on_gpus: Cluster) -> None:
    on_gpus.fleet["gpu1"].lost_gpus = True
    with pytest.raises(
        NotReadyError, match="gpu1: the node sees no GPU: Failed to initialize NVML: Unknown Error"
    ) as caught:
        on_gpus.run("true", np=1)
    assert "kit deploy" in str(caught.value.hint)


def test_a_host_that_does_not_list_programs_runs_ranks(on_gpus: Cluster) -> None:
    vm = on_gpus.fleet["gpu1"]
    vm.gpu_processes = ["GPU-gpu1-0 99999999999999999999 100 alice - x"]
    assert on_gpus.run("true").exit_code == 0
    vm.gpu_processes = ["GPU-gpu1-0 42 100 \x1b[2J - x"]
    assert on_gpus.run("true").exit_code == 0
    assert any("cannot look for other programs" in warning.text for warning in on_gpus.reporter.of(Warned))


def test_waiting_for_slots(cluster: Cluster) -> None:
    first = detached(cluster)

    def work() -> None:
        until(lambda: any("waiting for slots" in note.text for note in cluster.reporter.of(Note)))
        stop(cluster.context(), first.plan.run_id, grace_s=0.0)

    thread = threading.Thread(target=work)
    thread.start()
    assert cluster.run("echo mine", np=2, wait=True).exit_code == 0
    thread.join()
    assert cluster.out == ["mine", "mine"]
    (note,) = [note.text for note in cluster.reporter.of(Note) if "waiting" in note.text]
    assert first.plan.run_id in note


def test_somebody_who_was_quicker(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run takes the slot between the listing and the start."""
    first = detached(cluster)
    opened = Door.open

    def blind(door: Door) -> None:
        opened(door)
        door.living = ()

    monkeypatch.setattr(Door, "open", blind)
    with pytest.raises(NotReadyError, match=first.plan.run_id):
        cluster.run("true")


def test_a_head_without_room(cluster: Cluster) -> None:
    cluster.head.runs.write_text("in the way")
    with pytest.raises(NotReadyError) as caught:
        cluster.run("true")
    assert "could not start the run" in caught.value.message
    assert "df -h" in str(caught.value.hint)
    cluster.head.runs.unlink()


# What goes wrong


def interrupt(cluster: Cluster, pressed: Path | None = None) -> threading.Thread:
    """Send Ctrl-C when the run is up. The file `pressed` exists afterwards."""

    def work() -> None:
        until(lambda: signal.getsignal(signal.SIGINT) is not signal.default_int_handler)
        until(lambda: b"up\n" in cluster.log())
        os.kill(os.getpid(), signal.SIGINT)
        if pressed:
            pressed.touch()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_ctrl_c(cluster: Cluster) -> None:
    thread = interrupt(cluster)
    with pytest.raises(Interrupted, match="was stopped; ranks left: 0"):
        cluster.run("echo up; exec sleep 600")
    thread.join()
    assert json.loads(next(cluster.head.runs.glob("*/end.json")).read_text())["stopped"] == "Ctrl-C"
    cluster.head.nothing_left()


def test_ctrl_c_that_comes_too_late_to_stop_the_run_is_reported(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow.Follower, "_stop", lambda *_: None)
    pressed = cluster.head.folder / "pressed"
    thread = interrupt(cluster, pressed)
    result = cluster.run(f"echo up; until [ -e {pressed} ]; do sleep 0.02; done; exit 3")
    thread.join()
    assert (result.exit_code, result.stopped, result.interrupted) == (3, "", True)
    assert not cluster.run("true").interrupted


def first_raises(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, times: int) -> None:
    """Raise KeyboardInterrupt in the first `times` calls of this method."""
    method, left = getattr(kind, name), [KeyboardInterrupt] * times

    def work(*given: Any, **named: Any) -> Any:
        if left:
            raise left.pop()
        return method(*given, **named)

    monkeypatch.setattr(kind, name, work)


@pytest.mark.parametrize(
    ("kind", "name", "times"),
    [
        (Door, "answer", 1),
        # After the request to the head, and before its answer.
        (Door, "answer", 2),
        # Between the answer and the moment when the follower counts Ctrl-C.
        (follow.Follower, "follow", 1),
    ],
)
def test_ctrl_c_while_it_starts(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, kind: type, name: str, times: int
) -> None:
    first_raises(monkeypatch, kind, name, times)
    with pytest.raises(Interrupted, match="was stopped; ranks left: 0"):
        cluster.run("exec sleep 600")
    assert json.loads(next(cluster.head.runs.glob("*/end.json")).read_text())["stopped"] == "Ctrl-C"
    cluster.head.nothing_left()


def test_ctrl_c_while_the_request_is_sent(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link takes only a part of it until Ctrl-C has come."""
    pressed = cluster.head.folder / "pressed"
    cluster.reach(f"exec < <(until [ -e {pressed} ]; do sleep 0.02; done; exec cat)")
    send, pipes = Door.send, queue.Queue[int]()

    def sent(door: Door, value: Mapping[str, Any]) -> None:
        if value.get("op") == "start":
            assert door._process is not None
            assert door._process.stdin is not None
            pipes.put(door._process.stdin.fileno())
        send(door, value)

    def is_full(pipe: int) -> bool:
        size = bytearray(4)
        fcntl.ioctl(pipe, termios.FIONREAD, size)
        return int.from_bytes(size, sys.byteorder) >= fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)

    def press() -> None:
        pipe = pipes.get(timeout=60.0)
        until(lambda: is_full(pipe))
        # The kernel could give a signal for the process to this thread, and then it cuts no write.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        pressed.touch()

    monkeypatch.setattr(Door, "send", sent)
    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(Interrupted, match="was stopped; ranks left: 0"):
        cluster.run(f"exec sleep 600 # {'x' * 100_000}")
    thread.join()
    cluster.head.nothing_left()


def test_ctrl_c_before_the_head_has_answered_to_a_stop(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends the wait, and the run ends, too."""
    result = detached(cluster)
    first_raises(monkeypatch, Door, "answer", 1)
    record = stop(cluster.context(), result.plan.run_id, grace_s=0.0)
    assert (record.id, record.state) == (result.plan.run_id, "running")
    assert wait(cluster.context(), record.id).exit_code == 143
    cluster.head.nothing_left()


def test_ctrl_c_ends_the_looking_of_who_only_looks(cluster: Cluster) -> None:
    result = detached(cluster)
    thread = interrupt(cluster)
    record = attach(cluster.context(), None, tagged=False)
    thread.join()
    assert (record.state, record.exit_code) == ("running", None)
    stop(cluster.context(), result.plan.run_id, grace_s=0.0)


def test_a_run_whose_engine_is_down_has_not_ended(cluster: Cluster) -> None:
    """With live-restore, its ranks go on: nobody may take the log that is there for its end."""
    run_id = detached(cluster).plan.run_id
    cluster.fleet["gpu1"].runs = listed((cluster.record(run_id), None), live=True)
    cluster.reach("echo 'Cannot connect to the Docker daemon at unix:///x. Is it running?' >&2; exit 1")
    with pytest.raises(EngineDownError, match="no Docker Engine answers"):
        wait(cluster.context(), run_id)
    cluster.reach()
    stop(cluster.context(), run_id, grace_s=0.0)


def kill_supervisor(cluster: Cluster) -> threading.Thread:
    def work() -> None:
        until(lambda: b"up\n" in cluster.log())
        cluster.head.ids += [record["id"] for record in cluster.records]
        os.kill(cluster.head.supervisor(), signal.SIGKILL)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_supervisor_that_is_killed(cluster: Cluster) -> None:
    thread = kill_supervisor(cluster)
    cluster.fleet["gpu1"].ranks = []
    with pytest.raises(NotReadyError, match=r"is lost: its supervisor .* ranks left: 0"):
        cluster.run("echo up; exec sleep 600")
    thread.join()
    assert wait(cluster.context(), None).state == "lost"


@pytest.mark.parametrize("operator", ["stop", "keep"])
def test_a_head_that_cannot_be_had_any_more(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, operator: Any) -> None:
    """kit ends the ranks on other hosts, unless the run is to continue without its operator."""
    monkeypatch.setattr(follow, "AGAIN_S", 0.1)
    monkeypatch.setattr(follow, "AGAIN_EVERY_S", 0.02)
    swept: list[str] = []
    monkeypatch.setattr("kit.flows.run.run._clean_up", lambda context, plan: swept.append(plan.run_id) or "0")
    cluster.reach('if [ $count = 1 ]; then cut_after 2500; fi; echo "ssh: no route" >&2; exit 255')
    with pytest.raises(UnreachableError, match="no route"):
        cluster.run("while :; do echo up; sleep 0.01; done", policy=RunPolicy(operator=operator))
    assert [RUN_ID.fullmatch(run_id) is not None for run_id in swept] == ([True] if operator == "stop" else [])


def test_the_listing_comes_from_the_vm(fleet: Fleet, reporter: Remembering) -> None:
    """The listing needs no running container."""
    first, second = "20260101-000000-000b", "20260101-000000-000a"
    runs = (({"id": first, "started": 1}, None), ({"id": second, "started": 2}, {"exit_code": 3}))
    fleet["gpu1"].runs = listed(*runs, live=True)
    record = listing(fleet.context(reporter))
    assert record.cluster == "lab"
    assert [(run.id, run.state) for run in record.runs] == [(second, "ended"), (first, "running")]
    assert fleet.changes == {}
    fleet["gpu1"].faults.add("disk full")
    with pytest.raises(StepError, match="its runs could not be read"):
        listing(fleet.context(reporter))


def test_show_has_what_the_head_keeps(fleet: Fleet, reporter: Remembering) -> None:
    code = {"digest": "d" * 64, "folder": "/a", "files": 1, "size": 2, "commit": "c", "dirty": True, "diff": "+x\n"}
    b1, b2, other = "20260101-000000-00b1", "20260101-000000-00b2", "20260202-000000-000c"
    places = [{"node": "gpu3", "address": "10.0.0.3", "ranks": 1, "slots": [0]}]
    fleet["gpu1"].runs = listed(
        ({"id": b1, "started": 1, "code": code}, None),
        ({"id": b2, "started": 2}, {"exit_code": 3}),
        ({"id": other, "started": 3, "places": places, "options": {"checkpoints": "/mnt/c"}}, {"exit_code": 0}),
        live=True,
    )
    context = fleet.context(reporter)
    latest = show(context, None)
    assert (latest.record.id, latest.record.state, latest.diff) == (b1, "running", "+x\n")
    assert latest.record.code == RunCode(digest="d" * 64, folder="/a", files=1, size=2, commit="c", dirty=True)
    assert (latest.head, latest.log) == ("gpu1", f"/opt/kit/lab/var/runs/{b1}/log")
    assert latest.work == f"/opt/kit/lab/var/runs/{b1}/work"
    assert show(context, "latest") == latest
    assert (latest.checkpoints, show(context, other).checkpoints) == ("", "gpu3:/mnt/c")
    assert (show(context, "20260202").record.exit_code, show(context, "20260202").work) == (0, "")
    printed = jsonout.shown_run(latest)
    assert (printed["id"], printed["diff"], printed["code"]["digest"]) == (b1, "+x\n", "d" * 64)
    several = f"'20260101' is the beginning of 2 runs: {b2}, {b1}$"
    for word, message in {"20260101": several, "x": "no run 'x' on the head$"}.items():
        with pytest.raises(InputError, match=message):
            show(context, word)
    fleet["gpu1"].runs = ""
    with pytest.raises(NotReadyError, match="has had no run yet"):
        show(context, "latest")
    assert fleet.changes == {}


def test_before_any_deploy(fleet: Fleet, reporter: Remembering, head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    """The container exists, but has no record of a cluster."""
    monkeypatch.setenv("PATH", f"{head.reached_by_ssh()}:{os.environ['PATH']}")
    with pytest.raises(NotReadyError):
        run(fleet.context(reporter), RunRequest(command=("true",)))
    head.nothing_left()
