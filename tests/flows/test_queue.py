"""kit run --queue, kit queue and cordons, on VMs in memory with a real launcher and keeper as their head."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kit.cli.text.run import array_ended, stopped
from kit.errors import ArrayMeant, InputError, Interrupted, KitError, NotReadyError, StepError, UnreachableError
from kit.events import Note, Warned
from kit.flows.cluster.down import down
from kit.flows.queue.arrays import wait_for_all
from kit.flows.queue.cordon import cordon, cordon_broken, rows, uncordon
from kit.flows.queue.join import join
from kit.flows.queue.line import change, look
from kit.flows.run.again import repeat
from kit.flows.run.attach import attach, run_logs, wait
from kit.flows.run.folders import remove_runs
from kit.flows.run.listing import listing, stored_run
from kit.flows.run.planning import dry_run
from kit.flows.run.pull import pull
from kit.flows.run.stop import stop, stop_all
from kit.model.doctor import Area, DoctorResult, Finding, Sight
from kit.model.launch import RunPolicy, RunRequest
from kit.model.queue import After, HostRows, Turn
from kit.model.result import RunsResult
from kit.model.run import Member, RunRecord
from kit.model.values import replace
from kit.remote.run.door import Door
from tests.fakes.cluster import Cluster
from tests.fakes.head import until

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 and not shutil.which("sudo"), reason="needs root, or sudo without a password"
)


class Line:
    """Four hosts with two slots each, whose sshd is a port of this machine. A run that is `held_open` ends with it."""

    def __init__(self, cluster: Cluster, port: int) -> None:
        self.cluster = cluster
        cluster.head.values["keeper_TICK_S"] = 0.05
        cluster.reach()
        record = json.loads(cluster.head.record.read_text())
        for number, node in enumerate(record["nodes"], 1):
            node["address"] = f"127.0.0.{number}"
        cluster.head.record.write_text(json.dumps({**record, "ssh_port": port}))
        self.gate = cluster.head.folder / "gate"

    def join(self, script: str = "true", turn: Turn | None = None, **more: Any) -> tuple[str, ...]:
        request = RunRequest(**{"command": ("sh", "-c", script), "env": (("SECRET", "s3cret"),), **more})
        queued = join(self.cluster.context(), request, turn or Turn())
        self.cluster.head.ids += queued.runs
        return queued.runs

    def holder(self) -> str:
        """Return a run that has all slots, until `open`."""
        (run,) = self.join(f"until [ -e {self.gate} ]; do sleep 0.05; done")
        until((self.cluster.head.runs / run / "record.json").exists)
        return run

    def open(self) -> None:
        self.gate.touch()

    def reasons(self) -> dict[str, str]:
        return {run.id: run.reason.kind for run in look(self.cluster.context()).runs}

    def listing(self) -> RunsResult:
        """Return what `kit runs` shows, from the head's disk."""
        self.cluster.fleet["gpu1"].read_runs = partial(self.cluster.head.read_runs, "list")
        return listing(self.cluster.context())

    def ended(self, run: str) -> RunRecord:
        return wait(self.cluster.context(), run)


@pytest.fixture
def line(cluster: Cluster) -> Iterator[Line]:
    with socket.create_server(("", 0)) as server:
        yield Line(cluster, server.getsockname()[1])


def test_a_run_waits_in_line_and_starts_without_kit(line: Line) -> None:
    holder = line.holder()
    (second,) = line.join("echo $SECRET $OMPI_COMM_WORLD_RANK", np=3)
    until(lambda: line.reasons() == {second: "slots"})
    (waiting,) = look(line.cluster.context()).runs
    assert (waiting.np, waiting.counts, waiting.reason.runs) == (3, (2, 1), (holder,))
    assert waiting.hosts == ("gpu1", "gpu2", "gpu3", "gpu4")
    listed = line.listing()
    assert ([run.id for run in listed.waiting], [run.id for run in listed.runs]) == ([second], [holder])
    with pytest.raises(NotReadyError, match=f"run {second} waits in line, and has not started yet"):
        stored_run(line.cluster.context(), second)
    assert listed.now
    assert look(line.cluster.context()).now
    entry = line.cluster.head.runs / ".queue" / f"{second}.json"
    assert "s3cret" in entry.read_text()
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    assert b"s3cret" not in line.cluster.head.read_runs("list")
    # kit drops what it does not know, so this is what the head says.
    assert "s3cret" not in json.dumps(line.cluster.head.door().ask({"op": "line"}))
    line.open()
    assert line.ended(holder).exit_code == 0
    record = line.ended(second)
    assert (record.exit_code, record.np, record.env) == (0, 3, ("SECRET",))
    assert run_logs(line.cluster.context(), second, rank=2, since_s=None, follow=False, tagged=False).id == second
    assert line.cluster.out == ["s3cret 2"]
    assert not entry.exists()
    assert not [file for file in entry.parent.iterdir() if b"s3cret" in file.read_bytes()]
    assert look(line.cluster.context()).runs == ()
    line.cluster.head.nothing_left()


