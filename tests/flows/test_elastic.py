"""kit run --elastic and kit hosts add|drop, on VMs in memory with a real launcher, and a stand-in for kit-elastic."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from kit.errors import InputError, NotReadyError
from kit.flows.context import Context
from kit.flows.queue.cordon import cordon
from kit.flows.run.attach import attach
from kit.flows.run.hosts import add_hosts, drop_hosts
from kit.flows.run.stop import stop
from kit.model.launch import RunPolicy
from kit.remote.run.door import Door
from tests.fakes.cluster import Cluster
from tests.fakes.head import until

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 and not shutil.which("sudo"), reason="needs root, or sudo without a password"
)

# It starts no rank. Its worlds are the hosts that it gets, unless a file beside it says that no commit comes.
PROGRAM = """#!%s
import json, os, sys

def tell(**event):
    os.write(1, json.dumps(event).encode() + b"\\n")

def world(hosts):
    return sorted([name, host["slots"]] for name, host in hosts.items())

before = world(json.loads(sys.stdin.readline())["start"]["hosts"])
count = sum(slots for _, slots in before)
tell(event="formed", hosts=before, np=count)
for line in sys.stdin:
    value = json.loads(line)
    if value.get("stop"):
        break
    if os.path.exists(__file__ + ".hold"):
        continue
    now = world(value["hosts"])
    joined = [name for name, _ in now if name not in dict(before)]
    left = [name for name, _ in before if name not in dict(now)]
    earlier, count = count, sum(slots for _, slots in now)
    tell(event="reset", hosts=now, joined=joined, left=left, np_before=earlier, np=count, seconds=1.5)
    before = now
"""


@pytest.fixture
def program(cluster: Cluster) -> None:
    """Put the stand-in for kit-elastic on the head."""
    file = cluster.head.folder / "bin" / "kit-elastic"
    file.write_text(PROGRAM % sys.executable)
    file.chmod(0o755)


@pytest.fixture
def elastic(cluster: Cluster, program: None) -> Iterator[str]:
    """Return the id of an elastic run on gpu1 and gpu2, two slots each, that lives until the end of the test."""
    result = cluster.run(
        "true", hosts="gpu[1-2]", launcher="elastic", detach=True, policy=RunPolicy(operator=None, min_np=2)
    )
    run = result.plan.run_id
    until(lambda: b'"formed"' in cluster.log())
    yield run
    stop(cluster.context(), run, grace_s=0.1)


def hosts(cluster: Cluster) -> list[str]:
    (record,) = cluster.records
    return [place["node"] for place in record["places"]]


def test_settings_of_mpirun_take_effect_or_are_named(cluster: Cluster) -> None:
    mpi = {"bind_to": "core", "args": ["--mca", "btl_base_verbose", "1"]}
    plan = cluster.run("true", launcher="elastic", dry_run=True, spec={"mpi": mpi}).plan
    assert plan.env["KIT_BIND_TO"] == "core"
    (warning,) = cluster.reporter.warnings
    assert warning.text.startswith("mpi.args in kit.yaml has no effect with --elastic")


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("content", [b"x = 1\n", b""])
def test_kit_says_that_standard_input_does_not_reach_the_ranks(cluster: Cluster, content: bytes) -> None:
    """kit-elastic takes its orders from there. An open pipe without data, as in CI, is no input."""
    read_end, write_end = os.pipe()
    os.write(write_end, content)
    launch = {"launcher": "elastic", "detach": True, "policy": RunPolicy(operator=None), "stdin": read_end}
    run = cluster.run("true", **launch).plan.run_id
    stop(cluster.context(), run, grace_s=0.1)
    os.close(write_end)
    # kit has read nothing.
    with os.fdopen(read_end, "rb") as pipe:
        assert pipe.read() == content
    warned = [warning.text for warning in cluster.reporter.warnings]
    assert warned == (["ranks of an elastic run do not get your standard input"] if content else [])


def test_hosts_come_to_a_run_and_leave_it(cluster: Cluster, elastic: str) -> None:
    record = add_hosts(cluster.context(), None, "gpu[2-3]")
    assert [(place.node, place.slots) for place in record.places][2:] == [("gpu3", (0, 1))]
    until(lambda: b'"joined": ["gpu3"]' in cluster.log())
    drop_hosts(cluster.context(), elastic, "gpu1,gpu2")
    # The slots are free again as soon as no rank is there.
    until(lambda: hosts(cluster) == ["gpu3"])
    stop(cluster.context(), elastic, grace_s=0.1)
    attach(cluster.context(), elastic, tagged=False)
    warned = [warning.text for warning in cluster.reporter.warnings]
    assert "reset: gpu3 joined; 4 → 6 ranks; 1.5 s lost" in warned
    assert "reset: gpu[1-2] left; 6 → 2 ranks; 1.5 s lost" in warned


def test_a_host_that_was_dropped_by_mistake_stays(cluster: Cluster, elastic: str) -> None:
    """Its ranks leave at the next commit, and until then, kit said that the run has this host already."""
    (cluster.head.folder / "bin" / "kit-elastic.hold").touch()
    drop_hosts(cluster.context(), elastic, "gpu2")
    assert [place.get("leaving") for place in cluster.record(elastic)["places"]] == [None, True]
    assert [place.node for place in add_hosts(cluster.context(), elastic, "gpu2").places] == ["gpu1", "gpu2"]
    assert [place.get("leaving") for place in cluster.record(elastic)["places"]] == [None, None]


def test_a_dropped_host_that_was_lost_does_not_come_back_while_it_is_cordoned(
    cluster: Cluster, elastic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kit refuses it before data sets and code go to other hosts, so it does not ask the head for that."""
    (cluster.head.folder / "bin" / "kit-elastic.hold").touch()
    file = cluster.head.runs / elastic / "record.json"
    record = json.loads(file.read_text())
    record["places"][1] |= {"leaving": True, "out": True}
    file.write_text(json.dumps(record))
    cordon(cluster.context(), "gpu2", why="slow")
    monkeypatch.setattr(Door, "ask", lambda *_: pytest.fail("the head was asked"))
    with pytest.raises(NotReadyError, match="gpu2 is cordoned: slow"):
        add_hosts(cluster.context(), elastic, "gpu2")


