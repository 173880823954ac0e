"""The line of waiting runs for real: kit-launch, the keeper that starts runs, hosts that answer, and a fake mpirun."""

from __future__ import annotations

import json
import os
import signal
import socket
from typing import Any

import pytest

from tests.fakes import launcher
from tests.fakes.head import MakeHead, place, until
from tests.fakes.line import Line

queue_line: Any = launcher.load("kitqueue.line")


def test_runs_start_in_turn_and_go_ahead_only_where_they_delay_nobody(line: Line) -> None:
    first, second, third, fourth = line.queue(*(line.entry(*counts) for counts in ((2, 2), (2, 2), (2,), (1,))))
    assert line.hosts_of(first) == {"gpu1": [0, 1], "gpu2": [0, 1]}
    # The second run gets the hosts of the first, so that the third takes nothing from it.
    assert line.hosts_of(third) == {"gpu3": [0, 1]}
    assert line.waits(second, "slots") == {"kind": "slots", "ids": [first], "at": None}
    assert line.waits(fourth, "turn")["ids"] == [second]
    assert line.waiting == [second, fourth]
    line.let_go(first)
    assert line.hosts_of(second) == {"gpu1": [0, 1], "gpu2": [0, 1]}
    line.let_go(third)
    assert line.hosts_of(fourth) == {"gpu3": [0]}
    assert line.waiting == []
    until(lambda: not line.keeper())
    for run in (second, fourth):
        line.let_go(run)
    line.head.nothing_left()


def test_a_short_run_goes_ahead_where_it_ends_in_time(line: Line) -> None:
    holder, large = line.queue(line.entry(2, 2, policy={"timeout": 3000.0}), line.entry(2, 2, 2))
    reason = line.waits(large, "slots")
    assert reason["ids"] == [holder]
    assert reason["at"] is not None
    short, long = line.queue(line.entry(2, policy={"timeout": 600.0}), line.entry(2, policy={"timeout": 6000.0}))
    assert line.hosts_of(short) == {"gpu3": [0, 1]}
    assert line.waits(long, "turn")["ids"] == [large]


def test_priority_and_moves_change_the_turns(line: Line) -> None:
    (everything,) = line.queue(line.entry(2, 2, 2))
    line.hosts_of(everything)
    one, two, urgent = line.queue(line.entry(2, 2, 2), line.entry(2, 2, 2), line.entry(2, 2, 2, priority=5))
    assert line.waits(urgent, "slots")["ids"] == [everything]
    assert line.waits(one, "turn")["ids"] == [urgent]
    assert line.ask("change", id=two, how="first")["changed"]["priority"] == 5
    assert line.waits(two, "slots")
    assert line.ask("change", id=two, how="priority", priority=-1)["changed"]["priority"] == -1
    assert line.waits(urgent, "slots")
    line.ask("change", id=urgent, how="last")
    assert line.waits(one, "slots")
    line.let_go(everything)
    line.hosts_of(one)


def test_a_held_run_lets_others_go(line: Line) -> None:
    (held,) = line.queue(line.entry(1, held=True))
    line.waits(held, "held")
    # Nobody can start by itself, so nobody looks.
    until(lambda: not line.keeper())
    (other,) = line.queue(line.entry(2, 2, 2))
    line.hosts_of(other)
    line.ask("change", id=held, how="release")
    line.waits(held, "slots")
    line.let_go(other)
    line.let_go(held)
    until(lambda: not line.keeper())


@pytest.mark.parametrize(
    ("how", "code", "starts"),
    [("ok", 0, True), ("ok", 3, False), ("failed", 3, True), ("failed", 0, False), ("any", 3, True)],
)
def test_a_run_after_another(line: Line, how: str, code: int, *, starts: bool) -> None:
    before = line.entry(1)
    after = line.entry(1, after=[[before["id"], how]])
    first, second = line.queue(before, after)
    assert line.waits(second, "after")["ids"] == [first]
    line.let_go(first, code)
    if starts:
        line.let_go(second)
    else:
        assert line.waits(second, "never")["ids"] == [first]
        until(lambda: not line.keeper())


def past(line: Line, *places: Any, **more: Any) -> tuple[int, dict[str, Any]]:
    """Ask for a run that does not wait in line. Return the exit code, and the answer."""
    door, answer = line.head.run("mpirun", "-np", "1", "kit-rank", "true", places=[*places], detach=True, **more)
    return door.end()[0], answer