def test_attach_waits_in_line_first(line: Line) -> None:
    holder = line.holder()
    (second,) = line.join("echo mine", np=1)
    until(lambda: line.reasons() == {second: "slots"})
    with pytest.raises(NotReadyError, match=f"run {second} has no log yet, .* for slots of {holder}"):
        run_logs(line.cluster.context(), second, rank=None, since_s=None, follow=False, tagged=False)

    def go_on() -> None:
        until(lambda: any(second in note.text for note in line.cluster.reporter.of(Note)))
        line.open()

    opener = threading.Thread(target=go_on)
    opener.start()
    record = attach(line.cluster.context(), second[:-1], tagged=False, tail=5)
    opener.join()
    assert (record.id, record.exit_code, line.cluster.out) == (second, 0, ["mine"])
    notes = [note.text for note in line.cluster.reporter.of(Note)]
    assert f"run {second} waits in line: for slots of {holder}" in notes
    line.cluster.head.nothing_left()


def test_a_change_that_the_head_cannot_write_is_an_error(line: Line) -> None:
    line.holder()
    one, two = (line.join(np=1)[0] for _ in range(2))
    # No file can be written where a folder has the name of the new one.
    (line.cluster.head.runs / ".queue" / f"{two}.json.new").mkdir()
    with pytest.raises(StepError) as caught:
        change(line.cluster.context(), "hold", [one, two])
    assert caught.value.message.startswith(f"{two} could not be changed: ")
    assert caught.value.message.endswith(f"; changed before that: {one}")
    assert str(caught.value.hint).startswith("check whether its disk is full: kit ssh gpu1 -- df -h")
    until(lambda: line.reasons() == {one: "held", two: "slots"})
    line.open()


def test_the_beginning_of_several_ids_is_named_as_such(line: Line) -> None:
    holder = line.holder()
    runs = line.join("true", Turn(array=(0, 1)), np=1)
    line.listing()
    array = look(line.cluster.context()).runs[0].array
    assert array is not None
    for act in (partial(stop, grace_s=None), wait):
        with pytest.raises(InputError, match="'20' is the beginning of 4 runs: ") as caught:
            act(line.cluster.context(), "20")
        named = sorted([holder, *runs, array.of], reverse=True)
        assert f": {', '.join(named[:3])} …" in caught.value.message
    with pytest.raises(InputError, match="'20' is the beginning of 4 runs: "):
        line.join(np=1, turn=Turn(after=(After(run="20"),)))
    line.open()


def test_the_beginning_of_an_ended_run_and_one_in_line_changes_nothing(line: Line) -> None:
    line.holder()
    (second,) = line.join("true", np=1)
    line.listing()
    context, word = line.cluster.context(), second[:-1]
    ended = line.cluster.head.runs / f"{word}{'0' if second[-1] != '0' else '1'}"
    ended.mkdir()
    (ended / "record.json").write_text(json.dumps({"id": ended.name, "by": "anna@x", "places": []}))
    (ended / "end.json").write_text('{"exit_code": 0}')
    for act in (partial(stop, grace_s=None), wait):
        with pytest.raises(InputError, match=f"'{word}' is the beginning of 2 runs: .*{second}"):
            act(context, word)
    assert [run.id for run in look(context).runs] == [second]
    assert stop(context, second, grace_s=None).id == second
    line.open()


