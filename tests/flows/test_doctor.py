"""kit doctor on VMs in memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kit.errors import InputError, StepError
from kit.events import HostDone, HostFailed, Warned
from kit.flows.cluster.deploy import deploy
from kit.flows.context import Context
from kit.flows.doctor import doctor as flow
from kit.flows.doctor.beside import Beside
from kit.flows.doctor.doctor import doctor
from kit.flows.doctor.examination import TASK
from kit.flows.doctor.pairs import Between
from kit.model.doctor import Check, Command, DoctorResult, Examined, Finding, Pairing, PairSeen, Sight
from kit.model.host import Host
from kit.model.launch import Node
from kit.model.values import replace
from kit.plan.doctor.checks import CHECKS
from tests.fakes.fleet import Fleet
from tests.fakes.reporter import Remembering


def found(result: DoctorResult, name: str) -> Finding:
    (finding,) = [one for one in result.findings if one.id == name]
    return finding


def test_a_clean_fleet_has_no_finding(fleet: Fleet, reporter: Remembering) -> None:
    result = doctor(fleet.context(reporter))
    assert (result.findings, result.failed, result.exit_code) == ((), (), 0)
    assert result.hosts == ("gpu1", "gpu2", "gpu3", "gpu4")
    assert not result.deployed
    assert fleet.changes == {}
    assert sorted(event.host for event in reporter.events if isinstance(event, HostDone)) == [*result.hosts, TASK]


def test_it_changes_nothing_where_a_cluster_runs(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    fleet.forget_changes()
    result = doctor(fleet.context(reporter))
    assert (result.deployed, result.findings) == (True, ())
    assert fleet.changes == {}


def test_a_finding_names_its_hosts(fleet: Fleet, reporter: Remembering) -> None:
    for name in ("gpu2", "gpu3"):
        fleet[name].reads["lookup "] = ["127.0.1.1"]
    result = doctor(fleet.context(reporter))
    assert found(result, "own-name").seen == (Sight(hosts=("gpu2", "gpu3"), seen="its own name is 127.0.1.1"),)
    assert result.exit_code == 0


def test_hosts_out_of_reach_hide_no_other(fleet: Fleet, reporter: Remembering) -> None:
    fleet["gpu1"].faults.add("unreachable")
    fleet["gpu2"].faults.add("sudo")
    fleet["gpu4"].reads["lookup "] = ["127.0.1.1"]
    result = doctor(fleet.context(reporter))
    lost = {sight.hosts: sight for sight in found(result, "unreachable").seen}
    assert lost["gpu1",].seen == "no SSH connection"
    assert lost["gpu1",].fix == "is the VM up?"
    assert "cannot become it" in lost["gpu2",].seen
    assert found(result, "own-name").seen[0].hosts == ("gpu4",)
    assert result.exit_code == 4
    assert {event.host for event in reporter.events if isinstance(event, HostFailed)} == {"gpu1", "gpu2"}


def test_it_needs_no_engine(fleet: Fleet, reporter: Remembering) -> None:
    for vm in fleet.vms.values():
        vm.faults.add("no engine")
    fleet["gpu1"].reads["lookup "] = ["127.0.1.1"]
    result = doctor(fleet.context(reporter))
    assert found(result, "own-name").seen[0].hosts == ("gpu1",)
    assert "unreachable" not in {one.id for one in result.findings}


def test_a_host_without_python_is_observed(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet["gpu3"].python = None
    seen = examined(fleet, reporter, monkeypatch)
    facts = seen.hosts[2].facts
    assert facts is not None
    assert (facts.python, facts.engine) == (None, "26.1.5")
    assert seen.lost == ()


def test_an_odd_answer_of_the_engine_leaves_what_was_read(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet["gpu3"].info = {"ServerVersion": 26}
    fleet["gpu3"].reads["lookup "] = ["10.0.0.3"]
    seen = examined(fleet, reporter, monkeypatch)
    assert seen.hosts[2].facts is None
    assert seen.hosts[2].addresses[""] == ("10.0.0.3",)
    assert [one.host for one in seen.lost] == ["gpu3"]


def test_each_host_has_its_place_in_the_cluster(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = examined(fleet, reporter, monkeypatch)
    assert [one.node and one.node.address for one in seen.hosts] == [f"10.0.0.{n}" for n in range(1, 5)]


def examined(fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch, *more: Check) -> Examined:
    """Return what the checks get."""
    kept: list[Examined] = []

    def keep(one: Examined) -> Sequence[Sight]:
        kept.append(one)
        return ()

    spy = Check(
        id="spy", title="Spy", area="host", severity="watch", judge=keep, leads_to="Nothing.", fix="-",
        reads=(Command(argv=("df", "/dev/shm"), node=True), Command(argv=("uname", "-r"))),
    )  # fmt: skip
    monkeypatch.setattr(flow, "CHECKS", (*CHECKS, spy, *more))
    doctor(fleet.context(reporter))
    (one,) = kept
    return one


def test_commands_in_the_node_go_through_the_node_of_each_host(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader gets the whole command. The words of the node's script are those of kit exec."""
    asked: list[list[str]] = []
    for vm in fleet.vms.values():
        monkeypatch.setattr(vm, "reads", _Asked(asked))
    examined(fleet, reporter, monkeypatch)
    names = {words[3] for words in asked if words[1:3] == ["-c", "kit-node"] or words[-2:] == ["df", "/dev/shm"]}
    assert {word for words in asked for word in words if word.startswith("kit-lab-")} == {
        "kit-lab-mpihead",
        "kit-lab-mpinode",
    }, names


