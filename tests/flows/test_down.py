"""kit down and a head that does not say whether a run is active."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kit.errors import AnswerError, Interrupted, KitError, NotReadyError, SlowError, StepError, UnreachableError
from kit.events import Note
from kit.flows.cluster import down as flow
from kit.flows.cluster.before import at_head, left_behind
from kit.flows.cluster.deploy import deploy
from kit.flows.cluster.down import down
from kit.model.host import Host
from kit.model.result import RunsResult
from kit.model.results import Survey
from kit.model.run import RunRecord
from kit.model.values import replace
from kit.remote.results import far
from kit.remote.ssh.transport import Completed
from tests.fakes.fleet import FakeTransport, Fleet
from tests.fakes.reporter import Remembering
from tests.fakes.vm import FakeVM, listed


def raising(error: Exception) -> Callable[..., Any]:
    def fails(*_: object) -> None:
        raise error

    return fails


def deployed(fleet: Fleet) -> list[str]:
    return [name for name, vm in fleet.vms.items() if vm.containers]


@pytest.mark.parametrize(
    "error",
    [
        SlowError("a command did not end within 600 s", host="gpu1"),
        AnswerError("kit cannot read its list of runs: the end is missing", host="gpu1"),
        StepError("its runs could not be read: sudo: a password is required", host="gpu1"),
    ],
)
def test_a_head_that_answers_otherwise_stops_down(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch, error: KitError
) -> None:
    deploy(fleet.context(reporter))
    monkeypatch.setattr(far, "survey", raising(error))
    with pytest.raises(StepError) as caught:
        down(fleet.context(reporter))
    assert caught.value.host == "gpu1"
    assert caught.value.message == f"kit cannot know whether a run is active: {error.message}; nothing was removed"
    assert str(caught.value.hint).endswith("kit down --force")
    assert deployed(fleet) == list(fleet.vms)
    assert fleet["gpu1"].locks == {}
    down(fleet.context(reporter), force=True)
    assert deployed(fleet) == []


def test_an_active_run_is_spared_and_has_its_owner(fleet: Fleet, reporter: Remembering) -> None:
    run = "20261121-101500-3fa2"
    # The head of the last deploy need not be the first host of this hosts file.
    odd = {"id": "20261121-101400-3fa2", "places": "odd"}
    fleet["gpu2"].runs = listed(({"id": run, "by": "anna@laptop"}, None), (odd, None), live=True)
    context = fleet.context(reporter)
    with pytest.raises(NotReadyError) as caught:
        flow.spare_runs(context, [run], [context.host("gpu2")])
    text = f"the run {run} of anna@laptop is active, and kit down would end it; nothing was removed"
    assert caught.value.message == text
    assert [warning.hint for warning in reporter.warnings] == ["look at the host: kit ssh gpu2"]
    with pytest.raises(NotReadyError, match=f"^the run {run} is active"):
        flow.spare_runs(context, [run])


def test_an_unknown_line_stops_down(fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(fleet.context(reporter))
    monkeypatch.setattr(flow, "listing", raising(SlowError("a command did not end within 30 s", host="gpu1")))
    with pytest.raises(StepError, match=r"kit cannot know whether a run waits in line: .*; nothing was removed"):
        down(fleet.context(reporter))
    assert deployed(fleet) == list(fleet.vms)


@pytest.mark.parametrize(
    "error", [UnreachableError("no SSH connection", host="gpu1"), NotReadyError("no node runs here", host="gpu1")]
)
def test_a_head_that_cannot_say_it_is_a_warning(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch, error: KitError
) -> None:
    deploy(fleet.context(reporter))
    monkeypatch.setattr(far, "survey", raising(error))
    down(fleet.context(reporter))
    assert deployed(fleet) == []
    (warned,) = reporter.warnings
    assert warned.text == f"gpu1: kit does not know whether a run is active, and goes on: {error.message}"


def test_an_unreachable_head_keeps_no_other_host(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    fleet["gpu1"].faults.add("unreachable")
    with pytest.raises(UnreachableError):
        down(fleet.context(reporter))
    assert deployed(fleet) == ["gpu1"]
    assert any("whether a run is active" in warned.text for warned in reporter.warnings)


def test_ctrl_c_ends_down(fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(fleet.context(reporter))
    monkeypatch.setattr(far, "survey", raising(Interrupted("interrupted")))
    with pytest.raises(Interrupted):
        down(fleet.context(reporter))
    assert deployed(fleet) == list(fleet.vms)


@pytest.mark.parametrize("state", ["running", "ended"])
def test_a_vm_without_python_is_asked_through_its_container(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch, state: Any
) -> None:
    deploy(fleet.context(reporter))
    run = RunRecord(id="20261121-101500-3fa2", cluster="lab", image="kit:1", command=("true",), places=(), state=state)
    monkeypatch.setattr(far, "survey", raising(far.NoPythonError("python3: not found", host="gpu1")))
    monkeypatch.setattr(flow, "listing", lambda _: RunsResult(cluster="lab", runs=(run,)))
    if state == "ended":
        down(fleet.context(reporter))
        assert deployed(fleet) == []
        return
    with pytest.raises(NotReadyError, match="3fa2 is active"):
        down(fleet.context(reporter))
    assert deployed(fleet) == list(fleet.vms)


def test_hosts_that_left_the_hosts_file_are_named_before_their_record_is_gone(
    fleet: Fleet, reporter: Remembering
) -> None:
    deploy(fleet.context(reporter))
    fewer = fleet.context(reporter, names=["gpu1", "gpu2", "gpu4"])
    assert left_behind(fewer) == ("gpu3",)
    (warned,) = reporter.warnings
    assert warned.text.startswith("gpu3 (10.0.0.3) is no longer in hosts, so kit down leaves its node")
    assert "kit --hosts FILE down" in str(warned.hint)
    assert down(fewer, left=("gpu3",)).left == ("gpu3",)
    assert deployed(fleet) == ["gpu3"]
    # The hint's command removes it.
    down(fleet.context(reporter, names=["gpu3"]))
    assert deployed(fleet) == []


def test_no_host_left_or_nobody_knows(fleet: Fleet, reporter: Remembering) -> None:
    assert left_behind(fleet.context(reporter)) == ()
    deploy(fleet.context(reporter))
    assert left_behind(fleet.context(reporter)) == ()
    fleet["gpu1"].files["/opt/kit/lab/cluster.json"] = (b"{", "600")
    assert left_behind(fleet.context(reporter, names=["gpu1", "gpu2"])) == ()
    fleet["gpu1"].faults.add("unreachable")
    assert left_behind(fleet.context(reporter, names=["gpu1", "gpu2"])) == ()
    assert reporter.warnings == []


def test_the_preview_names_hosts_that_did_not_say_which_runs_they_have() -> None:
    """kit said that the cluster has no runs."""
    survey = Survey(folders={"gpu2": ()}, failures={"gpu1": UnreachableError("no SSH connection", host="gpu1")})
    assert flow.preview("lab", survey, purge=False).unknown == ("gpu1",)


OTHER_ORDER = ["gpu3", "gpu2", "gpu1", "gpu4"]


def test_a_hosts_file_that_begins_with_another_host_leads_to_the_head_of_the_last_deploy(
    fleet: Fleet, reporter: Remembering
) -> None:
    """kit looked for active runs, the line and the lock on gpu3, and removed runs that wait in line on gpu1."""
    deploy(fleet.context(reporter))
    entry = {"id": "20261121-101500-3fa2", "np": 1, "place": 1, "need": {"counts": [1], "hosts": ["gpu1"]}}
    rows = [{"queued": entry, "reason": None}, {"end": True, "more": 0}]
    fleet["gpu1"].runs = "".join(f"{json.dumps(row)}\n" for row in rows)
    context = at_head(fleet.context(reporter, names=OTHER_ORDER), {})
    assert context.inventory.names == ("gpu1", "gpu3", "gpu2", "gpu4")
    assert reporter.of(Note)[-1].text == "gpu1 is the head of cluster lab, though hosts begins with gpu3"
    with pytest.raises(NotReadyError, match="3fa2 waits in line, and kit down would drop it"):
        down(context)
    assert deployed(fleet) == list(fleet.vms)
    down(context, force=True)
    assert deployed(fleet) == []


def test_the_first_host_is_the_head_if_no_other_host_is_known_to_be_it(fleet: Fleet, reporter: Remembering) -> None:
    context = fleet.context(reporter, names=OTHER_ORDER)
    assert at_head(context, {}) is context
    deploy(fleet.context(reporter))
    assert at_head(first := fleet.context(reporter), {}) is first
    assert at_head(alone := fleet.context(reporter, names=["gpu3"]), {}) is alone
    for name in ("gpu3", "gpu1"):
        fleet[name].faults.add("unreachable")
        assert at_head(context, {}) is context
        fleet[name].faults.clear()
    # The next deploy moves the head.
    deploy(context)
    assert at_head(context, {}) is context
    assert at_head(fleet.context(reporter), {}).inventory.names == ("gpu3", "gpu1", "gpu2", "gpu4")


def test_kit_does_not_wait_twice_for_a_host_that_does_not_answer(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    asked: list[str] = []

    def connect(host: Host) -> FakeTransport:
        asked.append(host.name)
        return FakeTransport(fleet[host.name])

    context = replace(fleet.context(reporter, names=OTHER_ORDER), connect=connect)
    for lost, hosts in (("gpu3", []), ("gpu2", ["gpu3", "gpu1", "gpu4"])):
        at_head(context, {lost: UnreachableError("no SSH connection", host=lost)})
        assert sorted(asked) == sorted(hosts)
        asked.clear()
    # One without Python answers.
    assert at_head(context, {"gpu3": far.NoPythonError("python3: not found")}).inventory.head.name == "gpu1"


RUN = "20261121-101500-3fa2"


@pytest.mark.parametrize("names", [["gpu3", "gpu4"], ["gpu4", "gpu3"]])
@pytest.mark.parametrize("deployed_first", [False, True])
def test_ranks_of_another_cluster_are_spared(
    fleet: Fleet, reporter: Remembering, names: list[str], deployed_first: bool
) -> None:
    """Both teams use the name lab, and gpu1, the head of the other team, is not in this hosts file."""
    deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu3"]))
    if deployed_first:
        # The line of gpu3 came into the hosts file after the deploy.
        deploy(fleet.context(reporter, names=["gpu4"]))
        names = ["gpu4", "gpu3"]
    fleet["gpu3"].ranks = [(RUN, 2, 41)]
    fleet.forget_changes()
    context = fleet.context(reporter, names=names)
    with pytest.raises(NotReadyError) as caught:
        down(context)
    assert caught.value.message == (
        "gpu3 runs ranks of a cluster called lab whose head is not in hosts; nothing was removed"
    )
    assert caught.value.hint == (
        "if it is another cluster, remove the host from hosts; otherwise wait until they end, or end them by: "
        "kit down --force"
    )
    assert fleet.changes == {}
    down(context, force=True)
    assert "gpu3" not in deployed(fleet)


def test_a_node_that_no_head_knows_and_has_no_ranks_is_removed(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    # One that does not answer fails in its turn, and keeps no other host.
    fleet["gpu4"].faults.add("unreachable")
    with pytest.raises(UnreachableError):
        down(fleet.context(reporter, names=["gpu3", "gpu4"]))
    assert deployed(fleet) == ["gpu1", "gpu2", "gpu4"]


def test_a_node_that_cannot_list_its_ranks_stops_down(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(fleet.context(reporter))
    monkeypatch.setattr(FakeVM, "_ranks", lambda *_: Completed(code=1, stdout=b"", stderr=b"cannot fork\n"))
    with pytest.raises(StepError, match=r"cannot know whether ranks run there: .* cannot fork; nothing was removed"):
        down(fleet.context(reporter, names=["gpu3"]))
    # The head has recorded its hosts, so none of them is asked.
    down(fleet.context(reporter))
    assert deployed(fleet) == []


def test_ranks_on_hosts_that_the_head_has_recorded_keep_nothing(fleet: Fleet, reporter: Remembering) -> None:
    """After its run was lost, a node can have ranks for a while. kit down has to end them."""
    deploy(fleet.context(reporter))
    fleet["gpu3"].ranks = [(RUN, 2, 41)]
    down(fleet.context(reporter))
    assert deployed(fleet) == []
