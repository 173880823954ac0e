"""kit deploy on VMs in memory: what it changes, what it leaves alone, and what it reports."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from kit.cli.text import cluster as cluster_text
from kit.cli.text import ps as text
from kit.errors import HostsFailed, KitError, NotReadyError, SlowError, StepError, UnreachableError
from kit.events import HostDone, Note, Phase, Warned
from kit.flows.cluster.deploy import deploy
from kit.flows.cluster.down import down, plan_down
from kit.flows.cluster.ps import ps
from kit.model.host import Host
from kit.model.plan import VERIFY, ComposeUp, Ship, WriteFile
from kit.model.values import replace
from kit.plan.cluster.record import from_text
from kit.remote.cluster import steps
from kit.remote.cluster.observe import runs_with_ranks
from kit.remote.ship.result import Shipped
from kit.remote.ssh.transport import Completed, Transport
from tests.fakes.fleet import Fleet
from tests.fakes.plans import steps_of
from tests.fakes.reporter import Remembering
from tests.fakes.vm import FakeVM, Fault, listed

WEB = {"web": {"from": "s3://corpus/web", "to": "/data/web"}}
STAGED = "/opt/kit/.data/lab/web/staged.json"


def services(fleet: Fleet) -> dict[str, list[str]]:
    return {name: [c.service for c in vm.containers] for name, vm in fleet.vms.items()}


ALL = {"gpu1": ["mpihead"], "gpu2": ["mpinode"], "gpu3": ["mpinode"], "gpu4": ["mpinode"]}


def test_a_first_deploy_and_then_nothing_to_do(fleet: Fleet, reporter: Remembering) -> None:
    result = deploy(fleet.context(reporter))
    assert result.changed
    assert services(fleet) == ALL
    assert sorted(fleet.shipped) == ["gpu1", "gpu2", "gpu3", "gpu4"]
    fleet.forget_changes()
    again = deploy(fleet.context(reporter))
    assert not again.changed
    assert again.plan.empty
    assert {h.status for h in again.hosts} == {"unchanged"}
    assert fleet.changes == {}


def test_a_dry_run_changes_nothing(fleet: Fleet, reporter: Remembering) -> None:
    result = deploy(fleet.context(reporter), dry_run=True)
    assert result.dry_run
    assert not result.changed
    assert fleet.changes == {}
    assert [type(step).__name__ for step in steps_of(result.plan, "gpu2")] == [
        "Ship", "WriteFile", "WriteFile", "WriteFile", "WriteFile", "WriteFile", "ComposeUp", "WaitSshd",
    ]  # fmt: skip


def test_private_keys_lie_on_their_own_host_alone(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    private = [
        (name, path)
        for name, vm in fleet.vms.items()
        for path, (content, mode) in vm.files.items()
        if b"PRIVATE KEY" in content and mode == "600"
    ]
    assert len(private) == 5
    assert ("gpu1", "/opt/kit/lab/ssh/id_ed25519") in private
    contents = {vm.files["/opt/kit/lab/ssh/host_ed25519"][0] for vm in fleet.vms.values()}
    assert len(contents) == 4
    everywhere = [p for vm in fleet.vms.values() for p, (c, m) in vm.files.items() if b"PRIVATE" in c and m != "600"]
    assert everywhere == []


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        ("unreachable", UnreachableError, "no SSH connection"),
        ("sudo", StepError, "cannot become it"),
        ("no engine", StepError, "no Docker Engine answers"),
        ("disk full", StepError, "MiB are free for the engine"),
    ],
)
def test_a_host_that_cannot_take_part_stops_all_before_anything_is_changed(
    fleet: Fleet, reporter: Remembering, fault: Fault, kind: type[KitError], message: str
) -> None:
    fleet["gpu3"].faults.add(fault)
    with pytest.raises(kind) as caught:
        deploy(fleet.context(reporter))
    assert caught.value.host == "gpu3"
    assert message in caught.value.message
    assert caught.value.hint
    assert fleet.changes == {}


def test_faults_of_several_hosts_are_reported_together(fleet: Fleet, reporter: Remembering) -> None:
    fleet["gpu2"].faults.add("no engine")
    fleet["gpu4"].others_listen.add(("10.0.0.4", 33))
    with pytest.raises(HostsFailed) as caught:
        deploy(fleet.context(reporter))
    assert [failure.host for failure in caught.value.failures] == ["gpu2", "gpu4"]
    assert "nothing was changed" in caught.value.message
    assert fleet.changes == {}


def test_a_new_port_that_another_program_has(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    fleet.forget_changes()
    with pytest.raises(HostsFailed) as caught:
        deploy(fleet.context(reporter, ssh_port=22))
    assert {failure.message for failure in caught.value.failures} == {"port 22 is taken (0.0.0.0:22)"}
    assert fleet.changes == {}
    # A free one. A deploy that ended before the head had its record has left nodes on the new port.
    fleet["gpu3"].faults.add("compose fails")
    with pytest.raises(StepError):
        deploy(fleet.context(reporter, ssh_port=44))
    fleet["gpu3"].faults.clear()
    record = fleet["gpu1"].files["/opt/kit/lab/cluster.json"]
    fleet["gpu1"].files["/opt/kit/lab/cluster.json"] = (record[0].replace(b": 44", b": 33"), *record[1:])
    deploy(fleet.context(reporter, ssh_port=44))
    assert {container.port for vm in fleet.vms.values() for container in vm.containers} == {44}


def test_nobody_waits_for_a_build_to_hear_of_a_fault(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_look_for_the_image(monkeypatch)
    fleet["gpu2"].faults.add("no engine")
    with pytest.raises(StepError):
        deploy(fleet.context(reporter))


@pytest.mark.parametrize(
    ("fault", "message"), [("compose fails", "docker compose up failed"), ("sshd dies", "sshd does not answer")]
)
def test_one_host_fails_the_others_are_done_and_the_next_deploy_does_the_rest(
    fleet: Fleet, reporter: Remembering, fault: Fault, message: str
) -> None:
    fleet["gpu3"].faults.add(fault)
    with pytest.raises(StepError) as caught:
        deploy(fleet.context(reporter))
    assert caught.value.host == "gpu3"
    assert message in caught.value.message
    assert reporter.failed == ["gpu3"]
    assert {name: here for name, here in services(fleet).items() if name != "gpu3"} == {
        name: here for name, here in ALL.items() if name != "gpu3"
    }
    fleet["gpu3"].faults.clear()
    fleet.forget_changes()
    result = deploy(fleet.context(reporter))
    assert services(fleet) == ALL
    # The check had not come: it comes now, and the head says that it passed.
    assert fleet["gpu1"].changed == ["write verified"]
    assert set(fleet.changes) <= {"gpu1", "gpu3"}
    assert fleet.shipped == []
    assert {h.host for h in result.hosts if h.status == "ok"} <= {"gpu3"}
    assert deploy(fleet.context(reporter)).plan.empty


def test_a_connection_that_breaks_in_the_middle(fleet: Fleet, reporter: Remembering) -> None:
    """Files are there, the container is not yet: the next deploy does that, with the same keys."""
    fleet["gpu2"].faults.add("compose fails")
    with pytest.raises(StepError):
        deploy(fleet.context(reporter))
    before = fleet["gpu2"].files["/opt/kit/lab/ssh/host_ed25519"]
    fleet["gpu2"].faults.clear()
    fleet.forget_changes()
    deploy(fleet.context(reporter))
    assert fleet.changes == {"gpu1": ["write verified"], "gpu2": ["up mpinode"]}
    assert fleet["gpu2"].files["/opt/kit/lab/ssh/host_ed25519"] == before


def test_an_engine_that_did_not_begin_is_asked_again(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kit.remote.engine.hiccups.PAUSE_S", 0.0)
    for name in ("gpu1", "gpu3"):
        fleet[name].faults.add("engine hiccups")
    deploy(fleet.context(reporter))
    assert services(fleet) == ALL
    assert fleet["gpu1"].hiccups == ["compose", "exec"]
    assert fleet["gpu3"].hiccups == ["compose"]


def test_a_firewall_is_found_by_the_head(fleet: Fleet, reporter: Remembering) -> None:
    fleet["gpu4"].faults.add("firewall")
    with pytest.raises(StepError) as caught:
        deploy(fleet.context(reporter))
    assert caught.value.host == "gpu1"
    assert "cannot reach gpu4 by ssh" in caught.value.message
    assert "port" in str(caught.value.hint)


def test_a_head_that_comes_from_another_address_is_no_firewall(fleet: Fleet, reporter: Remembering) -> None:
    """A node accepts the head's key only from the head's address in the cluster's network."""
    fleet["gpu4"].faults.add("another source")
    with pytest.raises(StepError, match=r"cannot reach gpu4 by ssh: .*Permission denied \(publickey\)") as caught:
        deploy(fleet.context(reporter))
    assert caught.value.hint == (
        "gpu4 accepts the key of gpu1 only from gpu1's address in the cluster's network; see from which it came: "
        "kit logs gpu4; write that one as internal= of gpu1 in the hosts file, or correct the route; then: kit deploy"
    )