@pytest.mark.parametrize("array", [(), (0, 1)])
def test_ctrl_c_while_a_run_joins_the_line_says_how_to_take_it_out(
    line: Line, monkeypatch: pytest.MonkeyPatch, array: tuple[int, ...]
) -> None:
    line.holder()
    real, broken = Door.ask, [KeyboardInterrupt(), UnreachableError("the connection broke", host="gpu1")]

    def ask(door: Door, request: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = real(door, request)
        if request.get("op") == "queue" and broken:
            raise broken.pop(0)
        return answer

    monkeypatch.setattr(Door, "ask", ask)
    messages = (
        (Interrupted, "interrupted while {} joined the line, so it may be there"),
        (UnreachableError, "the connection broke; {} may be in line"),
    )
    for error, message in messages:
        with pytest.raises(error) as caught:
            line.join(np=1, turn=Turn(array=array))
        waiting = look(line.cluster.context()).runs
        name = checked_member(waiting[0].array).of if array else waiting[0].id
        assert caught.value.message == message.format(f"array {name} of 2 runs" if array else f"run {name}")
        hint = f"look: kit queue; take it out of the line: kit queue rm {name}"
        assert str(caught.value.hint).endswith(hint)
        change(line.cluster.context(), "remove", [name])
    assert look(line.cluster.context()).runs == ()
    line.open()


def test_a_run_in_line_has_nothing_to_pull_or_to_remove(line: Line, tmp_path: Path) -> None:
    line.holder()
    (second,) = line.join()
    line.listing()
    context = line.cluster.context()
    with pytest.raises(NotReadyError, match=f"^run {second} waits in line, and has not started yet") as caught:
        pull(context, [second], here=tmp_path)
    assert caught.value.hint == "see why: kit queue"
    with pytest.raises(NotReadyError, match=f"^run {second} waits in line, and has not started yet") as caught:
        remove_runs(context, [second], older_s=None, dry_run=False, confirm=lambda _: True)
    assert caught.value.hint == f"take it out of the line: kit queue rm {second}"
    with pytest.raises(KitError, match="no run 'nope'"):
        pull(context, ["nope"], here=tmp_path)
    line.open()


def test_a_change_of_somebody_elses_run_names_the_person(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    line.holder()
    (mine,) = line.join(np=1)
    with monkeypatch.context() as patched:
        patched.setattr("kit.flows.run.ready.operator", lambda: "anna@laptop")
        hers = line.join(np=1, turn=Turn(array=(0, 1)))
        (last,) = line.join(np=1, turn=Turn(after=(After(run=mine),)))
    changed = change(line.cluster.context(), "remove", [mine, hers[0]])
    assert changed.owners == {hers[0]: "anna@laptop", last: "anna@laptop"}
    line.open()


def test_stop_names_the_runs_that_wait_for_what_left(line: Line) -> None:
    line.holder()
    (first,) = line.join(np=1)
    (second,) = line.join(np=1, turn=Turn(after=(After(run=first, how="any"),)))
    assert stop(line.cluster.context(), second, grace_s=None).id == second
    assert line.cluster.reporter.warnings == []
    (third,) = line.join(np=1, turn=Turn(after=(After(run=first, how="any"),)))
    stop(line.cluster.context(), first, grace_s=None)
    (warning,) = line.cluster.reporter.warnings
    assert warning.text == f"runs that wait for it never start: {third}"
    line.open()


def test_an_id_that_another_run_has_is_not_used(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """An id has the second in it, and four digits."""
    running, waiting = line.holder(), line.join(np=1)[0]
    joining = iter([[running, "array"], [waiting, "array"], ["29990101-000000-0001", "array"]])
    monkeypatch.setattr("kit.flows.queue.join._new_ids", lambda _count: next(joining))
    assert line.join(np=1) == ("29990101-000000-0001",)
    starting = iter([running, waiting, "29990101-000000-0002"])
    monkeypatch.setattr("kit.flows.run.ready.new_run_id", lambda: next(starting))
    line.open()
    until(lambda: line.reasons() == {})
    assert line.cluster.run("true", np=1, hosts=None).plan.run_id == "29990101-000000-0002"
    # Somebody else takes each new one.
    monkeypatch.setattr("kit.flows.queue.join._new_ids", lambda _count: [running, "array"])
    monkeypatch.setattr("kit.flows.run.ready.new_run_id", lambda: waiting)
    for start in (line.join, partial(line.cluster.run, "true")):
        with pytest.raises(NotReadyError, match="another run has this id") as caught:
            start(np=1)
        assert caught.value.hint == "run the same again"


def test_stop_and_rm_take_runs_out_of_the_line(line: Line) -> None:
    line.holder()
    one, two, three = (line.join(np=1)[0] for _ in range(3))
    (last,) = line.join(np=1, turn=Turn(after=(After(run=two), After(run=one, how="any"))))
    gone = stop(line.cluster.context(), one, grace_s=None)
    assert (gone.id, gone.places, gone.left) == (one, (), None)
    assert gone.stopped.startswith("taken out of the line by ")
    changed = change(line.cluster.context(), "remove", [two, three])
    assert (changed.runs, changed.others, changed.owners) == ((two, three), (last,), {})
    until(lambda: line.reasons() == {last: "never"})
    with pytest.raises(InputError, match=f"no run '{two}' is in line"):
        change(line.cluster.context(), "hold", [last, two])
    assert line.reasons() == {last: "never"}
    line.open()


def test_turns_change_by_move_hold_and_priority(line: Line) -> None:
    line.holder()
    one, two, three = (line.join()[0] for _ in range(3))
    (high,) = line.join(turn=Turn(priority=7))

    def order() -> list[str]:
        return [run.id for run in look(line.cluster.context()).runs]

    assert order() == [high, one, two, three]
    act = partial(change, line.cluster.context())
    act("first", [three])
    assert order() == [three, high, one, two]
    act("last", [three])
    assert order() == [high, one, two, three]
    act("priority", [two], priority=9)
    assert order() == [two, high, one, three]
    act("hold", [two, high])
    assert line.reasons()[two] == line.reasons()[high] == "held"
    line.open()
    for run in (one, three):
        assert line.ended(run).exit_code == 0
    assert order() == [two, high]
    act("release", [high])
    assert line.ended(high).exit_code == 0
    act("remove", [two])
    line.cluster.head.nothing_left()


def test_after_follows_how_a_run_ended(line: Line) -> None:
    holder = line.holder()
    (bad,) = line.join("exit 3", np=1)
    (repair,) = line.join(np=1, turn=Turn(after=(After(run=bad, how="failed"),)))
    (never,) = line.join(np=1, turn=Turn(after=(After(run=bad),)))
    waiting = [bad, repair, never]
    assert (
        [run.id for run in line.listing().waiting] == [run.id for run in look(line.cluster.context()).runs] == waiting
    )
    assert line.listing().waiting[1].after == (After(run=bad, how="failed"),)
    line.open()
    assert line.ended(repair).exit_code == 0
    until(lambda: line.reasons() == {never: "never"})
    with pytest.raises(NotReadyError, match=f"^run {never} waits in line and never starts: {bad}") as caught:
        line.ended(never)
    assert caught.value.hint == f"remove it: kit queue rm {never}"
    assert [line.ended(run).exit_code for run in (holder, bad)] == [0, 3]


def test_without_an_id_the_newest_run_counts_also_in_line(line: Line) -> None:
    context = line.cluster.context()
    (good,) = line.join("true", np=1)
    assert line.ended(good).exit_code == 0
    turn = Turn(after=(After(run=good, how="failed"),), array=(0, 1))
    (first,) = line.join(np=1, turn=replace(turn, array=()))
    until(lambda: line.reasons() == {first: "never"})
    for verb in (wait, partial(attach, tagged=False), partial(attach, tagged=False, tail=1)):
        with pytest.raises(NotReadyError, match=f"run {first} waits in line and never starts"):
            verb(context, None)
    with pytest.raises(NotReadyError, match=f"no run is active; the latest run, {first}, waits in line") as caught:
        stop(context, None, grace_s=None)
    assert caught.value.hint == f"take it out of the line: kit stop {first}"
    # It has no log to show, and the run before it has one.
    assert run_logs(context, None, rank=None, since_s=None, follow=False, tagged=False).id == good
    line.join(np=1, turn=turn)
    with pytest.raises(ArrayMeant, match="is an array of several runs"):
        wait(context, None)
    with pytest.raises(NotReadyError, match="waits in line") as caught:
        stop(context, None, grace_s=None)
    assert "; all runs of its array: kit stop " in str(caught.value.hint)
    assert len(line.reasons()) == 3
    later = line.cluster.run("exit 3", np=1)
    assert (wait(context, None).id, wait(context, None).exit_code) == (later.plan.run_id, 3)
    change(context, "remove", list(line.reasons()))


def test_an_array_is_a_run_for_each_index(line: Line) -> None:
    runs = line.join("echo $KIT_ARRAY_INDEX of $KIT_ARRAY_SIZE; [ $KIT_ARRAY_INDEX != 7 ]", Turn(array=(3, 5, 7)), np=1)
    assert len(runs) == 3
    assert [line.ended(run).exit_code for run in runs] == [0, 0, 1]
    for run in runs:
        attach(line.cluster.context(), run, tagged=False)
    assert line.cluster.out == ["3 of 3", "5 of 3", "7 of 3"]
    options = [record["options"]["variables"]["typed"] for record in line.cluster.records]
    # Those of the array follow from the record.
    assert options[0] == ["SECRET"]
    shown = {run.id: run.array for run in line.listing().runs}
    assert [(checked_member(shown[run]).index, checked_member(shown[run]).size) for run in runs] == [
        (3, 3),
        (5, 3),
        (7, 3),
    ]
    request, _ = repeat(line.cluster.context(), RunRequest(again=runs[1]))
    array = checked_member(shown[runs[1]]).of
    wanted = {"KIT_ARRAY_INDEX": "5", "KIT_ARRAY_SIZE": "3", "KIT_ARRAY_ID": array, "SECRET": "s3cret"}
    assert dict(request.env) == wanted
    # The record of an old run goes. Nobody knows how it ended.
    shutil.rmtree(line.cluster.head.runs / runs[0])
    with pytest.raises(InputError, match=f"--after {array}: the head knows only 2 of the 3 runs") as caught:
        line.join(np=1, turn=Turn(after=(After(run=array),)))
    assert f"--after {array},any" in str(caught.value.hint)


def checked_member(value: Member | None) -> Member:
    assert value is not None
    return value


def test_an_array_is_changed_and_stopped_as_one(line: Line) -> None:
    line.holder()
    runs = line.join("true", Turn(array=(0, 1, 2)), np=1)
    array = look(line.cluster.context()).runs[0].array
    assert array is not None
    assert (array.index, array.size, array.of in runs) == (0, 3, False)
    (later,) = line.join(np=1, turn=Turn(after=(After(run=array.of, how="any"),)))
    changed = change(line.cluster.context(), "hold", [array.of[:-1] if array.of[:-1] not in runs else array.of])
    assert changed.runs == runs
    assert line.reasons() == {**dict.fromkeys(runs, "held"), later: "after"}
    assert len(line.listing().waiting) == 4
    with pytest.raises(ArrayMeant, match=f"{array.of} is an array"):
        stored_run(line.cluster.context(), array.of)
    with pytest.raises(InputError, match=f"{array.of} is an array") as caught:
        attach(line.cluster.context(), array.of, tagged=False)
    assert runs[0] in str(caught.value.hint)
    change(line.cluster.context(), "remove", runs[:1])
    gone = stop_all(line.cluster.context(), array.of, grace_s=None)
    assert [(run.id, run.exit_code, run.stopped.split(" by ")[0]) for run in gone] == [
        (run, None, "taken out of the line") for run in runs[1:]
    ]
    until(lambda: line.reasons() == {later: "never"})
    line.open()


def test_runs_of_an_array_that_have_started_are_stopped_with_it(line: Line) -> None:
    # Eight slots: two runs start, and one waits.
    runs = line.join("sleep 600", Turn(array=(0, 1, 2)), np=4)
    until(lambda: line.reasons() == {runs[2]: "slots"})
    array = checked_member(look(line.cluster.context()).runs[0].array).of
    records = stop_all(line.cluster.context(), array, grace_s=0.1)
    assert [record.id for record in records] == [runs[2], *runs[:2]]
    assert all(record.state == "ended" for record in records)
    assert stopped(records).splitlines() == [
        f"Run {runs[2]} left the line; it had not started.",
        f"Run {runs[0]} was stopped on 2 hosts: gpu[1-2]; processes left: 0.",
        f"Run {runs[1]} was stopped on 3 hosts: gpu[1,3-4]; processes left: 0.",
    ]
    line.cluster.head.nothing_left()


def test_the_ends_of_all_runs_of_an_array_are_awaited(line: Line) -> None:
    holder = line.holder()
    runs = line.join("exit $KIT_ARRAY_INDEX", Turn(array=(0, 2, 3)), np=1)
    context = line.cluster.context()
    array = checked_member(look(context).runs[0].array).of
    with pytest.raises(ArrayMeant) as caught:
        wait(context, array)
    line.listing()
    assert (caught.value.array, caught.value.runs) == (array, runs)

    def go_on() -> None:
        until(lambda: any(f"0 of 3 runs of {array} have ended" in note.text for note in line.cluster.reporter.of(Note)))
        line.open()

    opener = threading.Thread(target=go_on)
    opener.start()
    records = wait_for_all(context, array)
    opener.join()
    assert [(run.id, run.state, run.exit_code) for run in records] == [
        (runs[0], "ended", 0), (runs[1], "ended", 2), (runs[2], "ended", 3)
    ]  # fmt: skip
    assert holder not in [run.id for run in records]
    assert array_ended(array, records).endswith(
        f": 1 of 3 runs succeeded; see why {runs[1]} did not: kit runs show {runs[1]}"
    )
    # The launcher knows the array no more. Its runs' records do.
    with pytest.raises(ArrayMeant):
        wait(context, array[:-1] if not any(run.startswith(array[:-1]) for run in runs) else array)
    over = stop_all(context, array, grace_s=None)
    assert sorted(run.id for run in over) == sorted(runs)
    assert stopped(over).startswith("3 runs had ended before: ")
    shutil.rmtree(line.cluster.head.runs / runs[0])
    assert len(wait_for_all(context, array)) == 2
    (warning,) = [warned.text for warned in line.cluster.reporter.of(Warned)]
    assert warning.startswith(f"the head does not know 1 run of {array} any more")


def test_a_run_that_leaves_the_line_does_not_end_the_wait_for_the_others(line: Line) -> None:
    line.holder()
    line.listing()
    runs = line.join("true", Turn(array=(0, 1)), np=1)
    context = line.cluster.context()
    array = checked_member(look(context).runs[0].array).of

    def go_on() -> None:
        until(lambda: any(f"run {runs[0]} waits in line" in note.text for note in line.cluster.reporter.of(Note)))
        change(context, "remove", runs[:1])
        line.open()

    remover = threading.Thread(target=go_on)
    remover.start()
    records = wait_for_all(context, array)
    remover.join()
    assert [(run.id, run.exit_code) for run in records] == [(runs[1], 0)]
    assert f"the head does not know 1 run of {array} any more" in line.cluster.reporter.of(Warned)[-1].text
    shutil.rmtree(line.cluster.head.runs / runs[1])
    with pytest.raises(NotReadyError, match=f"does not know any run of {array}"):
        wait_for_all(context, array)


def test_each_waiting_run_knows_about_when_it_starts(line: Line) -> None:
    policy = RunPolicy(timeout=600.0)
    (holder,) = line.join(f"until [ -e {line.gate} ]; do sleep 0.05; done", policy=policy)
    until((line.cluster.head.runs / holder / "record.json").exists)
    one, two = (line.join(policy=policy)[0] for _ in range(2))

    def times() -> list[float | None]:
        return [run.reason.about for run in look(line.cluster.context()).runs]

    until(lambda: None not in times())
    first, second = look(line.cluster.context()).runs
    assert (first.id, second.id) == (one, two)
    assert first.reason.about == first.reason.at
    assert second.reason.at is None
    assert checked(second.reason.about) - checked(first.reason.about) == pytest.approx(600.0)
    line.open()


def checked(moment: float | None) -> float:
    assert moment is not None
    return moment


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"terminal": True, "np": 1}, "-it"),
        ({"wait": True}, "--wait"),
        ({"now": True}, "--now"),
        ({"policy": RunPolicy(operator="keep")}, "--keep"),
        ({"oversubscribe": True}, "--oversubscribe"),
        ({"launcher": "elastic"}, "--elastic"),
        ({"launcher": "ps", "servers": 1}, "--launcher ps"),
    ],
)
def test_what_cannot_wait_is_refused_by_name(line: Line, options: dict[str, Any], name: str) -> None:
    with pytest.raises(InputError, match=f"^{name} does not go with --queue"):
        line.join(**options)
    assert not (line.cluster.head.folder / "dialled").exists()