def test_a_host_that_stays_is_named_with_its_own_gpus(
    cluster: Cluster, elastic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ranks may leave before the head answers, for example while a further host gets the code."""
    (cluster.head.folder / "bin" / "kit-elastic.hold").touch()
    file = cluster.head.runs / elastic / "record.json"
    record = json.loads(file.read_text())
    record["places"][1] |= {"leaving": True, "env": {"KIT_HELD_SLOTS": "gpu2=0"}}
    file.write_text(json.dumps(record))
    asked: list[Mapping[str, Any]] = []
    ask = Door.ask

    def spy(door: Door, request: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(request)
        return ask(door, request)

    monkeypatch.setattr(Door, "ask", spy)
    add_hosts(cluster.context(), elastic, "gpu2")
    assert [(place["node"], place["env"]) for place in asked[-1]["add"]] == [("gpu2", {"KIT_HELD_SLOTS": "gpu2=0"})]


def test_a_run_at_its_limit_says_that_no_rank_starts_on_a_new_host(cluster: Cluster, elastic: str) -> None:
    """It may hold the slots, for when other ranks leave."""
    file = cluster.head.runs / elastic / "record.json"
    record = json.loads(file.read_text())
    file.write_text(json.dumps({**record, "elastic": {**record["elastic"], "max_np": 4}}))
    add_hosts(cluster.context(), None, "gpu3")
    (warning,) = cluster.reporter.warnings
    assert warning.text == f"run {elastic} has --max-np 4: no rank starts on gpu3 until other ranks leave"
    assert str(warning.hint).endswith("kit hosts drop gpu3")


def test_a_new_host_gets_the_data_sets_of_the_run(
    cluster: Cluster, elastic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged: list[tuple[Sequence[str], Sequence[str]]] = []

    def stage_missing(_: Context, words: Sequence[str], hosts: Sequence[str]) -> bool:
        staged.append((words, hosts))
        # The run must not have the host before the data is there.
        assert there(cluster) == ["gpu1", "gpu2"]
        return True

    there = hosts
    monkeypatch.setattr("kit.flows.data.missing.stage_missing", stage_missing)
    file = cluster.head.runs / elastic / "record.json"
    record = json.loads(file.read_text())
    file.write_text(json.dumps({**record, "options": {**record["options"], "data": ["images"]}}))
    add_hosts(cluster.context(), None, "gpu[2-3]")
    assert staged == [(("images",), ["gpu3"])]
    assert hosts(cluster) == ["gpu1", "gpu2", "gpu3"]


@pytest.mark.parametrize(
    ("is_elastic", "says", "hint"),
    [
        (False, "stay the same: run 2.* is not elastic", "started with --elastic"),
        (True, "gpu3 is cordoned: slow", "kit"),
    ],
)
def test_a_host_that_a_run_cannot_have_gets_no_data_sets_for_nothing(
    cluster: Cluster, elastic: str, monkeypatch: pytest.MonkeyPatch, says: str, hint: str, *, is_elastic: bool
) -> None:
    """kit staged all data on the new host, and only then said that the run cannot have it."""
    staged: list[str] = []
    monkeypatch.setattr("kit.flows.data.missing.stage_missing", lambda *_: staged.append("images"))
    file = cluster.head.runs / elastic / "record.json"
    record = json.loads(file.read_text())
    kept = {name: value for name, value in record.items() if is_elastic or name != "elastic"}
    file.write_text(json.dumps({**kept, "options": {**record["options"], "data": ["images"]}}))
    if is_elastic:
        cordon(cluster.context(), "gpu3", why="slow")
    with pytest.raises(NotReadyError, match=says) as refused:
        add_hosts(cluster.context(), elastic, "gpu3")
    assert hint in str(refused.value.hint)
    assert (staged, hosts(cluster)) == ([], ["gpu1", "gpu2"])


def test_what_cannot_change(cluster: Cluster, elastic: str) -> None:
    with pytest.raises(InputError, match="has these hosts already"):
        add_hosts(cluster.context(), None, "gpu1")
    for host, why in {
        "gpu3": "gpu3: not a host of the run",
        "gpu[1-2]": "0 slots with ranks would be left, and --min-np is 2",
    }.items():
        with pytest.raises(NotReadyError, match=why) as refused:
            drop_hosts(cluster.context(), None, host)
        # The run was started with --elastic.
        assert "--elastic" not in str(refused.value.hint)
        assert f"kit runs show {elastic}; if too few would be left, add others first" in str(refused.value.hint)
    with pytest.raises(InputError, match="no run"):
        add_hosts(cluster.context(), "20200101", "gpu3")
    cordon(cluster.context(), "gpu3", why="slow")
    with pytest.raises(NotReadyError, match="gpu3 is cordoned: slow"):
        add_hosts(cluster.context(), None, "gpu3")
    assert hosts(cluster) == ["gpu1", "gpu2"]
    assert json.loads((cluster.head.runs / elastic / "record.json").read_text())["elastic"]["min_np"] == 2


@pytest.mark.parametrize("change", [add_hosts, drop_hosts])
@pytest.mark.parametrize("word", [None, "latest"])
def test_somebody_elses_run_changes_only_by_its_id(
    cluster: Cluster, elastic: str, monkeypatch: pytest.MonkeyPatch, change: Callable[..., object], word: str | None
) -> None:
    monkeypatch.setattr("kit.flows.run.hosts.operator", lambda: "ben@desk")
    with pytest.raises(NotReadyError, match=f"started the latest run, {elastic}, and you are ben@desk") as refused:
        change(cluster.context(), word, "gpu[2-3]")
    verb = "add" if change is add_hosts else "drop"
    assert refused.value.hint == f"to change it, name it: kit hosts {verb} 'gpu[2-3]' --run {elastic}"
    assert hosts(cluster) == ["gpu1", "gpu2"]
    add_hosts(cluster.context(), elastic, "gpu3")
    assert hosts(cluster) == ["gpu1", "gpu2", "gpu3"]


def test_a_host_that_was_never_deployed_is_refused_with_what_to_type(cluster: Cluster, elastic: str) -> None:
    record = json.loads(cluster.head.record.read_bytes())
    record["nodes"] = [node for node in record["nodes"] if node["name"] != "gpu3"]
    cluster.head.record.write_text(json.dumps(record))
    with pytest.raises(NotReadyError, match="was deployed without this host") as refused:
        add_hosts(cluster.context(), elastic, "gpu3")
    assert refused.value.host == "gpu3"
    assert str(refused.value.hint).endswith("kit deploy; then: kit hosts add gpu3")
    assert hosts(cluster) == ["gpu1", "gpu2"]


def test_without_a_run_there_is_nothing_to_change(cluster: Cluster) -> None:
    with pytest.raises(NotReadyError, match="no run is running"):
        add_hosts(cluster.context(), None, "gpu3")
    with pytest.raises(NotReadyError, match="no run is running"):
        drop_hosts(cluster.context(), None, "gpu3")


def test_a_host_whose_cpus_another_run_holds_gives_the_others(
    cluster: Cluster, elastic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = json.loads(cluster.head.record.read_bytes())
    record["settings"] = {**record.get("settings", {}), "cpus": "exclusive"}
    cluster.head.record.write_text(json.dumps(record))
    one = RunPolicy(operator=None, max_np=1)
    other = cluster.run("true", hosts="gpu3", launcher="elastic", detach=True, as_deployed=True, policy=one)
    with monkeypatch.context() as older:
        # A launcher without this word would give the ranks all CPUs.
        older.setattr(Door, "takes_words", property(lambda _: False, lambda *_: None), raising=False)
        with pytest.raises(NotReadyError, match="cannot give these ranks a part of the host"):
            add_hosts(cluster.context(), elastic, "gpu3")
    places = add_hosts(cluster.context(), elastic, "gpu3").places
    assert (places[2].node, places[2].slots) == ("gpu3", (1,))
    kept = cluster.record(elastic)["places"][2]["env"]
    assert kept["KIT_CPU_SLOTS"] == "gpu3=1/2 exclusive"
    stop(cluster.context(), other.plan.run_id, grace_s=0)