def test_a_run_past_the_line_gets_no_slots_that_are_reserved_for_the_first(line: Line) -> None:
    (holder,) = line.queue(line.entry(2, hosts=("gpu1",), policy={"timeout": 3000.0}))
    (first,) = line.queue(line.entry(2, 2, hosts=("gpu1", "gpu2")))
    line.waits(first, "slots")
    reserved = line.head.door().hello["reserved"]
    left = reserved["left"]
    assert reserved == {"id": first, "slots": {"gpu1": [0, 1], "gpu2": [0, 1]}, "left": left}
    assert 2900 < left <= 3000
    code, answer = past(line, place("gpu2", 1))
    assert (code, answer["reserved"]["id"]) == (3, first)
    # Also as a run that shares slots, because it holds them; and where its limit ends too late.
    assert past(line, place("gpu2", 1), policy={"share": True})[0] == 3
    assert past(line, place("gpu3", 1), place("gpu2", 1, 1), policy={"timeout": 6000.0})[0] == 3
    # The slots that another run holds are the nearer reason.
    assert "held" in past(line, place("gpu1", 1))[1]
    for places, more in (
        ([place("gpu3", 1)], {}),
        ([place("gpu2", 1)], {"policy": {"timeout": 600.0}}),
        ([place("gpu2", 1)], {"now": True}),
    ):
        code, answer = past(line, *places, **more)
        assert (code, [*answer]) == (0, ["started"]), more
        until((line.head.runs / line.head.ids[-1] / "end.json").exists)
    line.let_go(holder)
    line.let_go(first)


def test_a_run_past_the_line_may_wait_until_nobody_needs_its_slots_first(line: Line) -> None:
    (holder,) = line.queue(line.entry(2, hosts=("gpu1",)))
    (first,) = line.queue(line.entry(2, 2, hosts=("gpu1", "gpu2")))
    line.waits(first, "slots")
    door, answer = line.head.run("true", places=[place("gpu2", 1)], wait=True, detach=True)
    assert (answer["waiting"], answer["reserved"]["id"]) == ([], first)
    line.let_go(holder)
    assert [record["id"] for record in door.answer()["waiting"]] == [first]
    line.let_go(first)
    assert "started" in door.answer()


def test_nothing_is_reserved_for_a_run_that_cannot_start(line: Line) -> None:
    (holder,) = line.queue(line.entry(2, hosts=("gpu1",)))
    (first,) = line.queue(line.entry(2, 2, hosts=("gpu1", "gpu2")))
    line.waits(first, "slots")
    assert past(line, place("gpu2", 1))[0] == 3
    # No keeper looks at the line meanwhile.
    os.kill(line.keeper(), signal.SIGKILL)
    until(lambda: not line.keeper())
    file = line.head.runs / ".queue" / f"{first}.json"
    entry = json.loads(file.read_text())
    queue_line.write({**entry, "held": True}, str(line.head.runs))
    assert line.head.door().hello["reserved"] is None
    assert past(line, place("gpu2", 1))[0] == 0
    file.unlink()
    assert line.head.door().hello["reserved"] is None
    line.let_go(holder)


def test_who_waits_for_a_run_that_is_removed_never_starts(line: Line) -> None:
    all_of_it, one = line.entry(2, 2, 2), line.entry(1)
    after = line.entry(1, after=[[one["id"], "any"]])
    line.queue(all_of_it, one, after)
    answer = line.ask("change", id=one["id"], how="remove")
    assert answer["others"] == [after["id"]]
    assert line.waits(after["id"], "never")["ids"] == [one["id"]]
    assert line.ask("change", id=one["id"], how="hold") == {"missing": one["id"]}


def test_nothing_new_on_cordoned_hosts(line: Line) -> None:
    cordons = line.ask("cordon", hosts=["gpu1", "gpu2"], why="its fan", by="me@here")["cordons"]
    assert {name: note["why"] for name, note in cordons.items()} == {"gpu1": "its fan", "gpu2": "its fan"}
    assert line.head.door().hello["cordons"] == cordons
    one, two = line.queue(line.entry(1), line.entry(2, 2))
    assert line.hosts_of(one) == {"gpu3": [0]}
    line.waits(two, "hosts")
    assert [*line.ask("uncordon", hosts=["gpu2"])["cordons"]] == ["gpu1"]
    line.waits(two, "slots")
    line.ask("uncordon", hosts=["gpu1"])
    assert line.hosts_of(two) == {"gpu1": [0, 1], "gpu2": [0, 1]}