def test_what_cannot_wait_is_refused_in_a_run_that_is_repeated(line: Line) -> None:
    """The options of the earlier run count, although the command line has none of them."""
    crowd = line.cluster.run("true", np=9, oversubscribe=True).plan.run_id
    assert [run.id for run in line.listing().runs] == [crowd]
    with pytest.raises(InputError, match=r"^--oversubscribe does not go with --queue") as caught:
        line.join(again=crowd)
    assert caught.value.hint == f"run {crowd} has it; remove --queue"
    context, again = line.cluster.context(), RunRequest(again=crowd, dry_run=True)
    with pytest.raises(InputError, match=r"^--oversubscribe does not go with --queue") as caught:
        dry_run(context, again, waits=True)
    assert caught.value.hint == f"run {crowd} has it; remove --queue"
    assert dry_run(context, again).placement.np == 9
    assert look(line.cluster.context()).runs == ()


def test_gpus_for_ranks_need_a_slot_for_each_gpu(line: Line) -> None:
    record = json.loads(line.cluster.head.record.read_text())
    for node in record["nodes"]:
        node["gpus"] = 4
    line.cluster.head.record.write_text(json.dumps(record))
    with pytest.raises(InputError, match="gpu1 has 2 slots and 4 GPUs"):
        line.join(gpus_per_rank=2)