class _Asked(dict[str, object]):
    """Keeps the words of each read that a VM is asked."""

    def __init__(self, asked: list[list[str]]) -> None:
        self.asked = asked

    def get(self, key: str, default: object = None) -> object:
        self.asked.append(key.split())
        return default


def test_some_hosts(fleet: Fleet, reporter: Remembering) -> None:
    result = doctor(fleet.context(reporter), hosts="gpu[2-3]")
    assert result.hosts == ("gpu2", "gpu3")
    with pytest.raises(InputError, match="gpu9"):
        doctor(fleet.context(reporter), hosts="gpu9")


@pytest.mark.parametrize(
    ("count", "given", "pairing"),
    [(2, None, "all"), (16, None, "all"), (17, None, "quick"), (17, "all", "all"), (2, "none", "none")],
)
def test_which_pairs(
    count: int, given: Pairing | None, pairing: Pairing, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Pairing] = []

    def measure(_context: Context, hosts: Sequence[Host], pairing: Pairing, *, nodes: Sequence[Node]) -> Between:
        asked.append(pairing)
        assert not nodes
        return Between(pairs=(PairSeen(source=hosts[0].name, target=hosts[1].name, address="10.0.0.2"),))

    monkeypatch.setattr(flow, "measure", measure)
    result = doctor(Fleet(count).context(reporter), pairing=given)
    assert result.pairing == pairing
    assert asked == ([] if pairing == "none" else [pairing])
    assert result.pairs == len(asked)


def test_one_host_has_no_pair(reporter: Remembering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "measure", lambda *_, **__: pytest.fail("it measured"))
    assert doctor(Fleet(1).context(reporter)).pairs == 0


def test_a_bug_in_a_check_hides_nothing(fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_examined: Examined) -> Sequence[Sight]:
        raise IndexError("list index out of range")

    own = next(check for check in CHECKS if check.id == "own-name")
    monkeypatch.setattr(flow, "CHECKS", (replace(own, id="broken", judge=broken), *CHECKS))
    fleet["gpu4"].reads["lookup "] = ["127.0.1.1"]
    result = doctor(fleet.context(reporter))
    assert [one.id for one in result.failed] == ["broken"]
    # Without it, the exit code would be that of a clean examination.
    assert found(result, "own-name").severity == "watch"
    assert result.exit_code == 4


# Beside a deploy.

FULL = [100 * 10**9, 10**6, 6_000_000, 5_000_000]


def warnings(reporter: Remembering) -> list[Warned]:
    return [event for event in reporter.events if isinstance(event, Warned)]


def test_a_deploy_warns_of_what_its_checks_find(fleet: Fleet, reporter: Remembering) -> None:
    for name in ("gpu2", "gpu3"):
        fleet[name].reads["disk /tmp"] = FULL
    # Only to watch: kit doctor says that.
    fleet["gpu1"].reads["lookup "] = ["127.0.1.1"]
    assert deploy(fleet.context(reporter)).changed
    (warning,) = warnings(reporter)
    assert warning.text == "A disk is full: gpu[2-3]: /tmp has 1 MB free of 100.00 GB"
    assert warning.hint
    assert warning.hint.endswith("More: kit doctor --explain disk")


def test_a_deploy_with_nothing_to_do_and_a_dry_run_read_no_more(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    for vm in fleet.vms.values():
        vm.reads["disk /"] = FULL
    deploy(fleet.context(Remembering()))
    monkeypatch.setattr("kit.flows.doctor.beside.Beside.__init__", lambda *_: pytest.fail("it read"))
    assert not deploy(fleet.context(reporter)).changed
    fleet["gpu2"].containers[0].running = False
    deploy(fleet.context(reporter), dry_run=True)
    assert warnings(reporter) == []


def test_a_deploy_that_fails_still_warns(fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet["gpu2"].reads["disk /"] = FULL
    fleet["gpu2"].faults.add("compose fails")
    waited = Beside.warn
    monkeypatch.setattr(Beside, "warn", lambda self, wait_s=1.0: waited(self, wait_s=5.0))
    with pytest.raises(StepError):
        deploy(fleet.context(reporter))
    assert [warning.text.partition(":")[0] for warning in warnings(reporter)] == ["A disk is full"]


def test_hosts_that_cannot_be_read_do_not_end_a_deploy(fleet: Fleet, reporter: Remembering) -> None:
    fleet["gpu3"].reads["disk /"] = ["odd"]
    fleet["gpu4"].reads["disk /"] = FULL
    assert deploy(fleet.context(reporter)).changed
    (warning,) = warnings(reporter)
    assert "gpu4: / has" in warning.text
