"""kit data with scripted stagers: what kit orders, and what it says of each answer. tests/contract has real stagers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.cli.text import data as data_text
from kit.errors import (
    AnswerError,
    HostsFailed,
    InputError,
    Interrupted,
    KitError,
    NotReadyError,
    SlowError,
    StepError,
    UnreachableError,
)
from kit.events import Event, HostDone, HostFailed, HostStep, Note
from kit.flows.context import Context
from kit.flows.data.listing import listing
from kit.flows.data.missing import stage_missing
from kit.flows.data.remove import remove_data, stop
from kit.flows.data.stage import Staging, preview, stage
from kit.flows.data.verify import verify
from kit.model.datasets import StageResult
from kit.model.results import RunFolder
from kit.model.staging import StagerAnswer
from kit.model.values import replace
from kit.remote.data.order import Order
from kit.remote.results import far
from kit.remote.scripts import script
from tests.fakes.reporter import Remembering
from tests.fakes.staging_hosts import StagingHosts, staging_hosts

PLAN = {
    "files": 2, "bytes": 3000, "new": 2, "removed": 0, "read": 3000,
    "hosts": {"gpu1": {"need": 3000, "have": 0}, "gpu2": {"need": 3000, "have": 0}},
}  # fmt: skip
DONE = {**{k: PLAN[k] for k in ("files", "bytes", "new", "removed", "read")}, "seconds": 1.5, "hosts": ["gpu1", "gpu2"]}
HALF = {"progress": {"at": {"gpu1": 1500, "gpu2": 1500}, "read": 1500}}
WHOLE = [{"listing": {"files": 2, "bytes": 3000}}, {"plan": PLAN}, HALF, {"done": DONE}]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[StagingHosts]:
    with staging_hosts(tmp_path, 2) as machine:
        yield machine


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "a").write_bytes(b"a" * 1000)
    (folder / "b").write_bytes(b"b" * 2000)
    return folder


@pytest.fixture
def context(hosts: StagingHosts, source: Path, reporter: Remembering) -> Context:
    """A cluster that was deployed with a data set whose source is on gpu2."""
    context = context_of(hosts, reporter, f"gpu2:{source}")
    hosts.deploy(context)
    return context


def context_of(hosts: StagingHosts, reporter: Remembering, source: str) -> Context:
    return hosts.context(reporter, data={"images": {"from": source, "to": "/data/images"}})


def summary(host: Path, **more: Any) -> None:
    """Write what a staging leaves on a host."""
    (host / "files").mkdir(parents=True, exist_ok=True)
    fields = {"name": "images", "stage": "disk", "split": "none", "files": 2, "bytes": 3000, "id": "1", "at": 1e9}
    (host / "staged.json").write_text(json.dumps({**fields, **more}))


def notes(reporter: Remembering) -> list[str]:
    return [note.text for note in reporter.of(Note)]


def test_a_staging_is_joined_by_all_hosts_and_led_by_the_head(
    hosts: StagingHosts, context: Context, reporter: Remembering, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed: list[int] = []
    monkeypatch.setattr("kit.flows.data.stage.open_files", SimpleNamespace(allow=allowed.append))
    hosts.says({"stage": WHOLE})
    (result,) = stage(context, [], limit=125_000_000)
    assert (result.files, result.bytes, result.hosts, result.seconds) == (2, 3000, ("gpu1", "gpu2"), 1.5)
    assert not result.lost
    # All hosts stay connected.
    assert allowed == [2]
    joins = {host: next(one for one in hosts.heard(host) if one["op"] == "join") for host in ("gpu1", "gpu2")}
    assert {joins[host.name]["address"] for host in hosts.hosts} == {host.address for host in hosts.hosts}
    assert joins["gpu1"]["certificate"] == joins["gpu2"]["certificate"]
    (order,) = [one for one in hosts.heard() if one["op"] == "stage"]
    assert order["id"] == joins["gpu1"]["id"] == result.id
    assert order["request"] == {
        "data": "images", "cluster": "lab", "stage": "disk", "split": "none", "size": None, "limit": 125_000_000,
        "source": {"kind": "folder", "path": "/source", "label": f"gpu2:{source}", "readers": ["gpu2"]},
        "members": [
            {"host": host.name, "address": host.address, "port": 4000} for host in hosts.hosts
        ],
    }  # fmt: skip
    assert [step.fraction for step in reporter.of(HostStep) if step.fraction is not None] == [0.5, 0.5]
    assert [done.host for done in reporter.of(HostDone)] == ["gpu1", "gpu2"]


def test_a_stager_gets_little_of_its_host(hosts: StagingHosts, context: Context, source: Path) -> None:
    hosts.says({"stage": WHOLE})
    stage(context, ["images"])
    (first,), (second,) = hosts.runs("gpu1"), hosts.runs("gpu2")
    for host, words in (("gpu1", first), ("gpu2", second)):
        assert {"--read-only", "--rm", "--network"} <= {*words}
        assert values_of("--cap-drop", words) == ["ALL"]
        assert values_of("--security-opt", words) == ["no-new-privileges"]
        assert values_of("--volume", words) == [f"{hosts.data(host)}:/data"]
        assert values_of("--tmpfs", words) == ["/run/kit-data:mode=700"]
        assert words[-3:] == ["sha256:1f", "kit-data", "serve"]
        assert not [word for word in words if "PRIVATE KEY" in word]
    # Only the host that has the source mounts it.
    assert "--mount" not in first
    assert "--cap-add" not in first
    # There, root may read files that only their owner may.
    assert values_of("--cap-add", second) == ["DAC_OVERRIDE"]
    assert second[second.index("--mount") + 1] == f"type=bind,src={source},dst=/source,readonly"


def values_of(option: str, words: list[str]) -> list[str]:
    return [words[at + 1] for at, word in enumerate(words) if word == option]


def test_keys_and_secrets_are_on_no_command_line(hosts: StagingHosts, context: Context) -> None:
    hosts.says({"stage": [{"wait": "go"}, *WHOLE]})
    results: list[StageResult] = []
    thread = threading.Thread(target=lambda: results.extend(stage(context, [])), daemon=True)
    thread.start()
    try:
        until(lambda: any(one["op"] == "stage" for one in hosts.heard()))
        lines = b"".join(_command_lines())
    finally:
        (hosts.root("gpu1") / "engine/go").touch()
        thread.join(30)
    assert b"scripted_stager.py" in lines
    # This staging's own key: other programs of this machine may name keys, too.
    (key,) = {one["key"].splitlines()[1] for one in hosts.heard() if one["op"] == "join"}
    assert len(key) > 30
    assert key.encode() not in lines
    assert len(results) == 1


def _command_lines() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        # A process may end meanwhile.
        with contextlib.suppress(OSError):
            yield path.read_bytes()


def test_what_opens_a_store_goes_to_the_lead_alone(hosts: StagingHosts, reporter: Remembering) -> None:
    context = hosts.context(reporter, data={"images": {"from": "s3://bucket/images", "to": "/data/images"}})
    hosts.deploy(context)
    hosts.says({"stage": WHOLE})
    environ = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "the-secret-key"}
    stage(context, [], environ=environ)
    (order,) = [one for one in hosts.heard() if one["op"] == "stage"]
    source = order["request"]["source"]
    assert (source["kind"], source["label"]) == ("rclone", "s3://bucket/images")
    assert "the-secret-key" in source["env"].values()
    # Nobody else gets it: no container, no other host, and no word of kit.
    assert "the-secret-key" not in json.dumps([hosts.runs("gpu1"), hosts.runs("gpu2"), hosts.heard("gpu2")])
    assert "the-secret-key" not in repr(reporter.events)
    assert any("AWS_ACCESS_KEY_ID" in note for note in notes(reporter))


def until(true: Any, limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def test_nothing_new_is_nothing_to_do(hosts: StagingHosts, context: Context) -> None:
    none = {**DONE, "new": 0, "read": 0}
    hosts.says({"stage": [{"plan": {**PLAN, "new": 0, "read": 0}}, {"done": none}]})
    (result,) = stage(context, [])
    assert result.nothing_to_do


FAILURES = {
    "source-missing": (StepError, "check from: of images"),
    "source-empty": (StepError, "whether its disk is mounted; if it is empty on purpose: kit data rm images"),
    "source-refused": (StepError, "check the keys"),
    "source-lost": (StepError, "kit data stage images"),
    "room": (StepError, "make room"),
    "memory": (StepError, "size: of images"),
    "shm": (StepError, "sudo mount -o remount,size=… /dev/shm"),
    "disk": (StepError, "kit ssh gpu2 -- df -h"),
    "busy": (NotReadyError, "watch it"),
    "stopped": (NotReadyError, "go on: kit data stage images"),
    "a-new-kind": (StepError, "kit data stage images"),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failure_names_its_cause_and_what_to_type(hosts: StagingHosts, context: Context, kind: str) -> None:
    hosts.says({"stage": [{"failed": {"kind": kind, "host": "gpu2", "text": "the cause"}}]})
    with pytest.raises(KitError) as caught:
        stage(context, [])
    error, hint = FAILURES[kind]
    assert type(caught.value) is error
    assert str(caught.value).endswith("images: the cause")
    assert caught.value.host == "gpu2"
    assert hint in (caught.value.hint or "")


def test_files_that_may_not_be_read_are_no_matter_of_keys(hosts: StagingHosts, context: Context) -> None:
    text = "a may not be read (Permission denied)"
    hosts.says({"stage": [{"failed": {"kind": "source-refused", "host": "gpu2", "text": text}}]})
    with pytest.raises(StepError, match="a may not be read") as caught:
        stage(context, [])
    assert caught.value.hint == "let the file and its folders be read where the source is: chmod"


def test_a_host_that_is_lost_fails_at_the_end_and_the_others_are_complete(
    hosts: StagingHosts, context: Context, reporter: Remembering
) -> None:
    lost = {"lost": {"host": "gpu2", "text": "no answer for 15 s"}}
    hosts.says({"stage": [{"plan": PLAN}, lost, {"done": {**DONE, "hosts": ["gpu1"], "lost": ["gpu2"]}}]})
    results: list[StageResult] = []
    with pytest.raises(StepError, match="no answer for 15 s") as caught:
        stage(context, [], on_result=results.append)
    assert (caught.value.host, caught.value.exit_code) == ("gpu2", 4)
    assert results[0].hosts == ("gpu1",)
    assert [event.host for event in reporter.of(HostFailed)] == ["gpu2"]


def test_a_host_that_cannot_be_reached_is_left_out(
    hosts: StagingHosts, context: Context, reporter: Remembering, source: Path
) -> None:
    context = context_of(hosts, reporter, f"gpu1:{source}")
    hosts.down.add("gpu2")
    hosts.says({"stage": [{"done": {**DONE, "hosts": ["gpu1"]}}]})
    results: list[StageResult] = []
    with pytest.raises(StepError, match="no SSH connection") as caught:
        stage(context, [], on_result=results.append)
    assert caught.value.host == "gpu2"
    (order,) = [one for one in hosts.heard() if one["op"] == "stage"]
    assert [member["host"] for member in order["request"]["members"]] == ["gpu1"]


def test_nothing_is_staged_without_the_head(hosts: StagingHosts, context: Context) -> None:
    hosts.down.add("gpu1")
    with pytest.raises(UnreachableError) as caught:
        stage(context, [])
    assert caught.value.host == "gpu1"


@pytest.mark.parametrize(
    "odd",
    [
        "{", "[]", '{"plan": 3}', '{"plan": {"files": -1}}', '{"progress": {"at": {"gpu1": 1e300}}}',
        '{"joined": {"port": 0}}', '{"done": {"seconds": -1.0}}', '{"failed": {"text": "no kind"}}',
    ],
)  # fmt: skip
def test_an_odd_answer_of_the_lead_is_an_error_of_its_host(hosts: StagingHosts, context: Context, odd: str) -> None:
    hosts.says({"stage": [f"{odd}\n"]})
    with pytest.raises(AnswerError, match="what its stager says") as caught:
        stage(context, [])
    assert caught.value.host == "gpu1"


def test_a_member_that_answers_oddly_is_left_out(
    hosts: StagingHosts, context: Context, reporter: Remembering, source: Path
) -> None:
    context = context_of(hosts, reporter, f"gpu1:{source}")
    hosts.says({"join": ['{"joined": {"port": 99999}}\n']}, host="gpu2")
    hosts.says({"stage": [{"done": {**DONE, "hosts": ["gpu1"]}}]})
    with pytest.raises(StepError, match="not between") as caught:
        stage(context, [])
    assert caught.value.host == "gpu2"
    (order,) = [one for one in hosts.heard() if one["op"] == "stage"]
    assert [member["host"] for member in order["request"]["members"]] == ["gpu1"]


def test_the_time_to_join_is_the_same_for_all_hosts(
    hosts: StagingHosts, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    since: dict[str, float | None] = {}
    answer = Order.answer

    def noted(order: Order, patience_s: float, **more: float | None) -> StagerAnswer:
        since[order.host.name] = more.get("since")
        return answer(order, patience_s, **more)

    monkeypatch.setattr(Order, "answer", noted)
    hosts.says({"stage": WHOLE})
    stage(context, [])
    assert since["gpu1"] is not None
    assert since["gpu1"] == since["gpu2"]


def test_a_host_that_was_not_asked_to_let_go_is_not_awaited(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """It hangs: the wait for its answer would be one more minute."""
    awaited: list[str] = []

    def begun(order: Order) -> Order:
        if order.host.name == "gpu1":
            raise SlowError("the stager did not start", host="gpu1")
        return order

    monkeypatch.setattr(Order, "start", lambda order: order)
    monkeypatch.setattr(Order, "begun", begun)
    monkeypatch.setattr(Order, "answer", lambda order, *_, **__: awaited.append(order.host.name))
    staging = Staging(context, context.spec.data[0], limit=0, detach=False, environ={})
    staging._end_joined({"gpu1": "a", "gpu2": "a"})
    assert awaited == ["gpu2"]


def test_a_host_that_lacks_the_folder_of_the_source_is_the_cause(
    hosts: StagingHosts, context: Context, reporter: Remembering
) -> None:
    hosts.says({"join": ['{"failed": {"kind": "disk", "host": null, "text": "no such folder"}}\n']}, host="gpu2")
    with pytest.raises(StepError, match="no such folder") as caught:
        stage(context, [])
    assert caught.value.host == "gpu2"
    assert [failed.host for failed in reporter.of(HostFailed)] == ["gpu2"]
    # Its lead could only say that nobody is left who can read the source. No host waits for that.
    join, end = (one for one in hosts.heard() if one["op"] != "hello")
    assert (join["op"], end) == ("join", {"op": "stop", "id": join["id"]})


def test_no_host_joins_a_staging_whose_source_is_on_a_host_that_is_down(hosts: StagingHosts, context: Context) -> None:
    """It would wait for a minute, and the same command would wait for its lead meanwhile."""
    hosts.down.add("gpu2")
    with pytest.raises(UnreachableError) as caught:
        stage(context, [])
    assert caught.value.host == "gpu2"
    assert not [one for one in hosts.heard() if one["op"] != "hello"]


def test_a_staging_that_runs_is_watched(
    hosts: StagingHosts, context: Context, reporter: Remembering, source: Path
) -> None:
    run_stager(hosts, context)
    request = {"request": {"id": "77", "source": f"gpu2:{source}", "limit": 0, "since": 1e9}}
    hosts.says({"hello": [{"hello": {"version": 1, "staging": "77", "lead": True}}], "watch": [request, *WHOLE]})
    (result,) = stage(context, [])
    assert (result.watched, result.id, result.files) == (True, "77", 2)
    (note,) = [note for note in notes(reporter) if "already" in note]
    assert note.startswith("images is already being staged since ")
    assert note.endswith(": watching it")


JOINED = {"hello": [{"hello": {"version": 1, "staging": "77"}}]}


def test_a_staging_that_another_kit_is_starting_is_watched(
    hosts: StagingHosts, context: Context, reporter: Remembering
) -> None:
    run_stager(hosts, context)
    hosts.says(JOINED)

    def lead() -> None:
        until(lambda: any("another kit is starting to stage images" in note for note in notes(reporter)))
        hosts.says({"hello": [{"hello": {"version": 1, "staging": "77", "lead": True}}], "watch": WHOLE})

    threading.Thread(target=lead, daemon=True).start()
    (result,) = stage(context, [])
    assert (result.watched, result.id, result.files) == (True, "77", 2)
    assert not [one for one in hosts.heard() if one["op"] == "stop"]


def test_hosts_that_joined_a_staging_which_nobody_leads_join_another(
    hosts: StagingHosts, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_stager(hosts, context)
    # Somebody has pressed Ctrl-C before that staging had a lead.
    monkeypatch.setattr("kit.flows.data.stage._LEAD_S", 0.0)
    hosts.says({**JOINED, "stage": WHOLE})
    hosts.says(JOINED, host="gpu2")
    (result,) = stage(context, [])
    assert (result.watched, result.files) == (False, 2)
    for host, last in (("gpu1", ["stop", "join", "stage"]), ("gpu2", ["stop", "join"])):
        orders = hosts.heard(host)[-len(last) :]
        assert [order["op"] for order in orders] == last
        assert (orders[0]["id"], orders[1]["id"]) == ("77", result.id)


def run_stager(hosts: StagingHosts, context: Context) -> None:
    """Leave stagers running on all hosts, as after a staging."""
    hosts.says({"stage": WHOLE})
    stage(context, [])
    assert hosts.running("gpu1")


def test_a_stager_that_only_waits_is_used_again(hosts: StagingHosts, context: Context) -> None:
    run_stager(hosts, context)
    stage(context, [])
    assert len(hosts.runs("gpu1")) == len(hosts.runs("gpu2")) == 1
    assert [one["op"] for one in hosts.heard("gpu1")].count("stage") == 2


def test_another_version_of_the_stager(hosts: StagingHosts, context: Context) -> None:
    run_stager(hosts, context)
    for version, message in ((2, "a newer kit deployed the cluster"), (0, "another version of the stager")):
        hosts.says({"hello": [{"hello": {"version": version}}]})
        with pytest.raises(NotReadyError, match=message):
            stage(context, [])


def test_a_detached_staging_is_left_when_it_has_begun(hosts: StagingHosts, context: Context) -> None:
    hosts.says({"stage": [{"plan": PLAN}]})
    (result,) = stage(context, [], detach=True)
    assert (result.detached, result.files, result.hosts) == (True, 2, ("gpu1", "gpu2"))
    assert not [one for one in hosts.heard() if one["op"] == "stop"]


def test_ctrl_c_ends_the_staging(hosts: StagingHosts, context: Context, reporter: Remembering) -> None:
    hosts.says({"stage": [{"plan": PLAN}]})
    interrupt_when(lambda: any("to read" in note for note in notes(reporter)))
    with pytest.raises(Interrupted, match="was stopped") as caught:
        stage(context, [])
    (order,) = [one for one in hosts.heard() if one["op"] == "stop"]
    assert order["id"]
    assert caught.value.hint == "go on: kit data stage images"
    assert any("what came is kept" in note for note in notes(reporter))


def test_ctrl_c_leaves_a_staging_of_somebody_else(hosts: StagingHosts, context: Context, reporter: Remembering) -> None:
    run_stager(hosts, context)
    request = {"request": {"id": "77", "source": "", "limit": 0, "since": 1e9}}
    hello = {"hello": {"version": 1, "staging": "77", "lead": True}}
    hosts.says({"hello": [hello], "watch": [request, {"plan": PLAN}]})
    interrupt_when(lambda: any("already" in note for note in notes(reporter)))
    with pytest.raises(Interrupted, match="goes on") as caught:
        stage(context, [])
    assert caught.value.hint == "end it: kit data stop images"
    assert not [one for one in hosts.heard() if one["op"] == "stop"]


def interrupt_when(true: Any) -> None:
    def wait() -> None:
        until(true)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()


def test_kit_connects_again_after_a_cut_connection(
    hosts: StagingHosts, context: Context, reporter: Remembering
) -> None:
    hosts.says({"stage": [{"plan": PLAN}], "watch": [{"plan": PLAN}, HALF, {"done": DONE}]})

    def cut() -> None:
        until(lambda: any("to read" in note for note in notes(reporter)))
        hosts.cut()

    threading.Thread(target=cut, daemon=True).start()
    (result,) = stage(context, [])
    assert result.files == 2
    assert [one["op"] for one in hosts.heard()].count("watch") == 1


def test_a_stager_that_is_gone_says_what_to_type(hosts: StagingHosts, context: Context, reporter: Remembering) -> None:
    hosts.says({"stage": [{"plan": PLAN}]})

    def end() -> None:
        until(lambda: any("to read" in note for note in notes(reporter)))
        hosts.kill("gpu1")
        hosts.cut()

    threading.Thread(target=end, daemon=True).start()
    with pytest.raises(StepError, match="its stager ended before the staging did") as caught:
        stage(context, [])
    assert caught.value.hint == "what came is kept; go on: kit data stage images"


@pytest.mark.parametrize("since", [1e9 + 0.5, 1e9 + 5])
def test_a_staging_that_ended_while_kit_was_away_is_judged_by_its_hosts(
    hosts: StagingHosts, context: Context, reporter: Remembering, source: Path, since: float
) -> None:
    hosts.says({"stage": [{"request": {"id": "77", "since": since}}, {"plan": PLAN}]})

    def end() -> None:
        until(lambda: any("to read" in note for note in notes(reporter)))
        for host in ("gpu1", "gpu2"):
            # At 1e9. Hosts may also have it from an earlier staging, before this one failed.
            summary(hosts.data(host), source=f"gpu2:{source}")
            hosts.kill(host)
        hosts.cut()

    threading.Thread(target=end, daemon=True).start()
    if since > 1e9 + 1:
        with pytest.raises(StepError, match="its stager ended before the staging did"):
            stage(context, [])
        return
    (result,) = stage(context, [])
    assert (result.hosts, result.files, result.new, result.lost) == (("gpu1", "gpu2"), 2, 2, {})


def test_pieces_with_wrong_bytes_and_changed_files_are_told(
    hosts: StagingHosts, context: Context, reporter: Remembering
) -> None:
    wrong = [{"wrong": {"host": "gpu2", "file": f"f{n}"}} for n in range(5)]
    hosts.says({"stage": [{"plan": PLAN}, {"changed": {"file": "a\x1b[2J"}}, *wrong, {"done": DONE}]})
    stage(context, [])
    texts = [warned.text for warned in reporter.warnings]
    assert texts[0] == "a\\x1b[2J changed in the source while it was read"
    assert texts[1] == "gpu2: a piece of f0 came with wrong bytes, and is fetched again"
    assert texts[-1].startswith("5 pieces came with wrong bytes")
    assert len(texts) == 5


# What is not ready


def test_a_cluster_that_is_not_deployed(hosts: StagingHosts, context: Context) -> None:
    for host in ("gpu1", "gpu2"):
        (hosts.root(host) / "engine/node").unlink()
    with pytest.raises(NotReadyError, match="no cluster is deployed") as caught:
        stage(context, [])
    assert caught.value.hint == "run: kit deploy"
    (hosts.root("gpu1") / "engine/node").touch()
    (hosts.root("gpu2") / "engine/node").touch()
    (hosts.root("gpu1") / "opt/kit/lab/cluster.json").unlink()
    with pytest.raises(NotReadyError, match="is not deployed"):
        stage(context, [])


def test_a_data_set_that_the_cluster_was_deployed_without(
    hosts: StagingHosts, context: Context, reporter: Remembering, source: Path
) -> None:
    more = {"from": f"gpu2:{source}", "to": "/data/more"}
    with pytest.raises(NotReadyError, match="deployed without the data set more") as caught:
        stage(hosts.context(reporter, data={"more": more}), [])
    assert caught.value.hint == "run: kit deploy; then: kit data stage more"


MOUNTED = {"images": {"from": "nfs://nas/x", "to": "/data/x", "stage": "none"}}


@pytest.mark.parametrize(
    ("words", "data", "message"),
    [
        ([], None, "kit.yaml names no data set"),
        (["other"], MOUNTED, "kit.yaml names no data set 'other'"),
        (["images"], MOUNTED, "images has stage: none"),
        ([], MOUNTED, "all data sets of kit.yaml have stage: none"),
        ([], {"images": {"from": "/no/such/folder", "to": "/data/x"}}, "/no/such/folder does not exist"),
    ],
)
def test_bad_input(hosts: StagingHosts, words: list[str], data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        stage(hosts.context(Remembering(), **({"data": data} if data else {})), words)


def test_a_folder_here_needs_kit_to_stay(hosts: StagingHosts, reporter: Remembering, source: Path) -> None:
    context = hosts.context(reporter, data={"images": {"from": str(source), "to": "/x"}})
    with pytest.raises(InputError, match="this machine has the source") as caught:
        stage(context, [], detach=True)
    assert caught.value.hint == "leave out -d"


def test_a_folder_that_is_a_link_on_the_host_is_refused(hosts: StagingHosts, context: Context) -> None:
    hosts.data("gpu1").parent.mkdir(parents=True)
    hosts.data("gpu1").symlink_to("/etc")
    with pytest.raises(StepError, match="is a link, or another user's"):
        stage(context, [])


def test_a_disk_that_is_not_mounted(hosts: StagingHosts, reporter: Remembering, source: Path) -> None:
    data = {"images": {"from": f"gpu2:{source}", "to": "/data/x", "dir": "/nvme-of-no-host"}}
    context = hosts.context(reporter, data=data)
    hosts.deploy(context)
    with pytest.raises(StepError, match="there is no folder /nvme-of-no-host on this host"):
        stage(context, [])


# ls


def test_the_listing_tells_each_state(hosts: StagingHosts, context: Context, source: Path) -> None:
    def state() -> tuple[str, tuple[str, ...]]:
        (row,) = listing(context).sets
        return row.state, row.hosts

    label = f"gpu2:{source}"
    assert state() == ("not staged", ())
    (hosts.data("gpu1") / "coming").mkdir(parents=True)
    (hosts.data("gpu1") / "coming/1").touch()
    assert state() == ("partly", ())
    summary(hosts.data("gpu1"), source=label)
    assert state() == ("partly", ("gpu1",))
    summary(hosts.data("gpu2"), source=label)
    assert state() == ("staged", ("gpu1", "gpu2"))
    summary(hosts.data("gpu2"), source=label, id="2")
    assert state() == ("partly", ("gpu1",))
    assert data_text.listing(listing(context)).endswith("\nimages: missing on gpu2")
    summary(hosts.data("gpu2"), source="s3://other/x")
    assert state()[0] == "changed"


def test_a_file_server_is_mounted_if_the_cluster_was_deployed_with_it(
    hosts: StagingHosts, reporter: Remembering
) -> None:
    context = hosts.context(reporter, data=MOUNTED)

    def state() -> str:
        (row,) = listing(context).sets
        return row.state

    assert state() == "not deployed"
    hosts.deploy(context)
    assert state() == "mounted"
    # Only the head knows.
    hosts.down.add("gpu1")
    assert state() == "not known"
    hosts.down.clear()
    (hosts.root("gpu1") / "opt/kit/lab/cluster.json").write_text('{"kit": 99}')
    assert state() == "not known"


def test_the_listing_has_sizes_and_what_kit_yaml_does_not_name(
    hosts: StagingHosts, context: Context, source: Path
) -> None:
    for host in ("gpu1", "gpu2"):
        summary(hosts.data(host), source=f"gpu2:{source}")
        summary(hosts.data(host, "old"), name="old", source="s3://b/old", split="hosts", at=2e9)
    hosts.down.add("gpu2")
    first = listing(context)
    assert [*first.missed] == ["gpu2"]
    hosts.down.clear()
    images, old = listing(context).sets
    assert (images.files, images.bytes, images.at, images.of) == (2, 3000, 1e9, 2)
    # With split, the hosts have different parts.
    assert (old.name, old.state, old.files, old.bytes, old.source) == ("old", "unknown", 4, 6000, "s3://b/old")


def test_the_age_of_a_data_set_is_by_the_heads_clock(hosts: StagingHosts, context: Context) -> None:
    """The lead wrote the time. The clock of this machine, or of another host, may be days off."""
    for host, now in (("gpu1", 1_000_000_300), ("gpu2", 5)):
        summary(hosts.data(host))
        clock = hosts.root(host) / "bin/date"
        clock.write_text(f"#!/bin/sh\necho {now}\n")
        clock.chmod(0o755)
    assert " 5 min " in data_text.listing(listing(context))
    hosts.down.add("gpu1")
    assert listing(context).now is None


def test_the_listing_shows_how_far_a_staging_is(hosts: StagingHosts, context: Context) -> None:
    run_stager(hosts, context)
    hosts.says({"watch": [{"request": {"id": "1"}}, {"plan": PLAN}, HALF]})
    (row,) = listing(context).sets
    assert (row.state, row.fraction) == ("staging", 0.5)
    # A stager that waits for an order stages nothing.
    hosts.says({"watch": [{"failed": {"kind": "not-staged", "text": "nothing runs"}}]})
    (row,) = listing(context).sets
    assert (row.state, row.fraction) == ("not staged", None)


# verify


def test_verify_reports_wrong_files_of_each_host(hosts: StagingHosts, context: Context) -> None:
    fine = {"verified": {"files": 2, "bytes": 3000, "wrong": []}}
    bad = {"verified": {"files": 2, "bytes": 3000, "wrong": [{"file": "a", "why": "bytes"}], "more": 3}}
    hosts.says({"verify": [{"checked": {"bytes": 1000, "of": 3000}}, fine]}, host="gpu1")
    hosts.says({"verify": [bad]}, host="gpu2")
    (result,) = verify(context, ["images"])
    assert [*result.wrong] == ["gpu2"]
    assert result.wrong["gpu2"].wrong[0].file == "a"
    assert [*result.hosts] == ["gpu1", "gpu2"]


def test_a_verification_during_another_one(hosts: StagingHosts, context: Context) -> None:
    failed = {"failed": {"kind": "verifying", "host": None, "text": "this data set is being verified here"}}
    for host in ("gpu1", "gpu2"):
        hosts.says({"verify": [failed]}, host=host)
    with pytest.raises(HostsFailed) as caught:
        verify(context, [])
    assert caught.value.exit_code == NotReadyError.exit_code
    hint = "wait until kit data verify has ended, then run the same again"
    assert {failure.hint for failure in caught.value.failures} == {hint}


def test_verify_of_what_is_not_staged(hosts: StagingHosts, context: Context) -> None:
    failed = {"failed": {"kind": "not-staged", "host": None, "text": "nothing is staged here"}}
    for host in ("gpu1", "gpu2"):
        hosts.says({"verify": [failed]}, host=host)
    with pytest.raises(HostsFailed) as caught:
        verify(context, [])
    assert caught.value.exit_code == NotReadyError.exit_code
    assert {failure.hint for failure in caught.value.failures} == {"stage it: kit data stage images"}


# rm and stop


def agree(_sets: object) -> bool:
    return True


def fill(hosts: StagingHosts, name: str = "images") -> None:
    for host in ("gpu1", "gpu2"):
        summary(hosts.data(host, name), name=name)
        (hosts.data(host, name) / "files/deep/er").mkdir(parents=True)
        (hosts.data(host, name) / "files/deep/er/a").write_bytes(b"a")
        (hosts.data(host, name) / "coming").mkdir()
        (hosts.data(host, name) / "coming/1").touch()


def test_rm_removes_everything_but_the_folder_that_nodes_have_mounted(hosts: StagingHosts, context: Context) -> None:
    fill(hosts)
    outside = hosts.folder / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (hosts.data("gpu1") / "files/link").symlink_to(outside)
    result = remove_data(context, ["images"], dry_run=False, confirm=agree)
    assert result is not None
    assert [(one.name, one.hosts, one.bytes) for one in result.sets] == [("images", ("gpu1", "gpu2"), 3000)]
    for host in ("gpu1", "gpu2"):
        assert [path.name for path in hosts.data(host).rglob("*")] == ["files"]
    assert (outside / "kept").exists()


def test_rm_leaves_nothing_where_no_node_is(hosts: StagingHosts, context: Context) -> None:
    fill(hosts)
    for host in ("gpu1", "gpu2"):
        (hosts.root(host) / "engine/node").unlink()
    remove_data(context, ["images"], dry_run=False, confirm=agree)
    assert not hosts.data("gpu1").exists()
    assert not hosts.data("gpu1").parent.exists()


def test_rm_removes_what_kit_yaml_does_not_name(hosts: StagingHosts, context: Context) -> None:
    fill(hosts, "old")
    remove_data(context, ["old"], dry_run=False, confirm=agree)
    assert hosts.files("gpu1", "old") == {}


def on_another_disk(hosts: StagingHosts, context: Context, source: Path) -> None:
    """Make what a deploy and a staging leave with dir: /mnt/nvme."""
    for host in hosts.hosts:
        folder = "/mnt/nvme/kit-data/lab/images/files"
        assert context.connect(host).run(script("make_data_folder", folder)).code == 0
        summary(hosts.disk(host.name) / "kit-data/lab/images", source=f"gpu2:{source}")


def test_a_copy_on_a_disk_that_kit_yaml_does_not_name_any_more(
    hosts: StagingHosts, context: Context, reporter: Remembering, source: Path
) -> None:
    on_another_disk(hosts, context, source)
    copy = "/mnt/nvme/kit-data/lab/images"
    (row,) = listing(context).sets
    assert (row.state, row.elsewhere) == ("changed", {copy: ("gpu1", "gpu2")})
    for host in ("gpu1", "gpu2"):
        summary(hosts.data(host), source=f"gpu2:{source}")
    (row,) = listing(context).sets
    assert (row.state, row.elsewhere) == ("staged", {copy: ("gpu1", "gpu2")})
    # The same disk by a link is no other one.
    for host in ("gpu1", "gpu2"):
        (hosts.disk(host) / "link").symlink_to(".")
    linked = {"from": f"gpu2:{source}", "to": "/data/images", "dir": "/mnt/nvme/link"}
    (row,) = listing(hosts.context(reporter, data={"images": linked})).sets
    assert (row.state, [*row.elsewhere]) == ("staged", ["/opt/kit/.data/lab/images"])
    without = hosts.context(reporter)
    (row,) = listing(without).sets
    assert (row.name, row.state, row.hosts, row.bytes) == ("images", "unknown", ("gpu1", "gpu2"), 3000)
    result = remove_data(without, ["images"], dry_run=False, confirm=agree)
    assert result is not None
    assert result.sets[0].folders == ("/opt/kit/.data/lab/images", copy)
    for host in ("gpu1", "gpu2"):
        assert [path.name for path in (hosts.disk(host) / "kit-data").rglob("*")] == ["lab", "images", "files"]


def test_rm_forgets_another_disk_where_no_node_is(
    hosts: StagingHosts, context: Context, reporter: Remembering, source: Path
) -> None:
    on_another_disk(hosts, context, source)
    for host in ("gpu1", "gpu2"):
        (hosts.root(host) / "engine/node").unlink()
    remove_data(hosts.context(reporter), ["images"], dry_run=False, confirm=agree)
    for host in ("gpu1", "gpu2"):
        assert list(hosts.disk(host).iterdir()) == []
        assert not (hosts.root(host) / "opt/kit/.data").exists()


def test_the_list_of_disks_alone_shows_and_removes_nothing(
    hosts: StagingHosts, context: Context, reporter: Remembering, source: Path
) -> None:
    """The disk is another one by now, and the list has a folder that is not kit's."""
    on_another_disk(hosts, context, source)
    for host in ("gpu1", "gpu2"):
        disk = hosts.disk(host)
        (disk / "kit-data").rename(disk / "mine")
        (disk / "kit-data").symlink_to("mine")
        with (hosts.root(host) / "opt/kit/.data/lab/.dirs").open("a") as places:
            places.write(f"{disk}/mine/lab\n")
    assert not listing(hosts.context(reporter)).sets
    with pytest.raises(InputError, match=r"no data set 'images' in kit.yaml or on any host"):
        remove_data(hosts.context(reporter), ["images"], dry_run=False, confirm=agree)


