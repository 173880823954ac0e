"""kit ps, kit exec and kit run --dry-run on VMs in memory."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kit import __version__
from kit.cli.text import ps as pstext
from kit.errors import HostsFailed, InputError, NotReadyError, SlowError, UnreachableError
from kit.flows.cluster.deploy import deploy
from kit.flows.cluster.exec import exec_hosts
from kit.flows.cluster.look import Look
from kit.flows.cluster.ps import ps, ranks_of
from kit.flows.run import by_hand
from kit.flows.run.by_hand import is_by_hand, stop_by_hand
from kit.flows.run.run import run
from kit.model import names
from kit.model.host import Host
from kit.model.launch import RunRequest
from kit.model.values import replace
from kit.plan.run.mpi import MEETING, SUPERVISORS
from kit.remote.ssh.transport import Completed, LiveTransport
from tests.fakes.fleet import FakeTransport, Fleet
from tests.fakes.reporter import Remembering

RUN, OTHER = "20261121-101500-3fa2", "20261121-101500-3fa3"


def completed(text: str, code: int = 0, error: str = "") -> Completed:
    return Completed(code=code, stdout=text.encode(), stderr=error.encode())


def test_ps_before_any_deploy(fleet: Fleet, reporter: Remembering) -> None:
    result = ps(fleet.context(reporter))
    first, *_ = result.nodes
    assert (first.host, first.address, first.state) == ("gpu1", "10.0.0.1", "not deployed")
    assert pstext.ps(result).splitlines()[-1] == "gpu[1-4]: the cluster is not deployed here; run: kit deploy"
    assert fleet.changes == {}


def test_ps_names_settings_that_are_not_deployed(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    assert (first := ps(fleet.context(reporter))).differs == ()
    assert first.version == __version__
    assert ps(fleet.context(reporter, shm_size="2gb")).differs == ("shm_size: 1gb → 2gb",)
    # An older kit, and a record that cannot be read.
    record = "/opt/kit/lab/cluster.json"
    content, mode = fleet["gpu1"].files[record]
    for text in (b"{}", content.replace(b'"settings"', b'"others"')):
        fleet["gpu1"].files[record] = (text, mode)
        assert ps(fleet.context(reporter, shm_size="2gb")).differs == ()
    assert ps(fleet.context(reporter)).version == __version__
    fleet["gpu1"].files[record] = (b"{}", mode)
    assert ps(fleet.context(reporter)).version is None


def test_ps_compares_the_content_of_the_requirements(fleet: Fleet, reporter: Remembering, tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("tqdm==4.67.1\n")
    # A deploy on the fake fleet builds nothing, but reads the file.
    deploy(fleet.context(reporter, requirements=str(file)))
    known = json.loads(fleet["gpu1"].files["/opt/kit/lab/cluster.json"][0])["settings"]["requirements"]
    assert len(known) == 12
    context = fleet.context(reporter, requirements=str(file))
    assert ps(context).differs == ()
    # Another place is no difference. Another content is one.
    other = file.rename(tmp_path / "others.txt")
    assert ps(context).differs == (f"requirements: {known} → the file is missing",)
    assert ps(fleet.context(reporter, requirements=str(other))).differs == ()
    other.write_text("tqdm==4.67.2\n")
    (differs,) = ps(fleet.context(reporter, requirements=str(other))).differs
    assert differs.startswith(f"requirements: {known} → ")
    other.write_bytes(b"\xff")
    (differs,) = ps(fleet.context(reporter, requirements=str(other))).differs
    assert differs == f"requirements: {known} → the file cannot be read"
    assert ps(fleet.context(reporter)).differs == (f"requirements: {known} → unset",)


@pytest.mark.parametrize(
    ("word", "ended", "left"),
    [("by-hand", {"by-hand-7", "by-hand-8"}, {RUN}), ("by-hand-7", {"by-hand-7"}, {"by-hand-8", RUN})],
)
def test_ranks_that_were_started_by_hand_can_be_stopped(
    fleet: Fleet, reporter: Remembering, word: str, ended: set[str], left: set[str]
) -> None:
    deploy(fleet.context(reporter))
    fleet["gpu1"].ranks = [("by-hand-7", 0, 40), (RUN, 0, 50)]
    fleet["gpu2"].ranks = [("by-hand-7", 1, 41), ("by-hand-8", 0, 60)]
    assert is_by_hand(word)
    record = stop_by_hand(fleet.context(reporter), word)
    assert set(record.id.split(", ")) == ended
    assert record.stopped
    assert set(record.left or {}) == {"gpu1", "gpu2", "gpu3", "gpu4"}
    assert {run for node in ps(fleet.context(reporter)).nodes for run in node.ranks} == left


def test_hosts_where_ranks_by_hand_cannot_be_ended_are_one_warning(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(fleet.context(reporter))
    fleet["gpu1"].ranks = [("by-hand-7", 0, 40)]
    away = {name: UnreachableError("no SSH connection", host=name) for name in ("gpu2", "gpu3", "gpu4")}
    monkeypatch.setattr(by_hand, "sweep", lambda *_: ({"gpu1": 0}, away))
    stop_by_hand(fleet.context(reporter), "by-hand")
    assert [warning.text for warning in reporter.warnings] == ["gpu[2-4]: no SSH connection"]


def test_nothing_by_hand_runs(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    with pytest.raises(NotReadyError, match="no ranks of by-hand are running"):
        stop_by_hand(fleet.context(reporter), "by-hand")
    assert not is_by_hand(None)
    assert not is_by_hand("20261121-101500-3fa2")


def test_ps_with_ranks_and_a_host_that_is_gone(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    fleet["gpu2"].ranks = [(RUN, 3, 40), (RUN, 2, 39), (RUN, 2, 41), (OTHER, 0, 50), ("x\x1b[2J", 0, 1)]
    fleet["gpu3"].faults.add("unreachable")
    fleet["gpu4"].containers[0].running = False
    first, second, third, fourth = ps(fleet.context(reporter)).nodes
    assert (first.service, first.state, first.slots, first.ranks) == ("mpihead", "Up 2 hours", 2, {})
    assert second.ranks == {RUN: (2, 3), OTHER: (0,)}
    assert (third.host, third.state, third.problem) == ("gpu3", "unreachable", "no SSH connection")
    assert fourth.state.startswith("Exited (137)")


def test_ps_says_what_is_gone_and_what_to_type(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    fleet["gpu2"].faults.add("no engine")
    # docker system prune -a while the node was stopped.
    fleet["gpu3"].containers.clear()
    fleet["gpu3"].images.clear()
    result = ps(fleet.context(reporter))
    _, second, third, fourth = result.nodes
    assert (second.state, third.state, fourth.state) == ("no Docker Engine answers", "container missing", "Up 2 hours")
    (note,) = second.notes
    assert "kit ssh gpu2 -- sudo systemctl start docker" in note
    (note,) = third.notes
    assert "docker system prune" in note
    assert "run: kit deploy" in note
    assert (result.exit_code, fourth.notes) == (5, ())
    # What the note promises.
    fleet["gpu2"].faults.clear()
    deploy(fleet.context(reporter))
    assert [node.state for node in ps(fleet.context(reporter)).nodes] == ["Up 2 hours"] * 4
    assert fleet.shipped[-1] == "gpu3"


def test_ps_names_a_host_that_lost_its_address(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    before = fleet["gpu2"].internal
    fleet["gpu2"].internal = "10.0.0.77"
    notes = {node.host: node.notes for node in ps(fleet.context(reporter)).nodes}
    assert notes.pop("gpu2") == (
        f"this host no longer has the address {before} of the last deploy, so runs do not reach it; run: kit deploy",
    )
    assert set(notes.values()) == {()}
    # What the note promises.
    deploy(fleet.context(reporter))
    assert all(node.notes == () for node in ps(fleet.context(reporter)).nodes)


def test_ps_calls_a_slow_host_slow(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    context = fleet.context(reporter)

    class Slow(FakeTransport):
        def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
            raise SlowError(f"a command did not end within {timeout_s:.0f} s", host=self.host.name)

    def connect(host: Host) -> LiveTransport:
        return Slow(fleet["gpu2"]) if host.name == "gpu2" else fleet.connect(host)

    rows = ps(replace(context, connect=connect)).nodes
    assert (rows[1].state, rows[1].problem) == ("slow: a command did not end within 75 s", None)
    assert rows[2].state == "Up 2 hours"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", {}), ("r1 0 1\nr1 0 2\n", {"r1": (0,)}), ("b 1 1\na 0 2\n", {"a": (0,), "b": (1,)}), ("junk\nr1 x 2\n", {})],
)
def test_ranks_of(text: str, expected: dict[str, tuple[int, ...]]) -> None:
    assert ranks_of(text) == expected


def test_exec_folds_equal_output(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    for name, answer in {
        "gpu1": completed("a\n"),
        "gpu2": completed("b\n"),
        "gpu3": completed("a\n"),
        "gpu4": completed("a\n", 3),
    }.items():
        fleet[name].answers["nvidia-smi -L"] = answer
    result = exec_hosts(fleet.context(reporter), None, ["nvidia-smi", "-L"])
    assert [(g.hosts, g.exit_code, g.output) for g in result.groups] == [
        (("gpu1", "gpu3"), 0, "a\n"), (("gpu2",), 0, "b\n"), (("gpu4",), 3, "a\n"),
    ]  # fmt: skip
    assert result.exit_code == 3


def test_exec_on_some(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    groups = exec_hosts(fleet.context(reporter), "gpu[2-3]", ["true"]).groups
    assert [group.hosts for group in groups] == [("gpu2", "gpu3")]


def test_exec_prints_the_others_output_where_one_host_fails(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter))
    for vm in fleet.vms.values():
        vm.answers["hostname"] = completed("same\n")
    fleet["gpu2"].faults.add("unreachable")
    fleet["gpu3"].containers.clear()
    result = exec_hosts(fleet.context(reporter), None, ["hostname"])
    unreachable, not_ready = UnreachableError("").exit_code, NotReadyError("").exit_code
    assert [(g.hosts, g.exit_code, g.output) for g in result.groups] == [
        (("gpu1", "gpu4"), 0, "same\n"),
        (("gpu2",), unreachable, "no SSH connection\n  → is the VM up?\n"),
        (("gpu3",), not_ready, f"no node of the cluster runs here\n  → run: kit deploy. {names.OTHER_HEAD}\n"),
    ]
    assert result.exit_code == max(unreachable, not_ready)


def test_exec_without_a_node(fleet: Fleet, reporter: Remembering) -> None:
    with pytest.raises(HostsFailed) as caught:
        exec_hosts(fleet.context(reporter), None, ["true"])
    assert {type(failure) for failure in caught.value.failures} == {NotReadyError}
    fleet["gpu1"].faults.add("unreachable")
    with pytest.raises(UnreachableError):
        exec_hosts(fleet.context(reporter), "gpu1", ["true"])


def test_a_command_that_says_that_something_is_not_running_is_not_the_engine(
    fleet: Fleet, reporter: Remembering
) -> None:
    deploy(fleet.context(reporter, names=["gpu1"]))
    fleet["gpu1"].answers["service x status"] = completed("", 1, "x is not running\n")
    (group,) = exec_hosts(fleet.context(reporter, names=["gpu1"]), None, ["service", "x", "status"]).groups
    assert (group.exit_code, group.output) == (1, "x is not running\n")


def test_a_dry_run_on_a_thousand_hosts_contacts_nobody(reporter: Remembering) -> None:
    fleet = Fleet(1000)
    for vm in fleet.vms.values():
        vm.faults.add("unreachable")
    request = RunRequest(np=1999, npernode=2, dry_run=True, command=("true",))
    result = run(fleet.context(reporter), request)
    placement = result.plan.placement
    assert result.exit_code is None
    assert placement.np == 1999
    assert placement.counts == (2,) * 999 + (1,)
    assert [node.name for node in placement.nodes] == [f"gpu{n}" for n in range(1, 1001)]
    lines = result.plan.hostfile.splitlines()
    assert (lines[0], lines[-1]) == ("10.0.0.1 slots=2", "10.0.4.0 slots=1")
    argv = result.plan.argv
    assert argv[argv.index("btl_tcp_if_include") + 1] == argv[argv.index("oob_tcp_if_include") + 1] == "10.0.0.0/21"


@pytest.mark.parametrize(
    ("request_", "spec", "expected"),
    [
        (RunRequest(dry_run=True), {}, {"gpu1": 2, "gpu2": 2, "gpu3": 2, "gpu4": 2}),
        (RunRequest(dry_run=True), {"head_runs_ranks": False}, {"gpu2": 2, "gpu3": 2, "gpu4": 2}),
        (RunRequest(dry_run=True, hosts="gpu4,gpu2", np=3), {}, {"gpu2": 2, "gpu4": 1}),
        # Named is named: -H goes before kit.yaml.
        (RunRequest(dry_run=True, hosts="gpu1"), {"head_runs_ranks": False}, {"gpu1": 2}),
        (RunRequest(dry_run=True, np=10, oversubscribe=True), {}, {"gpu1": 4, "gpu2": 2, "gpu3": 2, "gpu4": 2}),
    ],
)
def test_where_ranks_go(
    fleet: Fleet, reporter: Remembering, request_: RunRequest, spec: dict[str, Any], expected: dict[str, int]
) -> None:
    placement = run(fleet.context(reporter, **spec), request_).plan.placement
    assert {n.name: c for n, c in zip(placement.nodes, placement.counts, strict=True)} == expected


@pytest.mark.parametrize(
    ("request_", "names", "spec", "message"),
    [
        (RunRequest(dry_run=True, np=9), (), {}, "--np 9 is more than the 8 slots of 4 hosts"),
        (RunRequest(dry_run=True, np=9, npernode=2), (), {}, "--npernode 2 × 4 hosts = 8 ranks"),
        (RunRequest(dry_run=True, hosts="gpu9"), (), {}, "gpu9"),
        (RunRequest(dry_run=True), ("gpu1",), {"head_runs_ranks": False}, "the head is the only host"),
    ],
)
def test_refusals(  # noqa: PLR0917
    fleet: Fleet, reporter: Remembering, request_: RunRequest, names: tuple[str, ...], spec: dict[str, object],
    message: str,
) -> None:  # fmt: skip
    with pytest.raises(InputError) as caught:
        run(fleet.context(reporter, names=names, **spec), request_)
    assert message in str(caught.value)


def test_variables_are_set_or_forwarded(fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SET_HERE", "here")
    monkeypatch.delenv("NOT_HERE", raising=False)
    request = RunRequest(dry_run=True, env=(("A", "1"), ("SET_HERE", None), ("NOT_HERE", None)), command=("true",))
    plan = run(fleet.context(reporter), request).plan
    assert plan.env == {"KIT_RUN": "dry-run", "A": "1", "SET_HERE": "here"}
    named = [plan.argv[i + 1] for i, word in enumerate(plan.argv) if word == "-x"]
    assert named == ["KIT_RUN", "A", "SET_HERE", *SUPERVISORS, *MEETING, "NOT_HERE"]


def test_a_look_begins_before_its_facts_are_wanted(fleet: Fleet, reporter: Remembering) -> None:
    """kit deploy imports its planner while the hosts answer."""
    wanted = threading.Event()

    class Asked(FakeTransport):
        def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
            wanted.set()
            return super().run(argv, stdin=stdin, timeout_s=timeout_s)

    context = replace(fleet.context(reporter), connect=lambda host: Asked(fleet[host.name]))
    look = Look(context)
    assert wanted.wait(10)
    assert [facts.host.name for facts in look.observed()] == ["gpu1", "gpu2", "gpu3", "gpu4"]
    assert deploy(context, look=look).changed
    assert deploy(context, look=Look(context)).plan.empty


def test_a_look_names_a_host_that_does_not_answer(fleet: Fleet, reporter: Remembering) -> None:
    fleet["gpu3"].faults.add("unreachable")
    with pytest.raises(UnreachableError) as raised:
        Look(fleet.context(reporter)).observed()
    assert raised.value.host == "gpu3"


def test_a_deploy_with_nothing_to_do_imports_neither_jinja_nor_what_ships() -> None:
    code = (
        "import sys, kit.cli.text.cluster, kit.flows.cluster.deploy\n"
        "import kit.remote.cluster.observe, kit.remote.ssh.connect\n"
        "slow = {'jinja2', 'docker', 'ssl', 'tarfile', 'kit.remote.ship', 'kit.plan.swarm.deploy'}\n"
        "print(*sorted(slow & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
