"""The cluster's lock and its audit on VMs in memory: who holds it when, who is refused, and what is written down."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kit.errors import HostsFailed, Interrupted, KitError, NotReadyError, SlowError, StepError, UnreachableError
from kit.events import HostFailed, Phase, Reporter
from kit.flows.cluster.audit import read_audit
from kit.flows.cluster.deploy import deploy
from kit.flows.cluster.down import down
from kit.flows.cluster.lock import lock_release, lock_status
from kit.flows.cluster.ps import ps
from kit.model.host import Login
from kit.model.plan import Plan, Step
from kit.model.swarm import StackRemove
from kit.remote.cluster import execute
from kit.remote.cluster.execution import Execution
from kit.remote.cluster.steps import OnHost
from kit.remote.ssh.transport import Transport
from tests.fakes.fleet import Fleet
from tests.fakes.reporter import Remembering
from tests.fakes.vm import FakeLock, Fault

FILE = "/opt/kit/.lock/lab"


def audited(fleet: Fleet, reporter: Reporter) -> list[tuple[str, str, str]]:
    return [(e.verb, e.outcome, e.what) for e in read_audit(fleet.context(reporter), 20).entries]


def others(fleet: Fleet, *, held: bool = True) -> FakeLock:
    """Somebody else's lock on the head."""
    lock = FakeLock(vm=fleet["gpu1"], file=FILE, what="kit deploy", who="bob@pc", held=held)
    fleet["gpu1"].locks[FILE] = lock
    return lock


def test_only_what_changes_hosts_takes_the_lock(fleet: Fleet, reporter: Remembering) -> None:
    context = fleet.context(reporter)
    deploy(context, dry_run=True)
    ps(context)
    assert fleet.taken == []
    deploy(context)
    assert fleet.taken == ["kit deploy"]
    deploy(context)
    lock_status(context)
    assert fleet.taken == ["kit deploy"], "with nothing to do there is nothing to lock"
    down(context)
    assert fleet.taken == ["kit deploy", "kit down"]
    assert all(vm.locks == {} for vm in fleet.vms.values())


@pytest.mark.parametrize("verb", [deploy, down])
def test_who_comes_second_sees_who_since_when_and_for_what(
    fleet: Fleet, reporter: Remembering, verb: Callable[..., object]
) -> None:
    if verb is down:
        deploy(fleet.context(reporter))
        fleet.forget_changes()
    others(fleet)
    with pytest.raises(NotReadyError) as caught:
        verb(fleet.context(reporter))
    assert caught.value.host == "gpu1"
    assert caught.value.message == (
        "bob@pc holds the lock of the cluster since 1970-01-01T00:16:40Z (2 min ago), for kit deploy"
    )
    for step in ("wait", "kit lock status", "kit lock release"):
        assert step in str(caught.value.hint)
    assert fleet.changes == {}
    assert fleet["gpu1"].locks[FILE].who == "bob@pc"