def test_rm_asks_first_and_a_dry_run_removes_nothing(hosts: StagingHosts, context: Context) -> None:
    fill(hosts)
    before = hosts.files("gpu1")
    assert remove_data(context, ["images"], dry_run=False, confirm=lambda _sets: False) is None
    result = remove_data(context, ["images"], dry_run=True, confirm=agree)
    assert result is not None
    assert result.dry_run
    assert hosts.files("gpu1") == before


@pytest.mark.parametrize(("words", "message"), [(["nothing"], "no data set 'nothing' in kit.yaml or on any host")])
def test_rm_of_an_unknown_data_set(context: Context, words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        remove_data(context, words, dry_run=False, confirm=agree)


def test_rm_refuses_what_is_being_staged(hosts: StagingHosts, context: Context) -> None:
    run_stager(hosts, context)
    fill(hosts)
    hosts.says({"hello": [{"hello": {"version": 1, "staging": "77", "lead": True}}]})
    with pytest.raises(NotReadyError, match="images is being staged; nothing was removed") as caught:
        remove_data(context, ["images"], dry_run=False, confirm=agree)
    assert "kit data stop images" in (caught.value.hint or "")
    assert hosts.files("gpu1")


def test_rm_of_what_kit_yaml_does_not_name_any_more_asks_the_hosts_stagers(
    hosts: StagingHosts, context: Context
) -> None:
    """A stager stays for some seconds after its last order."""
    run_stager(hosts, context)
    fill(hosts)
    without = replace(context, spec=replace(context.spec, data=()))
    for host in ("gpu1", "gpu2"):
        hosts.says({"hello": [{"hello": {"version": 1, "staging": "77", "lead": host == "gpu1"}}]}, host=host)
    with pytest.raises(NotReadyError, match="images is being staged; nothing was removed"):
        remove_data(without, ["images"], dry_run=False, confirm=agree)
    assert hosts.files("gpu1")
    assert hosts.files("gpu2")
    for host in ("gpu1", "gpu2"):
        hosts.says({"hello": [{"hello": {"version": 1, "staging": None, "lead": False}}]}, host=host)
    remove_data(without, ["images"], dry_run=False, confirm=agree)
    assert hosts.files("gpu1") == hosts.files("gpu2") == {}


def test_rm_refuses_while_a_run_is_active(
    hosts: StagingHosts, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(hosts)
    run = RunFolder(id="20261121-101500-3fa2", live=True)
    monkeypatch.setattr(far, "survey", lambda _transport, _cluster: (run,))
    with pytest.raises(NotReadyError, match="run 20261121-101500-3fa2 is active and can read images"):
        remove_data(context, ["images"], dry_run=False, confirm=agree)
    assert hosts.files("gpu1")


def test_rm_refuses_what_a_run_in_line_needs(hosts: StagingHosts, context: Context) -> None:
    fill(hosts)
    line = hosts.root("gpu1") / "opt/kit/lab/var/runs/.queue"
    line.mkdir(parents=True)
    for run, data in (("20261121-101500-3fa2", "images"), ("20261121-101500-3fa3", "old")):
        entry = {"id": run, "place": 1, "need": {"counts": [1], "hosts": ["gpu1"]}, "data": [data]}
        (line / f"{run}.json").write_text(json.dumps(entry))
    with pytest.raises(NotReadyError) as caught:
        remove_data(context, ["images"], dry_run=False, confirm=agree)
    text = "the run 20261121-101500-3fa2 waits in line and needs images; nothing was removed"
    assert caught.value.message == text
    assert "kit queue rm 20261121-101500-3fa2" in (caught.value.hint or "")
    assert hosts.files("gpu1")
    (line / "20261121-101500-3fa2.json").unlink()
    remove_data(context, ["images"], dry_run=False, confirm=agree)
    assert hosts.files("gpu1") == {}


def test_stop_ends_the_staging_that_runs(hosts: StagingHosts, context: Context) -> None:
    assert stop(context, "images").id == ""
    run_stager(hosts, context)
    assert stop(context, "images").id == ""
    hosts.says({"hello": [{"hello": {"version": 1, "staging": "77", "lead": True}}]})
    assert stop(context, "images").id == "77"
    assert hosts.heard()[-1] == {"op": "stop", "id": "77"}


# kit run --data, and plans


def test_a_run_stages_only_what_is_missing(hosts: StagingHosts, context: Context, source: Path) -> None:
    for host in ("gpu1", "gpu2"):
        summary(hosts.data(host), source=f"gpu2:{source}")
    assert not stage_missing(context, ["images"], ["gpu1", "gpu2"])
    assert not hosts.heard()
    (hosts.data("gpu2") / "staged.json").unlink()
    # Only the run's own hosts count.
    assert not stage_missing(context, ["images"], ["gpu1"])
    hosts.says({"stage": WHOLE})
    assert stage_missing(context, ["images"], ["gpu1", "gpu2"])
    assert [one["op"] for one in hosts.heard("gpu2")] == ["join"]


def test_a_run_stages_again_what_a_staging_that_it_watched_has_not_brought(
    hosts: StagingHosts, context: Context, source: Path
) -> None:
    """Another kit began it with an earlier from:. The run would read what that had."""
    run_stager(hosts, context)
    request = {"request": {"id": "77", "source": "s3://b/earlier", "limit": 0, "since": 1e9}}
    hosts.says({"hello": [{"hello": {"version": 1, "staging": "77", "lead": True}}], "watch": [request, *WHOLE]})

    class Ending(Remembering):
        """As soon as kit watches it, the other staging is about to end."""

        def report(self, event: Event) -> None:
            super().report(event)
            if isinstance(event, Note) and "already being staged" in event.text:
                hosts.says({"stage": WHOLE})

    context = context_of(hosts, Ending(), f"gpu2:{source}")
    assert stage_missing(context, ["images"], ["gpu1", "gpu2"])
    assert [one["op"] for one in hosts.heard("gpu1")][-3:] == ["watch", "join", "stage"]


def test_a_run_needs_only_its_own_hosts_and_the_head(
    hosts: StagingHosts, context: Context, reporter: Remembering, source: Path
) -> None:
    context = context_of(hosts, reporter, f"gpu1:{source}")
    for host in ("gpu1", "gpu2"):
        summary(hosts.data(host), source=f"gpu1:{source}")
    hosts.down.add("gpu2")
    assert not stage_missing(context, ["images"], ["gpu1"])
    with pytest.raises(UnreachableError) as caught:
        stage_missing(context, ["images"], ["gpu1", "gpu2"])
    assert caught.value.host == "gpu2"
    # A staging leaves that host out.
    (hosts.data("gpu1") / "staged.json").unlink()
    hosts.says({"stage": [{"done": {**DONE, "hosts": ["gpu1"]}}]})
    assert stage_missing(context, ["images"], ["gpu1"])
    (one,) = preview(context, [])
    assert (one.hosts, [*one.missed]) == (("gpu1",), ["gpu2"])
    hosts.down.add("gpu1")
    with pytest.raises(UnreachableError):
        preview(context, [])


def test_a_dry_run_shows_who_has_the_data(hosts: StagingHosts, context: Context, source: Path) -> None:
    summary(hosts.data("gpu1"), source=f"gpu2:{source}")
    (one,) = preview(context, [])
    assert (one.name, one.has, one.hosts, one.state) == ("images", ("gpu1",), ("gpu1", "gpu2"), "partly")
    assert one.folder == "/opt/kit/.data/lab/images"
    assert not hosts.heard()
