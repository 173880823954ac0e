"""Tests the request to the head, the records that it writes, and how kit reads them."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from kit.errors import AnswerError
from kit.flows.run.listing import parse as parse_listing
from kit.model.launch import LaunchPlan, Placement, RunPolicy
from kit.model.run import Failure, Place, RunRecord
from kit.model.spec import ClusterSpec
from kit.plan.run.mpi import launch_plan
from kit.plan.run.records import parse, record_of, start_request
from tests.fakes.facts import node
from tests.fakes.head import MPIRUN, Head, until


def plan(run: str, **more: Any) -> LaunchPlan:
    values: dict[str, Any] = {
        "run_id": run,
        "spec": ClusterSpec(),
        "placement": Placement(nodes=(node(1),), counts=(2,)),
        "network": None,
        "command": ("python3", "a b.py"),
        "env": {"TOKEN": "s3cret", "A": "1"},
        "places": (Place(node="gpu1", address="10.0.0.1", ranks=2, slots=(0, 1)),),
        "policy": RunPolicy(operator="keep", retries=1, backoff=0.01, keep=5),
        **more,
    }
    return launch_plan(**values)


def test_what_the_head_is_asked_to_start() -> None:
    request = start_request(plan("r1"), cluster="lab", image="kit:1", head="gpu1", by="me@here", wait=True)
    assert json.loads(json.dumps(request)) == json.loads(json.dumps(request, sort_keys=True))
    assert (request["op"], request["id"], request["wait"], request["detach"], request["head"]) == (
        "start",
        "r1",
        True,
        False,
        "gpu1",
    )
    assert request["env"]["TOKEN"] == "s3cret"
    # The record has the names of variables, without values.
    assert request["info"]["env"] == ["A", "TOKEN"]
    assert "s3cret" not in json.dumps(request["info"]) + json.dumps(request["argv"])
    assert request["policy"]["keep"] == 5
    detached = start_request(
        plan("r1", policy=RunPolicy(operator=None)), cluster="", image="", head="", by="", wait=False
    )
    assert detached["detach"]


def started(head: Head, argv: tuple[str, ...], **more: Any) -> tuple[LaunchPlan, Any]:
    """Run a real request of kit on the real head, with a fake mpirun."""
    launch = plan(head.new_id(), **more)
    request = start_request(launch, cluster="lab", image="kit:1", head="gpu1", by="me@here", wait=False)
    door = head.door()
    assert door.ask({**request, "argv": list(argv)}) == {"started": launch.run_id}
    return launch, door


def listing(head: Head) -> list[RunRecord]:
    """Return the runs as `kit runs` reads them."""
    return sorted(parse_listing(head.read_runs("list").decode()), key=lambda run: run.id)


def test_what_the_head_writes_comes_back_as_it_was(head: Head) -> None:
    launch, door = started(head, (*MPIRUN, "-np", "2", "sh", "-c", "echo why >&2; kill -9 $$"))
    story = door.story()
    (run,) = listing(head)
    assert run == record_of(json.loads((head.runs / launch.run_id / "record.json").read_text()), story.ending)
    assert (run.id, run.cluster, run.image, run.by) == (launch.run_id, "lab", "kit:1", "me@here")
    assert (run.command, run.places, run.env, run.np) == (launch.command, launch.places, ("A", "TOKEN"), 2)
    assert (run.state, run.exit_code, run.attempt, run.stopped) == ("ended", 137, 2, "")
    assert run.failure is not None
    assert (run.failure.kind, run.failure.signal, run.failure.exit_code) == ("rank", "SIGKILL", None)
    assert run.failure.lines == ("why",)
    assert run.left == {"gpu1": 0}
    assert run.ended is not None
    assert run.ended >= run.started > 1e9


def test_the_listing_asks_the_kernel_who_lives(head: Head) -> None:
    head.done("sh", "-c", "exit 3")
    door, _ = head.run("sh", "-c", "echo up; exec sleep 600")
    door.read_until("up")
    assert [(run.id, run.state, run.exit_code) for run in listing(head)] == [
        (head.ids[0], "ended", 3), (head.ids[1], "running", None),
    ]  # fmt: skip
    os.kill(head.supervisor(), 9)
    until(lambda: listing(head)[1].state == "lost")
    # Listing changes nothing.
    before = sorted(path.name for path in (head.runs / head.ids[1]).iterdir())
    listing(head)
    assert sorted(path.name for path in (head.runs / head.ids[1]).iterdir()) == before


def test_a_head_without_runs(head: Head) -> None:
    assert listing(head) == []
    head.runs.mkdir()
    (head.runs / "half").mkdir()
    assert listing(head) == []


def test_a_command_may_hold_anything(head: Head) -> None:
    command = ("echo", "@@ yes\n@@ no", "ü\t\"'", "{}")
    _, door = started(head, ("true",), command=command)
    door.story()
    assert [run.command for run in listing(head)] == [command]


@pytest.mark.parametrize(
    ("ending", "live", "state"),
    [
        (None, True, "running"), (None, False, "lost"),
        ({"exit_code": 0}, True, "ended"), ({"exit_code": 0}, False, "ended"),
    ],
)  # fmt: skip
def test_the_state(ending: dict[str, Any] | None, live: bool, state: str) -> None:
    assert record_of({"id": "r"}, ending, live=live).state == state


def test_the_request_says_what_a_run_may_take_and_keeps_its_options() -> None:
    values: dict[str, Any] = {"cluster": "lab", "image": "i", "head": "gpu1", "by": "me@here", "wait": False}
    plain = start_request(plan("r1"), **values)
    assert {"now", "exclusive", "elastic", "options"}.isdisjoint({*plain["info"], *(plain.keys() - {"elastic"})})
    options = {"cpus": 4, "memory": 2 << 30, "data": ["sets"]}
    full = start_request(plan("r1"), **values, now=True, exclusive=True, options=options)
    assert full["now"] is True
    run = record_of({**full["info"], "id": "r1"})
    assert (run.exclusive, run.cpus, run.memory, run.data) == (True, 4, 2 << 30, ("sets",))
    assert record_of({**plain["info"], "id": "r1"}).exclusive is False


def test_the_most_ranks_of_a_run_are_no_fewer_than_its_places_have() -> None:
    places = [{"node": "gpu1", "address": "10.0.0.1", "ranks": 3}]
    assert [record_of({"id": "r", "places": places, "most_np": most}).most_np for most in (0, 2, 5)] == [3, 3, 5]


COUNT, MOMENT = 2**31, 2.0**36
# A rank can write to the files of its run.
LARGE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"most_np": COUNT}, {}),
    ({"places": [{"node": "gpu1", "address": "", "ranks": COUNT}]}, {}),
    ({"places": [{"node": "gpu1", "address": "", "ranks": 1, "slots": [0, COUNT]}]}, {}),
    ({"places": [{"node": "gpu1", "address": "", "ranks": 1, "of": COUNT}]}, {}),
    ({"code": {"digest": "d", "folder": "/", "files": COUNT, "size": 1}}, {}),
    ({"array": {"of": "20261121-101500-3fa2", "index": COUNT, "size": 1}}, {}),
    ({"array": {"of": "20261121-101500-3fa2", "index": 0, "size": COUNT}}, {}),
    ({"options": {"cpus": COUNT}}, {}),
    ({"options": {"memory": COUNT << 20}}, {}),
    ({}, {"attempt": COUNT}),
    ({}, {"exit_code": COUNT}),
    ({}, {"left": {"gpu1": 0, "gpu2": COUNT}}),
    ({}, {"failure": {"kind": "rank", "rank": COUNT}}),
    ({}, {"failure": {"kind": "rank", "exit_code": COUNT}}),
    ({}, {"failure": {"kind": "rank", "before": {"rank": COUNT, "host": "gpu1"}}}),
    ({"started": MOMENT}, {}),
    ({}, {"ended": MOMENT}),
]


def doubled(value: Any) -> Any:
    """Return the value with each of its largest numbers doubled."""
    if isinstance(value, dict):
        return {key: doubled(one) for key, one in value.items()}
    if isinstance(value, list):
        return [doubled(one) for one in value]
    return 2 * value if value in (COUNT, COUNT << 20, MOMENT) else value


@pytest.mark.parametrize(("record", "ending"), LARGE)
def test_a_number_that_counts_nothing_is_no_part_of_a_record(record: dict[str, Any], ending: dict[str, Any]) -> None:
    assert record_of({"id": "r", **record}, ending).id == "r"
    with pytest.raises(AnswerError, match=r"kit cannot read the record of a run: a (number is greater|time is not)"):
        record_of({"id": "r", **doubled(record)}, doubled(ending))


def test_no_time_is_before_1970() -> None:
    for record, ending in (({"started": -1.0}, {}), ({}, {"ended": -1.0})):
        with pytest.raises(AnswerError, match="a time is not between 1970 and 4147"):
            record_of({"id": "r", **record}, ending)


MOST_HOSTS: dict[str, Any] = {f"gpu{number}": {} for number in range(1024)}


@pytest.mark.parametrize(
    "use",
    [
        {"every": -1.0},
        {"every": 2.0**64},
        {"readings": -1},
        {"left_out": -1},
        {"hosts": {"gpu1": {"cpu_mean": 3.5}, "gpu2": {"cpu_mean": -3.5}}},
        {"hosts": {"gpu1": {"memory_peak": 2**63 - 1}, "gpu2": {"cpu_mean": 2.0**64}}},
        {"hosts": {**MOST_HOSTS, "gpu1024": {}}},
    ],
)
def test_a_run_used_no_more_than_hosts_have(use: dict[str, Any]) -> None:
    good = {"every": 0.0, "readings": 0, "left_out": 0, "hosts": MOST_HOSTS}
    assert record_of({"id": "r"}, {"metrics": good}).metrics is not None
    with pytest.raises(AnswerError, match="what the run used is more than hosts have"):
        record_of({"id": "r"}, {"metrics": {**good, **use}})


def test_a_failure_of_a_newer_head() -> None:
    """kit ignores words that it does not know."""
    run = record_of({"id": "r", "more": 1}, {"exit_code": 1, "failure": {"kind": "fire", "more": 2}})
    assert run.failure == Failure(kind="mpirun")


@pytest.mark.parametrize("text", ["", "rubbish", "[]", "3", '{"array": {"of": "../x", "index": 0, "size": 1}}'])
def test_what_is_no_record(text: str) -> None:
    assert parse(text) is None


def test_a_record_as_text() -> None:
    run = parse('{"id": "r1", "command": ["a"]}')
    assert run is not None
    assert (run.id, run.command, run.state) == ("r1", ("a",), "running")


def test_a_folder_whose_name_is_not_utf_8_is_shown_as_text() -> None:
    code = {"digest": "d", "folder": "/home/me/caf\udce9", "files": 1, "size": 2}
    request = start_request(plan("r1"), cluster="lab", image="i", head="gpu1", by="me@here", wait=False, code=code)
    assert request["info"]["code"] == {**code, "folder": "/home/me/caf\\udce9"}