def test_a_head_without_a_queue_is_named(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Door.open

    def old(self: Door) -> None:
        opened(self)
        self.waiting = self.cordons = None

    monkeypatch.setattr(Door, "open", old)
    for verb in (line.join, partial(look, line.cluster.context())):
        with pytest.raises(NotReadyError, match="has no queue") as caught:
            verb()
        assert caught.value.hint == "run: kit deploy"


def partly_held(line: Line, **policy: Any) -> tuple[str, str]:
    """Return a run that has gpu1 until `open`, and the first in line, for which gpu1 and gpu2 are reserved."""
    script = f"until [ -e {line.gate} ]; do sleep 0.05; done"
    (holder,) = line.join(script, hosts="gpu1", policy=RunPolicy(**policy))
    until((line.cluster.head.runs / holder / "record.json").exists)
    (first,) = line.join(hosts="gpu[1-2]")
    until(lambda: line.reasons() == {first: "slots"})
    return holder, first


def test_a_run_past_the_line_takes_what_nobody_needs_first(line: Line) -> None:
    _, first = partly_held(line)
    for request in (
        {"np": 1, "hosts": "gpu2"},
        {"np": 6, "hosts": None},
        {"np": 3, "hosts": "gpu2", "oversubscribe": True},
    ):
        with pytest.raises(NotReadyError, match=f"not reserved for run {first}, the first in line") as caught:
            line.cluster.run("true", **request)
        assert "kit run --queue" in str(caught.value.hint)
        assert "--timeout" not in str(caught.value.hint)
    done = line.cluster.run("true", hosts=None, np=4)
    assert done.exit_code == 0
    places = line.cluster.record(done.plan.run_id)["places"]
    assert [place["node"] for place in places] == ["gpu3", "gpu4"]
    assert not line.cluster.reporter.warnings
    # This one says so before it starts.
    assert line.cluster.run("true", np=1, hosts="gpu2", now=True).exit_code == 0
    (warned,) = line.cluster.reporter.warnings
    assert warned.text == f"this run takes slots that are reserved for run {first}, the first in line"
    line.open()
    assert line.ended(first).exit_code == 0


def test_a_run_past_the_line_takes_reserved_slots_if_it_ends_in_time(line: Line) -> None:
    _, first = partly_held(line, timeout=3000.0)
    with pytest.raises(NotReadyError) as caught:
        line.cluster.run("true", np=1, hosts="gpu2", policy=RunPolicy(timeout=3600.0))
    assert "a time limit of at most 49 minutes with --timeout" in str(caught.value.hint)
    assert line.cluster.run("true", np=1, hosts="gpu2", policy=RunPolicy(timeout=600.0)).exit_code == 0
    assert not line.cluster.reporter.warnings
    line.open()
    assert line.ended(first).exit_code == 0


def test_a_run_past_the_line_waits_behind_the_first(line: Line) -> None:
    _, first = partly_held(line)

    def go_on() -> None:
        until(lambda: line.cluster.reporter.of(Note))
        line.open()

    opener = threading.Thread(target=go_on)
    opener.start()
    assert line.cluster.run("true", np=1, hosts="gpu2", wait=True).exit_code == 0
    opener.join()
    notes = [note.text for note in line.cluster.reporter.of(Note)]
    assert notes[0] == f"waiting behind run {first}, the first in line"
    assert line.ended(first).exit_code == 0


def test_slots_that_are_reserved_while_kit_plans_are_not_taken(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    # What kit does last before it asks the head to start the run.
    monkeypatch.setattr(
        "kit.flows.run.run.on_free_gpus", lambda _, plan, *__, **___: seen.extend(partly_held(line)) or plan
    )
    with pytest.raises(NotReadyError, match="not reserved for run") as caught:
        line.cluster.run("true", np=1, hosts="gpu2")
    holder, first = seen
    assert first in caught.value.message
    assert [record["id"] for record in line.cluster.records] == [holder]
    line.open()
    assert line.ended(first).exit_code == 0


def test_an_entry_that_is_odd_hides_no_other(line: Line) -> None:
    line.holder()
    first, bad, last = (line.join(np=1)[0] for _ in range(3))
    file: Path = line.cluster.head.runs / ".queue" / f"{bad}.json"
    entry = json.loads(file.read_text())
    file.write_text(json.dumps({**entry, "np": "many"}))
    assert [run.id for run in look(line.cluster.context()).runs] == [first, last]
    assert [run.id for run in line.listing().waiting] == [first, last]
    texts = [warned.text for warned in line.cluster.reporter.warnings]
    assert len([text for text in texts if text.startswith("kit cannot read a run in line: ")]) == 2
    line.open()


def test_down_does_not_drop_the_line(line: Line) -> None:
    line.holder()
    (second,) = line.join(np=1)
    line.listing()
    with pytest.raises(NotReadyError, match=f"the run {second} waits in line, and kit down would drop it"):
        down(line.cluster.context())
    down(line.cluster.context(), force=True)
    line.open()


def names_of(rows: HostRows) -> dict[str, str]:
    return {row.name: row.cordon.why for row in rows.hosts if row.cordon}


def test_a_cordoned_host_gets_no_new_run(line: Line) -> None:
    context = line.cluster.context()
    assert names_of(rows(context)) == {}
    assert names_of(cordon(context, "gpu[1-2]", "moved")) == {"gpu1": "moved", "gpu2": "moved"}
    with pytest.raises(NotReadyError, match="gpu1 is cordoned: moved, by ") as caught:
        line.cluster.run("true", np=1, hosts="gpu1,gpu3")
    assert "kit hosts uncordon gpu1" in str(caught.value.hint)
    with pytest.raises(NotReadyError, match="gpu2 is cordoned"):
        line.join(np=1, hosts="gpu2")
    assert line.cluster.run("true", hosts=None, np=4).exit_code == 0
    (record,) = line.cluster.records
    assert [place["node"] for place in record["places"]] == ["gpu3", "gpu4"]
    assert any(
        warned.text.startswith("gpu[1-2] are cordoned: moved") and warned.text.endswith("; the run does not use them")
        for warned in line.cluster.reporter.warnings
    )
    with pytest.raises(InputError, match="--np 6 is more than the 4 slots"):
        line.cluster.run("true", hosts=None, np=6)
    assert names_of(uncordon(context, "gpu1")) == {"gpu2": "moved"}
    listed = rows(context)
    assert names_of(listed) == {"gpu2": "moved"}
    # The head's clock, which `at` is from.
    (out,) = [row.cordon for row in listed.hosts if row.cordon]
    assert listed.now is not None
    assert listed.now >= out.at > 0
    assert [cordon.host for cordon in look(context).cordons] == ["gpu2"]


def test_a_cordoned_host_needs_no_data(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    cordon(line.cluster.context(), "gpu4", "moved")
    needing: list[Sequence[str]] = []
    monkeypatch.setattr("kit.flows.data.missing.stage_missing", lambda _, __, hosts: bool(needing.append(hosts)))
    line.cluster.run("true", hosts=None, np=1, data=("images",))
    assert needing == [["gpu1", "gpu2", "gpu3"]]


def test_a_host_that_is_cordoned_while_kit_plans_gets_no_run(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    context = line.cluster.context()
    # What kit does last before it asks the head to start the run.
    monkeypatch.setattr(
        "kit.flows.run.run.on_free_gpus", lambda _, plan, *__, **___: cordon(context, "gpu[1-2]", "moved") and plan
    )
    with pytest.raises(NotReadyError, match=r"gpu1 is cordoned: moved, by .*; so are gpu2") as caught:
        line.cluster.run("true", hosts=None)
    assert "kit hosts uncordon gpu1" in str(caught.value.hint)
    assert line.cluster.records == []
    line.cluster.head.nothing_left()


def test_a_run_in_line_waits_for_hosts_that_are_not_cordoned(line: Line) -> None:
    context = line.cluster.context()
    holder = line.holder()
    (second,) = line.join()
    until(lambda: line.reasons() == {second: "slots"})
    cordon(context, "gpu4", "hot")
    line.open()
    assert line.ended(holder).exit_code == 0
    until(lambda: line.reasons() == {second: "hosts"})
    uncordon(context, "gpu4")
    assert line.ended(second).exit_code == 0


def test_a_host_that_is_cordoned_when_a_run_joins_is_used_later(line: Line) -> None:
    context = line.cluster.context()
    cordon(context, "gpu4", "hot")
    # Without --np, a run has all slots that it can have now.
    (holder,) = line.join(f"until [ -e {line.gate} ]; do sleep 0.05; done")
    until((line.cluster.head.runs / holder / "record.json").exists)
    assert [place["node"] for place in line.cluster.record(holder)["places"]] == ["gpu1", "gpu2", "gpu3"]
    (note,) = line.cluster.reporter.of(Note)
    assert note.text.startswith("gpu4 is cordoned: hot, by ")
    assert note.text.endswith("; the run may use it after: kit hosts uncordon gpu4")
    assert not line.cluster.reporter.warnings
    (small,), (full,) = line.join(np=1), line.join(np=8)
    until(lambda: line.reasons() == {small: "slots", full: "hosts"})
    assert [(run.counts, run.hosts[3]) for run in look(context).runs] == [((1,), "gpu4"), ((2, 2, 2, 2), "gpu4")]
    uncordon(context, "gpu4")
    assert line.ended(small).exit_code == 0
    assert [place["node"] for place in line.cluster.record(small)["places"]] == ["gpu4"]
    line.open()
    assert line.ended(full).np == 8
    with pytest.raises(InputError, match="--np 9 is more than the 8 slots"):
        line.join(np=9)


class CodeOfSome:
    """Code that only some hosts can get."""

    digest, record = "0" * 64, {"digest": "0" * 64}

    def __init__(self, *lost: str) -> None:
        self.lost = lost

    def has_folder(self, _path: str) -> bool:
        return True

    def bring(self, _context: object, _door: object, _cluster: object, hosts: Sequence[str]) -> None:
        for host in hosts:
            if host in self.lost:
                raise StepError("no space left on device", hint="make room", host=host)

    def retake(self, _error: KitError) -> bool:
        return False


def test_a_cordoned_host_that_is_broken_keeps_no_run_out_of_the_line(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = line.cluster.context()
    line.holder()
    record = json.loads(line.cluster.head.record.read_text())
    for node in record["nodes"]:
        node["gpus"] = 2 if node["name"] != "gpu3" else 1
    line.cluster.head.record.write_text(json.dumps(record))
    cordon(context, "gpu[2-4]", "broken")
    monkeypatch.setattr("kit.flows.run.ready._code", lambda *_: CodeOfSome("gpu2"))
    (run,) = line.join(np=2, gpus_per_rank=1)
    assert [one.hosts for one in look(context).runs] == [("gpu1", "gpu4")]
    assert sorted((warned.text, warned.hint) for warned in line.cluster.reporter.warnings)[0] == (
        "the run does not use gpu2, also without its cordon: gpu2: no space left on device",
        "make room",
    )
    assert "the run does not use gpu3, also without its cordon: gpu3 has 2 slots and 1 GPU" in "".join(
        warned.text for warned in line.cluster.reporter.warnings
    )
    # It would fit with gpu2, to which the code does not come.
    with pytest.raises(InputError, match="gpu1 has 2 GPUs, and 3 ranks there"):
        line.join(np=5, gpus_per_rank=1)
    cordon(context, "gpu[1-4]", "broken")
    monkeypatch.setattr("kit.flows.run.ready._code", lambda *_: CodeOfSome("gpu1", "gpu2", "gpu4"))
    with pytest.raises(NotReadyError, match="all hosts are cordoned, and the run can use none of them"):
        line.join(np=1, gpus_per_rank=1)
    change(context, "remove", [run])
    line.open()


def test_a_cordoned_host_that_the_hosts_file_lost_can_be_uncordoned(line: Line) -> None:
    context = line.cluster.context()
    cordon(context, "gpu4", "gone")
    smaller = replace(context, inventory=replace(context.inventory, hosts=context.inventory.hosts[:3]))
    assert [(row.name, row.address) for row in rows(smaller).hosts][3] == ("gpu4", "")
    assert names_of(uncordon(smaller, "gpu4")) == {}
    with pytest.raises(InputError, match="gpu4"):
        uncordon(smaller, "gpu4")
    with pytest.raises(InputError, match="not one line"):
        cordon(context, "gpu1", "two\nlines")


def test_the_doctor_cordons_hosts_that_break_runs(line: Line) -> None:
    context = line.cluster.context()

    def result(*findings: tuple[str, Area, tuple[str, ...]]) -> DoctorResult:
        made = tuple(
            Finding(
                id=name, title="t", severity="breaks", area=area, leads_to="l", fix="f",
                seen=(Sight(hosts=hosts, seen="s"), Sight(hosts=("gpu1",), seen="s", severity="slows")),
            )
            for name, area, hosts in findings
        )  # fmt: skip
        return DoctorResult(
            cluster="lab",
            hosts=context.inventory.names,
            deployed=True,
            pairing="none",
            pairs=0,
            checks=1,
            findings=made,
        )

    pair: tuple[str, Area, tuple[str, ...]] = ("port", "pair", ("gpu1", "gpu2"))
    assert names_of(cordon_broken(context, result(pair))) == {}
    found = result(("gpu-xid", "gpu", ("gpu3", "gpu2")), ("disk", "host", ("gpu3",)), pair)
    why = {"gpu2": "kit doctor: gpu-xid", "gpu3": "kit doctor: gpu-xid, disk"}
    assert names_of(cordon_broken(context, found)) == why
    assert not line.cluster.reporter.warnings
    # What is already cordoned keeps its reason, and one host at least is left.
    assert names_of(cordon_broken(context, result(("engine", "host", ("gpu1", "gpu3", "gpu4"))))) == why
    assert "kit cordons none" in line.cluster.reporter.warnings[0].text


def test_idle_gpus_end_a_run_only_where_there_are_gpus(line: Line) -> None:
    policy = RunPolicy(idle_gpu=1800.0)
    for verb in (line.join, partial(line.cluster.run, hosts=None)):
        with pytest.raises(InputError, match="--idle-gpu ends a run whose GPUs are idle, and gpu1 has no GPU"):
            verb("true", np=1, policy=policy)
    record = json.loads(line.cluster.head.record.read_text())
    for node in record["nodes"]:
        node["gpus"] = 2
    line.cluster.head.record.write_text(json.dumps(record))
    (run,) = line.join("true", np=1, policy=policy)
    assert line.ended(run).exit_code == 0
    (kept,) = [record["options"] for record in line.cluster.records if record["id"] == run]
    assert kept["idle_gpu"] == 1800.0