@pytest.mark.parametrize("before", ["nothing", "a cluster that passed"])
def test_a_check_that_failed_is_made_again_until_it_passes(fleet: Fleet, reporter: Remembering, before: str) -> None:
    """Nothing else is left to do after the first failure, and yet kit does not say that all is well."""
    if before != "nothing":
        deploy(fleet.context(reporter))
        fleet["gpu4"].containers.clear()
    fleet["gpu4"].faults.add("firewall")
    for _ in range(3):
        with pytest.raises(StepError, match="cannot reach gpu4 by ssh"):
            deploy(fleet.context(reporter))
    assert services(fleet) == ALL
    fleet["gpu4"].faults.clear()
    fleet.forget_changes()
    mended = deploy(fleet.context(reporter))
    assert list(mended.plan.steps(without=VERIFY)) == []
    assert fleet.changes == {"gpu1": ["write verified"]}
    fleet.forget_changes()
    assert deploy(fleet.context(reporter)).plan.empty
    assert fleet.changes == {}


def test_a_lost_host_key_is_recreated_and_pinned(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    del fleet["gpu3"].files["/opt/kit/lab/ssh/host_ed25519"]
    fleet.forget_changes()
    deploy(fleet.context(reporter))
    assert "up mpinode" in fleet["gpu3"].changed
    assert fleet["gpu1"].changed == ["write ssh/known_hosts", "delete /opt/kit/lab/verified", "write verified"]
    assert set(fleet.changes) == {"gpu1", "gpu3"}


def test_a_lost_client_key_is_recreated_without_a_restart(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    del fleet["gpu1"].files["/opt/kit/lab/ssh/id_ed25519"]
    fleet.forget_changes()
    deploy(fleet.context(reporter))
    assert not any("up" in change.split() for changes in fleet.changes.values() for change in changes)
    assert fleet["gpu2"].changed == ["write ssh/authorized_keys"]


def test_another_head(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    deploy(fleet.context(reporter, names=["gpu2", "gpu1", "gpu3", "gpu4"]))
    assert services(fleet) == {**ALL, "gpu1": ["mpinode"], "gpu2": ["mpihead"]}
    assert "/opt/kit/lab/ssh/id_ed25519" not in fleet["gpu1"].files
    assert deploy(fleet.context(reporter, names=["gpu2", "gpu1", "gpu3", "gpu4"])).plan.empty


@pytest.mark.parametrize("network", ["auto", "10.0.0.0/24"])
def test_a_host_more_leaves_the_others_running(fleet: Fleet, reporter: Remembering, network: str) -> None:
    def record() -> bytes:
        return fleet["gpu1"].files["/opt/kit/lab/network"][0]

    deploy(fleet.context(reporter, names=["gpu1", "gpu2"], network=network))
    before = record()
    fleet.forget_changes()
    deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu4"], network=network))
    assert (record() != before) == (network == "auto")
    assert not any(change.startswith("up") for change in fleet["gpu1"].changed)
    assert fleet["gpu2"].changed == []
    assert services(fleet)["gpu4"] == ["mpinode"]


def test_a_host_that_left_is_reported(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    assert reporter.warnings == []
    fleet.forget_changes()
    deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu4"]))
    (warned,) = reporter.warnings
    assert warned.text == "gpu3 (10.0.0.3) is no longer in hosts, and still runs its node"
    # Its address here may be unreachable from this machine, and does not say which user and port.
    former = "write its former line of the hosts file alone into a file"
    assert warned.hint == f"to remove it: {former}, then: kit --hosts FILE down"
    assert fleet["gpu3"].changed == []
    # Once: the record of the cluster has no gpu3 any more.
    deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu4"]))
    assert len(reporter.warnings) == 1
    deploy(fleet.context(reporter, names=["gpu1"]))
    assert reporter.warnings[1:] == [
        Warned(
            text="gpu[2,4] (10.0.0.[2,4]) are no longer in hosts, and still run their nodes",
            hint="to remove them: write their former lines of the hosts file alone into a file, then: "
            "kit --hosts FILE down",
        )
    ]


def test_an_older_kit_warns_before_it_replaces_what_a_newer_one_deployed(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("kit.plan.cluster.nodes.__version__", "999.0.0")
        deploy(fleet.context(reporter))
    assert reporter.warnings == []
    deploy(fleet.context(reporter))
    (warned,) = reporter.warnings
    assert warned.text.startswith("kit 999.0.0 deployed this cluster, and kit ")
    assert warned.hint == "update kit on this machine"
    # Once: by now, this kit has deployed.
    deploy(fleet.context(reporter))
    assert len(reporter.warnings) == 1


def test_a_host_that_left_is_reported_where_the_head_moves_too(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    deploy(fleet.context(reporter, names=["gpu2", "gpu1", "gpu4"]))
    assert [w.text.split()[0] for w in reporter.warnings] == ["gpu3", "the"]


def test_another_head_is_reported_before_it_moves(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    others = fleet.context(reporter, names=["gpu2", "gpu1", "gpu3", "gpu4"])
    planned = deploy(others, dry_run=True)
    (change,) = planned.changes
    assert (change.kind, change.before, change.after) == ("head", "gpu1", "gpu2")
    (warned,) = reporter.warnings
    assert warned.text.startswith("the head moves from gpu1 to gpu2: earlier runs")
    assert "kit pull RUN" in str(warned.hint)
    assert deploy(others).changes == (change,)
    # Once: by now, gpu2 has the record.
    assert deploy(others).changes == ()


def test_a_hand_made_folder_is_refused_before_anything_is_changed(fleet: Fleet, reporter: Remembering) -> None:
    fleet["gpu2"].files |= {f"/opt/kit/lab/{path}": (b"1", "644") for path in ("compose.yaml", "train.py")}
    with pytest.raises(StepError) as caught:
        deploy(fleet.context(reporter))
    assert (caught.value.host, fleet.changes) == ("gpu2", {})
    assert caught.value.message == "/opt/kit/lab is not kit's: it has train.py, and nothing that kit makes"
    assert "set another name: in kit.yaml" in str(caught.value.hint)


def test_another_cluster_of_the_same_name_is_refused_before_anything_is_changed(
    fleet: Fleet, reporter: Remembering
) -> None:
    deploy(fleet.context(reporter, names=["gpu3", "gpu4"]))
    deploy(fleet.context(reporter, names=["gpu1", "gpu2"]))
    fleet.forget_changes()
    for names in (["gpu1", "gpu2", "gpu4"], ["gpu1", "gpu2", "gpu3"]):
        with pytest.raises(StepError) as caught:
            deploy(fleet.context(reporter, names=names))
        assert (caught.value.host, fleet.changes) == (names[-1], {})
        assert "/opt/kit/lab has other keys: it belongs to another cluster called lab" in caught.value.message
    # The hint's command.
    down(fleet.context(reporter, names=["gpu4"]))
    assert deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu4"])).changed


def test_a_host_that_missed_new_keys_may_be_of_this_cluster(fleet: Fleet, reporter: Remembering) -> None:
    """gpu3 was down during kit down, which the other hosts did."""
    deploy(fleet.context(reporter))
    two = fleet.context(reporter, names=["gpu1", "gpu2"])
    down(two)
    deploy(two)
    with pytest.raises(StepError) as caught:
        deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu3"]))
    assert caught.value.message.endswith("or is left from an earlier deploy of this one")
    assert "what runs made there stays" in str(caught.value.hint)
    down(fleet.context(reporter, names=["gpu3"]))
    assert deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu3"])).changed


def test_a_host_that_left_and_comes_back_is_not_foreign(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    deploy(fleet.context(reporter, names=["gpu1", "gpu2"]))
    assert deploy(fleet.context(reporter)).changed


def test_an_interrupted_first_deploy_is_not_foreign(fleet: Fleet, reporter: Remembering) -> None:
    fleet["gpu1"].files["/opt/kit/lab/cluster.json.a1B2c3"] = (b"{", "600")
    fleet["gpu2"].files["/opt/kit/lab/compose.yaml"] = (b"1", "600")
    assert deploy(fleet.context(reporter)).changed


def test_a_machine_that_was_replaced_is_reported(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    fleet["gpu3"].files.clear()
    fleet["gpu3"].containers.clear()
    (change,) = deploy(fleet.context(reporter)).changes
    assert (change.kind, change.host) == ("replaced", "gpu3")
    assert deploy(fleet.context(reporter)).changes == ()


def test_a_host_that_the_last_deploy_did_not_reach_is_no_other_machine(fleet: Fleet, reporter: Remembering) -> None:
    fleet["gpu3"].faults.add("disk full")
    with pytest.raises(KitError):
        deploy(fleet.context(reporter))
    fleet["gpu3"].faults.clear()
    assert deploy(fleet.context(reporter)).changes == ()


def test_a_host_more_that_a_failed_deploy_did_not_reach_is_no_other_machine(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of the deploy before it had passed, for other hosts."""
    deploy(fleet.context(reporter, names=["gpu1", "gpu2"]))
    fleet.forget_changes()
    with monkeypatch.context() as patch:
        lost = UnreachableError("no SSH connection", host="gpu3")
        patch.setattr(steps, "ship", lambda *_, **__: Shipped(failures={"gpu3": lost}))
        with pytest.raises(UnreachableError):
            deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu3"]))
    assert fleet.changes["gpu1"][:2] == ["delete /opt/kit/lab/verified", "write cluster.json"]
    assert "gpu3" not in fleet.changes
    again = deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu3"]))
    assert again.changes == ()
    assert reporter.warnings == []
    assert deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu3"])).plan.empty


def test_a_host_with_another_name_did_not_leave(fleet: Fleet, reporter: Remembering) -> None:
    """`kit down` at its address would take the cluster's own node off."""
    deploy(fleet.context(reporter))
    vm = fleet.vms.pop("gpu4")
    vm.host = replace(vm.host, name="new4")
    fleet.vms["new4"] = vm
    deploy(fleet.context(reporter))
    assert reporter.warnings == []


@pytest.mark.parametrize("record", [b"{", b'{"kit": 99}'])
def test_a_record_that_cannot_be_read_is_rewritten(fleet: Fleet, reporter: Remembering, record: bytes) -> None:
    deploy(fleet.context(reporter))
    good = fleet["gpu1"].files["/opt/kit/lab/cluster.json"]
    fleet["gpu1"].files["/opt/kit/lab/cluster.json"] = (record, "644")
    deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu3", "gpu4"]))
    assert fleet["gpu1"].files["/opt/kit/lab/cluster.json"] == good
    assert reporter.warnings == []


def test_a_deploy_names_the_settings_of_another_person_that_it_replaces(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kit.flows.cluster.change.operator", lambda: "anna@laptop")
    deploy(fleet.context(reporter, env={"A": "1"}))
    notes = [event.text for event in reporter.events if isinstance(event, Note)]
    assert not [text for text in notes if "differs" in text]
    deploy(fleet.context(reporter, shm_size="2gb"), dry_run=True)
    (text,) = [event.text for event in reporter.events if isinstance(event, Note) and "differs" in event.text]
    assert re.fullmatch(
        r"kit.yaml differs from the last deploy, by anna@laptop at \S+Z \(deployed → now\): .*env.A: removed.*", text
    )
    # Who it was is not needed.
    fleet["gpu1"].audits.clear()
    deploy(fleet.context(reporter, shm_size="2gb"))
    text = [event.text for event in reporter.events if isinstance(event, Note) and "differs" in event.text][-1]
    assert text.startswith("kit.yaml differs from the last deploy (deployed → now): ")


def test_a_run_that_goes_on_is_spared(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    fleet.forget_changes()
    fleet["gpu1"].living = ["20261121-101500-3fa2"]
    # What touches no container is done.
    assert not deploy(fleet.context(reporter)).changed
    with pytest.raises(NotReadyError) as caught:
        deploy(fleet.context(reporter, env={"A": "1"}))
    assert "20261121-101500-3fa2 is active" in caught.value.message
    # Without an id, kit stop stops no run of another person.
    assert caught.value.hint == "wait for it (kit wait), stop it (kit stop ID), or end it by: kit deploy --force"
    fleet["gpu1"].living.append("20261121-101500-4fa2")
    fleet["gpu1"].runs = listed(({"id": "20261121-101500-3fa2", "by": "anna@laptop"}, None), live=True)
    with pytest.raises(NotReadyError) as caught:
        deploy(fleet.context(reporter, env={"A": "1"}))
    runs = "the runs 20261121-101500-3fa2 of anna@laptop, 20261121-101500-4fa2 are active"
    assert caught.value.message == f"{runs}, and this deploy would end them; nothing was changed"
    assert fleet.changes == {}
    assert deploy(fleet.context(reporter, env={"A": "1"}), dry_run=True).plan.rounds
    assert fleet.changes == {}
    # It prints the plan, and says that the deploy refuses it.
    (warned,) = reporter.warnings
    assert (warned.text, warned.hint) == (f"{runs}, and this deploy would end them", caught.value.hint)
    assert not deploy(fleet.context(reporter), dry_run=True).plan.rounds
    assert reporter.warnings == [warned]
    assert deploy(fleet.context(reporter, env={"A": "1"}), force=True).changed
    assert any("up mpihead" in changes for changes in fleet.changes.values())


def deployed_without_images(fleet: Fleet, reporter: Remembering) -> None:
    """Make a cluster to whose hosts the next deploy must ship the image."""
    deploy(fleet.context(reporter))
    for vm in fleet.vms.values():
        vm.images.clear()
    fleet.forget_changes()


def test_a_run_that_begins_while_the_image_ships_is_spared(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed_without_images(fleet, reporter)

    def ship(*words: Any, **more: Any) -> Shipped:
        fleet["gpu1"].living = ["20261121-101500-3fa2"]
        return fleet.ship(*words, **more)

    monkeypatch.setattr(steps, "ship", ship)
    with pytest.raises(NotReadyError, match=r"3fa2 is active, and .* would end it; no container was changed") as caught:
        deploy(fleet.context(reporter, env={"A": "1"}))
    assert "--force" in str(caught.value.hint)
    assert {change.split()[0] for changes in fleet.changes.values() for change in changes} == {"ship"}
    for vm in fleet.vms.values():
        vm.images.clear()
    fleet["gpu1"].living = []
    assert deploy(fleet.context(reporter, env={"A": "1"}), force=True).changed
    assert "up mpihead" in fleet.changes["gpu1"]


def test_a_deploy_that_cannot_know_of_runs_ends_none(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed_without_images(fleet, reporter)

    def ship(*words: Any, **more: Any) -> Shipped:
        shipped = fleet.ship(*words, **more)
        fleet["gpu1"].faults.add("disk full")
        return shipped

    monkeypatch.setattr(steps, "ship", ship)
    with pytest.raises(StepError, match="kit cannot know whether a run is active: sh: out of memory"):
        deploy(fleet.context(reporter, env={"A": "1"}))
    assert {change.split()[0] for changes in fleet.changes.values() for change in changes} == {"ship"}


def test_the_head_does_not_move_away_from_its_line(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["gpu1", "gpu2"]
    deploy(fleet.context(reporter, names=names))
    fleet.forget_changes()
    fleet["gpu1"].waiting = ["20261121-101500-3fa2", "20261121-101501-3fa2"]
    # Whatever else changes, the line goes on.
    assert deploy(fleet.context(reporter, names=names, env={"A": "1"})).changed
    fleet.forget_changes()
    with pytest.raises(NotReadyError) as caught:
        deploy(fleet.context(reporter, names=names[::-1], env={"A": "1"}))
    assert caught.value.message == (
        "2 runs, 20261121-101500-3fa2 first, wait in line on gpu1, and this deploy makes gpu2 the head; "
        "nothing was changed"
    )
    assert str(caught.value.hint).startswith("move the line to gpu2: kit deploy --force; or, ")
    assert fleet.changes == {}
    assert reporter.warnings == []
    moved = fleet.context(reporter, names=names[::-1], env={"A": "1"})
    deploy(moved, dry_run=True)
    line, head = reporter.warnings[-2:]
    assert line.text.endswith("kit deploy --force moves the line to gpu2")
    assert head.text.startswith("the head moves from gpu1 to gpu2")
    asked: list[str] = []

    def fails(_: object, old: Host) -> int:
        asked.append(old.name)
        raise StepError("it hangs", host=old.name)

    monkeypatch.setattr("kit.flows.queue.move.move_line", fails)
    deploy(moved, force=True)
    assert reporter.warnings[-1].text == (
        "2 runs, 20261121-101500-3fa2 first, wait in line on gpu1, and could not be moved to gpu2, so they do not "
        "start: gpu1: it hangs"
    )
    # The next deploy tries again, and needs no --force: the head is gpu2 already.
    monkeypatch.setattr("kit.flows.queue.move.move_line", lambda *_: 2)
    assert not deploy(moved).changed
    assert asked == ["gpu1"]
    assert "moved 2 waiting runs from gpu1 to gpu2" in [note.text for note in reporter.of(Note)]


def test_cordons_follow_the_head_without_force(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(fleet.context(reporter, names=["gpu1", "gpu2"]))
    fleet["gpu1"].cordoned = True
    moved: list[str] = []

    def move(_: object, old: Host) -> int:
        moved.append(old.name)
        return 0

    monkeypatch.setattr("kit.flows.queue.move.move_line", move)
    assert not deploy(fleet.context(reporter, names=["gpu1", "gpu2"])).changed
    deploy(fleet.context(reporter, names=["gpu2", "gpu1"]), dry_run=True)
    (head,) = reporter.warnings
    assert (moved, head.text[:22]) == ([], "the head moves from gp")
    reporter.events.clear()
    assert deploy(fleet.context(reporter, names=["gpu2", "gpu1"])).changed
    assert moved == ["gpu1"]
    assert "moved the cordons from gpu1 to gpu2" in [note.text for note in reporter.of(Note)]
    assert reporter.warnings == [head]


def test_a_head_that_left_the_hosts_file_is_named_with_what_it_has(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu3"]))
    assert reporter.warnings == []
    deploy(fleet.context(reporter, names=["gpu2", "gpu3"]))
    assert [warning.text for warning in reporter.warnings] == [
        "gpu[2-3] have nodes of the cluster, and no host has its record, so the earlier head is not in the hosts file: "
        "its runs, and those that wait in line there, stay on its disk, and are lost with it"
    ]
    hint = str(reporter.warnings[0].hint)
    assert hint.startswith(
        "if this is another cluster, set another name: in kit.yaml; if the earlier head still answers"
    )


def asked_for_ranks(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the hosts whose ranks kit lists, in a list that grows."""
    asked: list[str] = []

    def ranks(transport: Transport, *, cluster: str) -> frozenset[str]:
        assert cluster == "lab"
        asked.append(transport.host.name)
        return runs_with_ranks(transport, cluster=cluster)

    monkeypatch.setattr("kit.flows.cluster.others.runs_with_ranks", ranks)
    return asked


@pytest.mark.parametrize("orchestrator", ["compose", "swarm"])
@pytest.mark.parametrize("names", [["gpu3", "gpu4"], ["gpu4", "gpu3"]])
def test_ranks_of_another_cluster_are_spared(
    fleet: Fleet, reporter: Remembering, names: list[str], orchestrator: str
) -> None:
    """Both teams use the name lab. The record and the active run are on gpu1, which the second hosts file lacks."""
    deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu3"]))
    fleet["gpu1"].living = ["20261121-101500-3fa2"]
    fleet["gpu3"].ranks = [("20261121-101500-3fa2", 2, 41), ("20261121-101500-3fa2", 2, 42)]
    fleet.forget_changes()
    context = fleet.context(reporter, names=names, orchestrator=orchestrator)
    with pytest.raises(NotReadyError) as caught:
        deploy(context)
    text = "gpu3 runs ranks of a cluster called lab whose head is not in hosts"
    assert caught.value.message == f"{text}; nothing was changed"
    assert caught.value.hint == (
        "if it is another cluster, set another name: in kit.yaml; if its head is lost: kit deploy --force"
    )
    assert not reporter.warnings
    assert deploy(context, dry_run=True).plan.rounds
    assert reporter.warnings[0].text == f"{text}, and this deploy would end them"
    assert reporter.warnings[0].hint == caught.value.hint
    assert fleet.changes == {}
    assert deploy(context, force=True).changed


def test_a_host_with_a_node_that_cannot_list_its_ranks_is_not_taken(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu3"]))
    monkeypatch.setattr(FakeVM, "_ranks", lambda *_: Completed(code=1, stdout=b"", stderr=b"cannot fork\n"))
    fleet.forget_changes()
    with pytest.raises(StepError, match="kit cannot know whether ranks run here: cannot fork") as caught:
        deploy(fleet.context(reporter, names=["gpu4", "gpu3"]))
    assert caught.value.host == "gpu3"
    assert fleet.changes == {}


def test_ranks_of_another_cluster_that_start_while_the_image_ships_are_spared(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu3"]))
    fleet["gpu3"].images.clear()
    fleet.forget_changes()

    def ship(*words: Any, **more: Any) -> Shipped:
        fleet["gpu3"].ranks = [("20261121-101500-3fa2", 2, 41)]
        return fleet.ship(*words, **more)

    monkeypatch.setattr(steps, "ship", ship)
    with pytest.raises(NotReadyError, match=r"^gpu3 runs ranks of a cluster called lab .*; no container was changed"):
        deploy(fleet.context(reporter, names=["gpu3", "gpu4"]))
    assert not any(change.startswith("up ") for changes in fleet.changes.values() for change in changes)


def test_only_a_node_that_no_head_knows_is_asked_for_ranks(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asked_for_ranks(fleet, monkeypatch)
    deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu3"]))
    # Another setting, a moved head and a host more.
    deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu3"], shm_size="2gb"))
    deploy(fleet.context(reporter, names=["gpu2", "gpu1", "gpu3"]))
    deploy(fleet.context(reporter, names=["gpu2", "gpu1", "gpu3", "gpu4"]))
    assert asked == []
    # A host that left while a run was active, and comes back: the head knows the run.
    fleet["gpu2"].living = ["20261121-101500-3fa2"]
    fleet["gpu4"].ranks = [("20261121-101500-3fa2", 2, 41)]
    deploy(fleet.context(reporter, names=["gpu2", "gpu1", "gpu3"]), force=True)
    deploy(fleet.context(reporter, names=["gpu2", "gpu1", "gpu3", "gpu4"]))
    assert set(asked) == {"gpu4"}
    # Without ranks, a cluster whose head was lost is deployed as before.
    fleet["gpu4"].ranks = []
    assert deploy(fleet.context(reporter, names=["gpu1", "gpu3", "gpu4"])).changed


def test_a_host_more_ends_no_run(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter, names=["gpu1", "gpu2"], network="10.0.0.0/24"))
    fleet.forget_changes()
    fleet["gpu1"].living = ["20261121-101500-3fa2"]
    assert deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu3"], network="10.0.0.0/24")).changed
    assert "up mpinode" in fleet.changes["gpu3"]


def test_a_host_more_with_a_node_of_another_cluster_ends_no_run(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter, names=["gpu1", "gpu2"]))
    deploy(fleet.context(reporter, names=["gpu3"], name="other", ssh_port=34))
    fleet["gpu1"].living = ["20261121-101500-3fa2"]
    assert deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu3"])).changed
    assert len(fleet["gpu3"].containers) == 2


def lease(run: str, *hosts: str) -> str:
    """Return the line of a run that holds a slot on each of these hosts."""
    return json.dumps({"id": run, "places": [{"node": host, "slots": [0]} for host in hosts]})


def test_a_host_less_spares_the_run_that_uses_it(fleet: Fleet, reporter: Remembering) -> None:
    """The head's known_hosts would lose the host, so the run's supervisor could not reach its ranks again."""
    deploy(fleet.context(reporter))
    runs = ["20261121-101500-3fa2", "20261121-101500-4fa2"]
    fleet["gpu1"].living = runs
    fleet["gpu1"].runs = listed(({"id": runs[0], "by": "anna@laptop"}, None), live=True)
    fleet["gpu1"].slots = [lease(runs[0], "gpu1", "gpu3"), lease(runs[1], "gpu1", "gpu2")]
    fleet.forget_changes()
    less = fleet.context(reporter, names=["gpu1", "gpu2", "gpu4"])
    run = f"the run {runs[0]} of anna@laptop on gpu3 is active"
    text = f"{run}, and this deploy would end it: gpu3 is no longer in hosts"
    with pytest.raises(NotReadyError) as caught:
        deploy(less)
    assert caught.value.message == f"{text}; nothing was changed"
    assert caught.value.hint == (
        "put gpu3 back into hosts, or wait for it (kit wait), stop it (kit stop ID), or end it by: kit deploy --force"
    )
    assert not deploy(less, dry_run=True).changed
    assert reporter.warnings[-1] == Warned(text=text, hint=caught.value.hint)
    assert fleet.changes == {}
    # No run uses gpu4.
    assert deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu3"])).changed
    assert deploy(less, force=True).changed


def test_ranks_that_somebody_started_by_hand_may_use_a_host_that_leaves(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    fleet["gpu1"].living = ["by-hand-7"]
    with pytest.raises(NotReadyError, match=r"by-hand-7 is active, and .* may end it: gpu\[3-4\] are no longer"):
        deploy(fleet.context(reporter, names=["gpu1", "gpu2"]))
    # Without its container, the head has no active run.
    fleet["gpu1"].containers.clear()
    assert deploy(fleet.context(reporter, names=["gpu1", "gpu2"])).changed


def test_a_run_that_begins_on_a_host_that_leaves_while_the_image_ships_is_spared(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed_without_images(fleet, reporter)

    def ship(*words: Any, **more: Any) -> Shipped:
        fleet["gpu1"].living = ["20261121-101500-3fa2"]
        fleet["gpu1"].slots = [lease("20261121-101500-3fa2", "gpu3")]
        return fleet.ship(*words, **more)

    monkeypatch.setattr(steps, "ship", ship)
    with pytest.raises(NotReadyError, match=r"on gpu3 is active, .*: gpu3 is no longer in hosts; no container"):
        deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu4"]))
    assert {change.split()[0] for changes in fleet.changes.values() for change in changes} == {"ship"}


def test_only_what_is_missing_is_shipped(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    tag = next(iter(fleet["gpu2"].images))
    del fleet["gpu2"].images[tag]
    fleet.forget_changes()
    result = deploy(fleet.context(reporter))
    assert fleet.shipped == ["gpu2"]
    assert [(host, type(step)) for host, step in result.plan.steps(without=VERIFY)] == [("gpu2", Ship)]


def test_down_leaves_nothing_and_deploy_begins_again(fleet: Fleet, reporter: Remembering) -> None:
    context = fleet.context(reporter)
    deploy(context)
    first = fleet["gpu1"].files["/opt/kit/lab/ssh/id_ed25519"]
    removed = down(context).removed
    assert removed["gpu1"] == ("container kit-lab-mpihead", "folder /opt/kit/lab")
    assert all(vm.files == {} and vm.containers == [] for vm in fleet.vms.values())
    assert all(vm.images for vm in fleet.vms.values())
    result = deploy(context)
    assert not any(isinstance(step, Ship) for _, step in result.plan.steps())
    assert any(isinstance(s, WriteFile) and s.path == "ssh/id_ed25519" for s in steps_of(result.plan, "gpu1"))
    assert fleet["gpu1"].files["/opt/kit/lab/ssh/id_ed25519"] != first


def test_down_with_images_and_twice(fleet: Fleet, reporter: Remembering) -> None:
    # With other packages, the image has another tag.
    context, earlier = (fleet.context(reporter, image={"pip": list(words)}) for words in (["tqdm", "wandb"], ["tqdm"]))
    deploy(earlier)
    deploy(context)
    assert len(fleet["gpu2"].images) == 2
    assert sum(line.startswith("image ") for line in down(context, images=True).removed["gpu2"]) == 2
    assert all(vm.images == {} for vm in fleet.vms.values())
    assert down(context, images=True).removed == dict.fromkeys(fleet.vms, ())


def test_the_plan_of_down_contacts_no_host(fleet: Fleet, reporter: Remembering) -> None:
    context = fleet.context(reporter)
    deploy(context)
    fleet.forget_changes()
    for vm in fleet.vms.values():
        vm.faults.add("unreachable")
    plan = plan_down(context, images=True)
    assert [(part.name, len(part.hosts)) for part in plan.rounds] == [
        ("take off", 1), ("take down", 4), ("leave the swarm", 1),
    ]  # fmt: skip
    assert fleet.changes == {}
    assert fleet.taken == ["kit deploy"]


def test_down_reports_its_rounds_and_what_it_removed(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    reporter.events.clear()
    down(fleet.context(reporter))
    assert [phase.name for phase in reporter.of(Phase)] == ["lock", "take off", "take down", "leave the swarm"]
    assert [event.text for event in reporter.of(HostDone)] == [
        "nothing there", *["removed 2"] * 4, "nothing there",
    ]  # fmt: skip


def test_down_keeps_staged_data_and_says_so(fleet: Fleet, reporter: Remembering) -> None:
    context = fleet.context(reporter, data={**WEB, "text": {"from": "s3://corpus/text", "to": "/data/text"}})
    deploy(context)
    fleet["gpu3"].folders.add(STAGED)
    result = down(context)
    assert result.data == ("web",)
    assert all(len(lines) == 2 for lines in result.removed.values())
    assert cluster_text.down(result).endswith("The staged data of web stays there; delete it: kit data rm web")
    assert [name for name, vm in fleet.vms.items() if "/opt/kit/.data/lab/web/files" in vm.folders] == ["gpu3"]
    assert down(context).data == ("web",)


def test_down_names_the_hosts_on_which_home_folders_stay(fleet: Fleet, reporter: Remembering) -> None:
    context = fleet.context(reporter)
    deploy(context)
    fleet["gpu2"].folders.add("/opt/kit/lab/var/home")
    result = down(context)
    assert result.homes == ("gpu2",)
    assert all("home stays" not in lines for lines in result.removed.values())
    fleet["gpu2"].folders.add("/opt/kit/lab/var/home")
    assert down(context, purge=True).homes == ()


def test_down_leaves_another_cluster_alone(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    other = fleet.context(reporter, name="other", ssh_port=34)
    deploy(other)
    down(other)
    assert services(fleet) == ALL
    assert deploy(fleet.context(reporter)).plan.empty


@pytest.mark.parametrize("fault", ["unreachable", "no engine"])
def test_down_names_the_host_that_fails_and_takes_the_others_down(
    fleet: Fleet, reporter: Remembering, fault: Fault
) -> None:
    deploy(fleet.context(reporter))
    fleet["gpu2"].faults.add(fault)
    with pytest.raises(KitError) as caught:
        down(fleet.context(reporter))
    assert caught.value.host == "gpu2"
    assert [name for name, vm in fleet.vms.items() if vm.containers or vm.files] == ["gpu2"]


def test_a_device_that_a_host_lacks_prevents_the_deploy(fleet: Fleet, reporter: Remembering) -> None:
    with pytest.raises(HostsFailed) as caught:
        deploy(fleet.context(reporter, devices=["/dev/gdrdrv"]))
    message = "has no /dev/gdrdrv, which devices: in kit.yaml names"
    assert {problem.host: problem.message for problem in caught.value.failures} == dict.fromkeys(fleet.vms, message)
    assert fleet.changes == {}


def test_a_source_of_a_volume_that_no_host_has_is_a_warning(fleet: Fleet, reporter: Remembering) -> None:
    fleet["gpu3"].folders.add("/data")
    volumes = ("/data:/data:ro", "/typo:/typo", "named:/named")
    deploy(fleet.context(reporter, volumes=volumes))
    (warned,) = reporter.warnings
    assert "no host has /typo, which volumes: in kit.yaml mounts" in warned.text


def test_folders_of_data_sets_are_made_and_a_missing_staging_is_named(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter, data=WEB))
    assert all("/opt/kit/.data/lab/web/files" in vm.folders for vm in fleet.vms.values())
    notes = [note.text for note in reporter.of(Note) if "staged" in note.text]
    assert notes == ["the data set web is not staged yet: kit data stage web"]
    reporter.events.clear()
    fleet["gpu1"].folders.add(STAGED)
    assert deploy(fleet.context(reporter, data=WEB)).plan.empty
    assert [note.text for note in reporter.of(Note)] == [
        "the data set web is not staged yet on gpu[2-4]: kit data stage web"
    ]


def test_a_host_without_the_disk_of_a_data_set_prevents_the_deploy(fleet: Fleet, reporter: Remembering) -> None:
    for name in ("gpu1", "gpu2", "gpu3"):
        fleet[name].folders.add("/nvme")
    with pytest.raises(StepError, match="has no folder /nvme, which dir: of a data set names") as caught:
        deploy(fleet.context(reporter, data={"web": {**WEB["web"], "dir": "/nvme"}}))
    assert caught.value.host == "gpu4"
    assert fleet.changes == {}


def test_a_folder_that_is_another_users_stops_the_deploy_on_that_host(fleet: Fleet, reporter: Remembering) -> None:
    fleet["gpu2"].faults.add("data folder of another")
    with pytest.raises(StepError, match="is a link, or another user's") as caught:
        deploy(fleet.context(reporter, data=WEB))
    assert caught.value.host == "gpu2"
    assert "kit ssh gpu2 -- ls -ld /opt/kit/.data/lab/web" in (caught.value.hint or "")


def test_an_engine_that_cannot_raise_limits_gets_the_hint_of_kit_local(fleet: Fleet, reporter: Remembering) -> None:
    fleet["gpu2"].faults.add("low limits")
    with pytest.raises(StepError, match="error setting rlimit type 8: operation not permitted") as caught:
        deploy(fleet.context(reporter))
    assert caught.value.host == "gpu2"
    assert caught.value.hint == "this engine cannot raise limits: set ulimits.memlock to default in kit.yaml"


def test_a_server_that_mounts_nothing_is_named(fleet: Fleet, reporter: Remembering) -> None:
    fleet["gpu2"].faults.add("mount fails")
    with pytest.raises(StepError) as caught:
        deploy(fleet.context(reporter, data={"web": {"from": "nfs://10.0.0.9/web", "to": "/web", "stage": "none"}}))
    assert str(caught.value) == (
        "gpu2: the data set web: the engine cannot mount NFS from 10.0.0.9: connection refused"
    )
    assert caught.value.hint == "start the server at 10.0.0.9, or correct from: in kit.yaml, then: kit deploy"


def test_a_server_that_never_answers_is_named(fleet: Fleet, reporter: Remembering) -> None:
    fleet["gpu2"].faults.add("mount hangs")
    web = {"from": "nfs://10.0.0.9/web", "to": "/web", "stage": "none"}
    with pytest.raises(SlowError) as caught:
        deploy(fleet.context(reporter, data={"web": web, "text": {**web, "from": "nfs://nas/text", "to": "/text"}}))
    assert str(caught.value) == ("gpu2: docker compose up did not end within 300 s; the node mounts 10.0.0.9, nas")
    assert "2049 for NFS" in (caught.value.hint or "")
    with pytest.raises(SlowError, match="a command did not end within 300 s"):
        deploy(fleet.context(reporter))


def image_tags(fleet: Fleet) -> set[str]:
    return {tag.partition(":")[2].rpartition("-")[0] for vm in fleet.vms.values() for tag in vm.images}


@pytest.mark.parametrize(
    ("frameworks", "gpus", "flavour"),
    [
        (("tensorflow", "mxnet"), 0, "cpu"),
        (("tensorflow", "mxnet"), 2, "cuda-tensorflow"),
        (("mxnet",), 2, "cuda-mxnet"),
        (("pytorch",), 0, "pytorch"),
    ],
)
def test_the_hosts_gpus_choose_the_flavor(
    fleet: Fleet, reporter: Remembering, frameworks: tuple[str, ...], gpus: int, flavour: str
) -> None:
    for vm in fleet.vms.values():
        vm.gpus = gpus
    context = fleet.context(reporter, image={"frameworks": list(frameworks)})
    planned = deploy(context, dry_run=True).plan
    assert {step.image.rpartition("-")[0] for _, step in planned.steps() if isinstance(step, Ship)} == {
        f"kit:{flavour}"
    }
    deploy(context)
    assert image_tags(fleet) == {flavour}
    assert deploy(context).plan.empty
    assert reporter.warnings == []
    # The record has what kit.yaml says, so that kit run finds no difference.
    record = from_text(fleet["gpu1"].files["/opt/kit/lab/cluster.json"][0].decode())
    assert record.settings["image.flavour"] == "auto"
    assert record.image.startswith(f"kit:{flavour}-")


def test_hosts_with_and_without_gpus_need_a_choice(fleet: Fleet, reporter: Remembering) -> None:
    fleet["gpu2"].gpus = 2
    with pytest.raises(StepError, match="gpu2 has GPUs, and gpu1, gpu3, gpu4 have none"):
        deploy(fleet.context(reporter))
    assert fleet.changes == {}
    deploy(fleet.context(reporter, image={"flavour": "cpu"}))
    (warned,) = reporter.warnings
    assert "gpu2 has GPUs (2 × NVIDIA A100-SXM4-40GB), but image.flavour is cpu" in warned.text


def never_look_for_the_image(patch: pytest.MonkeyPatch) -> None:
    """Let a deploy fail that looks for its image."""

    def image(*_args: object, **_more: object) -> None:
        raise AssertionError("the image was looked for")

    patch.setattr("kit.flows.cluster.deploy._image", image)


def test_a_driver_that_is_too_old_for_the_image(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_look_for_the_image(monkeypatch)
    for vm in fleet.vms.values():
        vm.gpus = 1
    fleet["gpu3"].driver = "470.57.02"
    with pytest.raises(StepError, match=r"has the NVIDIA driver 470\.57\.02, and CUDA 12\.") as caught:
        deploy(fleet.context(reporter))
    assert caught.value.host == "gpu3"
    assert fleet.changes == {}


def test_a_gpu_that_is_too_old_for_the_image_is_noticed_before_anything_is_sent(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_look_for_the_image(monkeypatch)
    for vm in fleet.vms.values():
        vm.gpus, vm.driver = 1, "580.65.06"
    fleet["gpu3"].model, fleet["gpu3"].capability = "Tesla V100-SXM2-16GB", "7.0"
    context = fleet.context(reporter, image={"frameworks": ["pytorch"]})
    with pytest.raises(
        StepError, match=r"has Tesla V100-SXM2-16GB \(compute capability 7\.0\), and the image"
    ) as caught:
        deploy(context)
    assert caught.value.host == "gpu3"
    assert "cuda-mxnet, cuda-tensorflow" in str(caught.value.hint)
    assert fleet.changes == {}


def test_what_a_deploy_says_of_pretended_gpus_says_so(fleet: Fleet, reporter: Remembering) -> None:
    on_gpus(fleet)
    for vm in fleet.vms.values():
        vm.model = "NVIDIA H200 (PRETENDED)"
    fleet["gpu3"].hidden_gpus = (1,)
    with pytest.raises(StepError, match=r"GPU-gpu3-1 is missing \(PRETENDED\)$"):
        deploy(fleet.context(reporter))
    (row,) = [node for node in ps(fleet.context(reporter)).nodes if node.host == "gpu3"]
    assert row.notes == ("the node sees 1 of the host's 2 GPUs: GPU-gpu3-1 is missing (PRETENDED); run: kit deploy",)


def test_a_cluster_whose_driver_broke_gets_no_image_for_cpus(fleet: Fleet, reporter: Remembering) -> None:
    for vm in fleet.vms.values():
        vm.gpus = 1
    deploy(fleet.context(reporter))
    for vm in fleet.vms.values():
        vm.gpus, vm.nvidia_smi = 0, ["Failed to initialize NVML: Driver/library version mismatch"]
    with pytest.raises(StepError, match="the cluster has a CUDA image, and now gpu1, gpu2, gpu3, gpu4 have no GPU"):
        deploy(fleet.context(reporter))


def test_down_removes_the_image_of_either_kind(fleet: Fleet, reporter: Remembering) -> None:
    for vm in fleet.vms.values():
        vm.gpus = 1
    deploy(fleet.context(reporter))
    down(fleet.context(reporter), images=True)
    assert image_tags(fleet) == set()


def on_gpus(fleet: Fleet) -> None:
    for vm in fleet.vms.values():
        vm.gpus = 2


def test_each_node_must_see_all_gpus_of_its_host(fleet: Fleet, reporter: Remembering) -> None:
    on_gpus(fleet)
    fleet["gpu3"].hidden_gpus = (1,)
    with pytest.raises(StepError, match="sees 1 of the host's 2 GPUs: GPU-gpu3-1 is missing") as caught:
        deploy(fleet.context(reporter))
    assert caught.value.host == "gpu3"
    fleet["gpu3"].hidden_gpus = ()
    # The node started before its GPUs were complete.
    deploy(fleet.context(reporter))
    assert deploy(fleet.context(reporter)).plan.empty


def test_a_node_without_nvidia_smi_is_a_warning(fleet: Fleet, reporter: Remembering) -> None:
    on_gpus(fleet)
    fleet["gpu3"].blind = True
    deploy(fleet.context(reporter))
    (warning,) = [one for one in reporter.warnings if "cannot verify" in one.text]
    assert warning.text == ("gpu3: kit cannot verify that the node sees the host's 2 GPUs: no nvidia-smi answers in it")
    assert "NVIDIA_DRIVER_CAPABILITIES" in str(warning.hint)
    assert str(warning.hint).endswith(": kit exec gpu3 -- sh -c 'ls /dev/nvidia*'")
    assert deploy(fleet.context(reporter)).plan.empty


def test_a_head_without_ranks_has_lost_no_gpu(fleet: Fleet, reporter: Remembering) -> None:
    """Its image has NVIDIA's programs, and it never had a GPU."""
    on_gpus(fleet)
    fleet["gpu1"].gpus = 0
    fleet["gpu1"].nvidia_smi = ["No devices were found"]
    context = fleet.context(reporter, head_runs_ranks=False)
    deploy(context)
    assert deploy(context).plan.empty
    assert reporter.warnings == []


def test_a_node_that_lost_its_gpus_is_recreated(fleet: Fleet, reporter: Remembering) -> None:
    on_gpus(fleet)
    deploy(fleet.context(reporter))
    fleet["gpu2"].lost_gpus = True
    row = next(node for node in ps(fleet.context(reporter)).nodes if node.host == "gpu2")
    assert row.notes == (
        "the node sees 0 of the host's 2 GPUs: Failed to initialize NVML: Unknown Error; run: kit deploy",
    )
    plan = deploy(fleet.context(reporter), dry_run=True).plan
    up, *after = steps_of(plan, "gpu2")
    assert isinstance(up, ComposeUp)
    assert up.recreate
    assert up.why.endswith("Unknown Error")
    assert [type(step).__name__ for step in after] == ["WaitSshd", "VerifyGpus"]
    deploy(fleet.context(reporter))
    assert not fleet["gpu2"].lost_gpus
    assert deploy(fleet.context(reporter)).plan.empty


def test_a_choice_of_gpus_in_kit_yaml_is_no_loss(fleet: Fleet, reporter: Remembering) -> None:
    on_gpus(fleet)
    fleet["gpu3"].hidden_gpus = (1,)
    context = fleet.context(reporter, env={"NVIDIA_VISIBLE_DEVICES": "0"})
    deploy(context)
    assert deploy(context).plan.empty


def test_a_lost_gpu_does_not_end_a_run(fleet: Fleet, reporter: Remembering) -> None:
    on_gpus(fleet)
    deploy(fleet.context(reporter))
    fleet["gpu2"].lost_gpus = True
    fleet["gpu1"].living = ["20261121-101500-3fa2"]
    with pytest.raises(NotReadyError, match="is active, and this deploy would end it"):
        deploy(fleet.context(reporter))


def test_a_deploy_warns_of_mig_without_mig_devices(fleet: Fleet, reporter: Remembering) -> None:
    on_gpus(fleet)
    fleet["gpu4"].nvidia_smi = ["NVIDIA A100-SXM4-40GB, 40960, GPU-x, 2, 00000000:02:00.0, 580.65.06, Enabled, 8.0"]
    deploy(fleet.context(reporter), dry_run=True)
    (warning,) = reporter.warnings
    assert warning.text == "gpu4: MIG is on without a MIG device, so no rank can use GPU 2"
    assert "sudo nvidia-smi mig -i NUMBER -cgi PROFILE -C" in str(warning.hint)


def test_ps_counts_gpus_and_names_programs_of_others(fleet: Fleet, reporter: Remembering) -> None:
    on_gpus(fleet)
    fleet["gpu4"].gpus = 1
    deploy(fleet.context(reporter))
    assert any("gpu4 has 1 GPU and slots=2" in warning.text for warning in reporter.warnings)
    fleet["gpu1"].ranks = [("20261121-101500-3fa2", 0, 41)]
    fleet["gpu2"].gpu_processes = ["GPU-gpu2-1 42 100 alice - jupyter", "GPU-gpu2-0 43 100 root lab python3"]
    rows = ps(fleet.context(reporter)).nodes
    assert [(row.gpus, row.gpus_free) for row in rows] == [(2, 1), (2, 0), (2, 2), (1, 1)]
    # Without a rank, a run holds its GPUs, too: before its ranks start, and on hosts where they wait or use none.
    lease = {"id": "20261121-101500-3fa2", "places": [{"node": n, "slots": [0, 1]} for n in ("gpu1", "gpu3", "gpu4")]}
    fleet["gpu1"].slots = [json.dumps(lease)]
    assert [row.gpus_free for row in ps(fleet.context(reporter)).nodes] == [0, 0, 0, 0]
    fleet["gpu1"].slots = []
    assert {row.gpu_models for row in rows} == {("NVIDIA A100-SXM4-40GB",)}
    assert [row.notes for row in rows] == [
        (),
        ("a program that kit did not start uses GPU-gpu2-1: jupyter (PID 42 of alice)",),
        (),
        ("1 GPU and slots=2 in the hosts file: ranks share GPUs",),
    ]
    shown = text.ps(ps(fleet.context(reporter)))
    assert "2 × A100-SXM4-40GB, 1 free" in shown
    assert "\ngpu2: a program that kit did not start uses GPU-gpu2-1" in shown