def test_with_nothing_to_do_nobody_is_refused(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    others(fleet)
    assert not deploy(fleet.context(reporter)).changed


def test_a_stale_lock_stops_nobody(fleet: Fleet, reporter: Remembering) -> None:
    others(fleet, held=False)
    assert lock_status(fleet.context(reporter)).state == "stale"
    assert deploy(fleet.context(reporter)).changed
    assert lock_status(fleet.context(reporter)).state == "free"


def test_hosts_are_looked_at_again_under_the_lock(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another deploy did all that was to do, between the first look and the lock."""
    real = fleet.take

    def late(head: Login, file: str, what: str) -> FakeLock:
        monkeypatch.setattr(fleet, "take", real)
        deploy(fleet.context(Remembering()))
        fleet.forget_changes()
        return real(head, file, what)

    monkeypatch.setattr(fleet, "take", late)
    result = deploy(fleet.context(reporter))
    assert (result.changed, result.plan.empty, fleet.changes) == (False, True, {})
    assert [phase.name for phase in reporter.of(Phase)] == ["look", "lock", "look again"]
    assert len(audited(fleet, reporter)) == 1


def test_a_lock_that_is_taken_away_stops_the_deploy(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    def then_released(real: OnHost) -> OnHost:
        def on_host(execution: Execution, transport: Transport, step: Any) -> None:
            real(execution, transport, step)
            lock_release(fleet.context(reporter), lock_status(fleet.context(reporter)))

        return on_host

    table = {kind: then_released(function) for kind, function in execute.ON_HOST.items()}
    monkeypatch.setattr(execute, "ON_HOST", table)
    with pytest.raises(NotReadyError, match="was lost"):
        deploy(fleet.context(reporter))
    assert all(vm.containers == [] for vm in fleet.vms.values())
    # Each host had one step at the most, and the two threads may have seen the same lock.
    assert all(len(changed) <= 2 for changed in fleet.changes.values())


def test_no_host_is_reported_as_failed_whose_steps_end_because_kit_gave_the_lock_back(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C, kit releases the lock while other threads are still about to begin a step."""

    def given_back(_: Execution, host: str, step: Step) -> None:
        if type(step) in execute.ON_HOST:
            raise Interrupted("the change was ended before this step", host=host)

    monkeypatch.setattr(Execution, "begin", given_back)
    with pytest.raises((Interrupted, HostsFailed)):
        deploy(fleet.context(reporter))
    assert reporter.of(HostFailed) == []


def test_a_lock_that_is_taken_away_stops_down(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(fleet.context(reporter))
    real = execute.ON_HOST[StackRemove]

    def then_released(execution: Execution, transport: Transport, step: Any) -> None:
        real(execution, transport, step)
        lock_release(fleet.context(reporter), lock_status(fleet.context(reporter)))

    table: dict[Any, OnHost] = {**execute.ON_HOST, StackRemove: then_released}
    monkeypatch.setattr(execute, "ON_HOST", table)
    with pytest.raises(NotReadyError, match="was lost"):
        down(fleet.context(reporter))
    assert all(len(vm.containers) == 1 for vm in fleet.vms.values())


def test_a_lock_that_was_lost_at_the_very_end_is_reported(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    def then_released(execution: Execution, plan: Plan, *more: Any) -> dict[str, KitError]:
        failures = execute.execute(execution, plan, *more)
        fleet["gpu1"].locks[FILE].release()
        return failures

    monkeypatch.setattr("kit.flows.cluster.perform.execute", then_released)
    assert deploy(fleet.context(reporter)).changed
    (warned,) = reporter.warnings
    assert "all is done, but the lock of the cluster was lost" in warned.text


def test_a_failed_deploy_gives_the_lock_back_and_is_written_down(fleet: Fleet, reporter: Remembering) -> None:
    fleet["gpu3"].faults.add("compose fails")
    with pytest.raises(StepError):
        deploy(fleet.context(reporter))
    assert fleet["gpu1"].locks == {}
    fleet["gpu3"].faults.clear()
    deploy(fleet.context(reporter))
    first, second = audited(fleet, reporter)
    assert first[:2] == ("deploy", "failed")
    assert second == ("deploy", "done", "4 steps on 2 hosts")
    entry = read_audit(fleet.context(reporter), 1).entries[0]
    assert "@" in entry.who
    assert entry.time.endswith("Z")
    assert deploy(fleet.context(reporter)).plan.empty, "the audit is no file of the plan's"


def test_the_audit_shows_what_kit_setup_did(fleet: Fleet, reporter: Remembering) -> None:
    """Each host keeps its own. One kit setup is one entry, which names its hosts."""
    deploy(fleet.context(reporter))
    old = {"who": "ann@laptop", "verb": "setup", "outcome": "done", "seconds": 9.0, "time": "2026-01-02T03:04:05Z"}
    for name, steps in (("gpu1", 5), ("gpu2", 5), ("gpu3", 2)):
        fleet[name].audits["/opt/kit/.setup/audit"] = f"{json.dumps({**old, 'what': f'{steps} steps'})}\nodd\n".encode()
    context = fleet.context(reporter)
    assert [(e.verb, e.what) for e in read_audit(context, 20).entries] == [
        ("setup", "gpu[1-2]: 5 steps; gpu3: 2 steps"), ("deploy", "41 steps on 4 hosts"),
    ]  # fmt: skip
    assert [e.verb for e in read_audit(context, 1).entries] == ["deploy"]
    fleet["gpu3"].faults.add("unreachable")
    assert read_audit(context, 20).entries[0].what == "gpu[1-2]: 5 steps"
    (warned,) = reporter.warnings
    assert warned.text == "gpu3: what kit setup did there is missing: no SSH connection"
    fleet["gpu1"].faults.add("unreachable")
    with pytest.raises(UnreachableError):
        read_audit(context, 20)


def test_an_interrupted_deploy_is_written_down(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(fleet.context(reporter))
    fleet["gpu2"].containers.clear()

    def interrupted(*_: object) -> None:
        raise Interrupted("interrupted; not done: gpu2")

    monkeypatch.setattr(execute, "side_by_side", interrupted)
    with pytest.raises(Interrupted):
        deploy(fleet.context(reporter))
    assert fleet["gpu1"].locks == {}
    assert [outcome for _, outcome, _ in audited(fleet, reporter)] == ["done", "interrupted"]


def test_an_audit_that_cannot_be_written_is_a_warning(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise UnreachableError("the connection broke", host="gpu1")

    monkeypatch.setattr("kit.remote.cluster.audit.append", broken)
    assert deploy(fleet.context(reporter)).changed
    (warned,) = reporter.warnings
    assert warned.text == "kit deploy is not in the cluster's audit: gpu1: the connection broke"


def test_the_audit_survives_down(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    down(fleet.context(reporter))
    assert audited(fleet, reporter)[-1] == ("down", "done", "4 hosts")
    assert fleet["gpu1"].files == {}


def test_a_down_that_left_the_head_is_written_down(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    fleet["gpu1"].faults.add("no engine")
    with pytest.raises(StepError):
        down(fleet.context(reporter))
    assert audited(fleet, reporter)[-1] == ("down", "failed", "4 hosts")


@pytest.mark.parametrize("fault", ["unreachable", "no flock"])
def test_down_needs_no_lock_where_the_head_cannot_give_one(fleet: Fleet, reporter: Remembering, fault: Fault) -> None:
    deploy(fleet.context(reporter))
    fleet["gpu1"].faults.add(fault)
    if fault == "unreachable":
        with pytest.raises(UnreachableError):
            down(fleet.context(reporter))
    else:
        down(fleet.context(reporter))
    assert [name for name, vm in fleet.vms.items() if vm.containers] == (["gpu1"] if fault == "unreachable" else [])
    assert "continues without the cluster's lock" in reporter.warnings[0].text


@pytest.mark.parametrize("orchestrator", ["compose", "swarm"])
def test_a_head_that_hangs_keeps_only_nodes_that_swarm_would_start_again(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch, orchestrator: str
) -> None:
    def hangs(_execution: Execution, transport: Transport, _step: Any) -> None:
        raise SlowError("a command did not end within 90 s", host=transport.host.name)

    context = fleet.context(reporter, orchestrator=orchestrator)
    deploy(context)
    table: dict[Any, OnHost] = {**execute.ON_HOST, StackRemove: hangs}
    monkeypatch.setattr(execute, "ON_HOST", table)
    with pytest.raises(KitError) as caught:
        down(context, force=True)
    kept = ["gpu1", "gpu2", "gpu3", "gpu4"] if orchestrator == "swarm" else ["gpu1"]
    assert [name for name, vm in fleet.vms.items() if vm.containers] == kept
    failures = caught.value.failures if isinstance(caught.value, HostsFailed) else (caught.value,)
    assert [failure.host for failure in failures] == kept
    assert all("gpu1 did not remove the stack" in failure.message for failure in failures[1:])


def test_deploy_needs_flock(fleet: Fleet, reporter: Remembering) -> None:
    fleet["gpu1"].faults.add("no flock")
    with pytest.raises(StepError, match="there is no flock") as caught:
        deploy(fleet.context(reporter))
    assert "util-linux" in str(caught.value.hint)
    assert fleet.changes == {}


def test_release(fleet: Fleet, reporter: Remembering) -> None:
    context = fleet.context(reporter)
    deploy(context)
    assert lock_release(context, lock_status(context)).state == "free"
    lock = others(fleet)
    seen = lock_status(context)
    assert lock_release(context, seen).state == "held"
    assert not lock.held
    assert lock_status(context).state == "free"
    assert audited(fleet, reporter)[-1] == (
        "lock release", "done", "held: bob@pc, since 1970-01-01T00:16:40Z, for kit deploy",
    )  # fmt: skip
    others(fleet).pid = 4712
    with pytest.raises(NotReadyError, match="another holder"):
        lock_release(context, seen)
    assert fleet["gpu1"].locks[FILE].held