def test_a_start_looks_at_the_cordons_again(line: Line) -> None:
    planned, waits, other = line.head.door(), line.head.door(), line.head.door()
    (holder,) = line.queue(line.entry(2, hosts=("gpu1",)))
    line.hosts_of(holder)
    request = line.head.request("true", places=[place("gpu1", 1)])
    assert "waiting" in waits.ask({**request, "wait": True})
    cordons = line.ask("cordon", hosts=["gpu1"], why="its fan", by="me@here")["cordons"]
    assert planned.hello["cordons"] == {}
    assert planned.ask({**request, "id": line.head.new_id()}) == {"cordoned": cordons}
    # A run that waits for slots there gets none.
    assert waits.answer() == {"cordoned": cordons}
    servers = [{"role": "server", "node": "gpu1", "address": "10.0.0.1"}]
    beside = line.head.request("true", places=[place("gpu2", 1)], helpers=servers)
    assert other.ask(beside) == {"cordoned": cordons}
    assert [door.end() for door in (planned, waits, other)] == [(3, b"", b"")] * 3
    assert [run.name for run in line.head.runs.iterdir() if (run / "record.json").exists()] == [holder]
    line.let_go(holder)


def test_a_turn_looks_at_the_cordons_again(line: Line) -> None:
    with line.no_start() as held:
        (run,) = line.queue(line.entry(2, 2))
        # The keeper has chosen hosts, and is about to start the run there.
        until(held)
        queue_line.write_cordons({"gpu1": {"why": "its fan", "by": "me", "at": 1.0}}, str(line.head.runs))
    assert line.hosts_of(run) == {"gpu2": [0, 1], "gpu3": [0, 1]}
    line.let_go(run)


def test_a_host_that_does_not_answer_is_left_out(make_head: MakeHead) -> None:
    with socket.create_server(("127.0.0.2", 0)) as server:
        line = Line(make_head(keeper_TICK_S=0.05, probe_ANSWER_S=0.2), server.getsockname()[1])
        (one, two) = line.queue(line.entry(1), line.entry(1, hosts=("gpu1",)))
        assert line.hosts_of(one) == {"gpu2": [0]}
        line.waits(two, "hosts")


def test_the_line_outlives_its_keeper_and_its_operator(line: Line) -> None:
    first, second = line.queue(line.entry(2, 2, 2), line.entry(1))
    line.waits(second, "slots")
    keeper = line.keeper()
    os.kill(keeper, signal.SIGKILL)
    until(lambda: line.keeper() != keeper)
    line.ask("line")
    until(line.keeper)
    line.let_go(first)
    line.let_go(second)


def test_only_root_reads_what_waits_and_nobody_sees_values(line: Line) -> None:
    (run,) = line.queue(line.entry(1, held=True))
    folder = line.head.runs / ".queue"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / f"{run}.json").stat().st_mode & 0o777 == 0o600
    (shown,) = line.ask("line")["line"]
    assert "request" not in shown


def test_attach_and_stop_of_a_run_in_line(line: Line) -> None:
    first, second = line.queue(line.entry(2, 2, 2), line.entry(1, script="echo mine"))
    line.waits(second, "slots")
    glance = line.head.door()
    answer = glance.ask({"op": "attach", "id": second, "follow": False})
    assert (answer["queued"]["id"], answer["reason"]["ids"]) == (second, [first])
    assert glance.end()[0] == 0
    attached = line.head.door()
    assert attached.ask({"op": "attach", "id": second})["queued"]["id"] == second
    line.let_go(first)
    while "attached" not in (answer := attached.answer()):
        assert "queued" in answer
    assert attached.story().out == ["mine"]
    holder, third = line.queue(line.entry(2, 2, 2), line.entry(1))
    line.hosts_of(holder)
    stop = line.head.door()
    assert stop.ask({"op": "stop", "id": third})["removed"]["id"] == third
    assert line.waiting == []
    line.let_go(holder)


WRONG: list[dict[str, Any]] = [
    {}, {"entries": 3}, {"entries": [{}]}, {"entries": [{"id": "../x"}]},
    {"entries": [{"id": "a", "request": {"id": "b"}}]},
]  # fmt: skip


def test_rubbish_does_not_get_into_the_line(line: Line) -> None:
    good = line.entry(1)
    wrong = [*WRONG, {"entries": [good, {**good, "need": 3}]}, {"entries": [{**good, "request": {"id": good["id"]}}]}]
    for fields in wrong:
        door = line.head.door()
        door.send({"op": "queue", **fields})
        code, out, err = door.end()
        assert (code, out) == (2, b""), fields
        assert err.startswith(b"kit-launch: this is not a request"), fields
    assert line.waiting == []
