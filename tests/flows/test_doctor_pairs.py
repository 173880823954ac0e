"""kit doctor measures between hosts: on VMs in memory, and with real probes on addresses of the loopback device."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.cli.text import doctor as text
from kit.errors import AnswerError, SlowError, StepError, UnreachableError
from kit.events import HostStep
from kit.flows.cluster.deploy import deploy
from kit.flows.doctor import examination
from kit.flows.doctor.doctor import doctor
from kit.flows.doctor.pairs import Between, measure
from kit.model.doctor import DoctorResult, Pairing
from kit.remote.doctor import probes
from tests.fakes.fleet import Fleet
from tests.fakes.loopback import Loopback
from tests.fakes.probes import CONTROL, RATE, FakeLink
from tests.fakes.reporter import Remembering
from tests.sockets import listening

ROOT = Path(__file__).parents[2]
OTHERS = ("gpu1", "gpu3", "gpu4")


def ids(result: DoctorResult) -> dict[str, list[tuple[str, ...]]]:
    return {one.id: [sight.hosts for sight in one.seen] for one in result.findings if one.area == "pair"}


def measured(fleet: Fleet, reporter: Remembering, pairing: Pairing = "all") -> Between:
    context = fleet.context(reporter)
    return measure(context, context.inventory.hosts, pairing)


def test_a_clean_fleet(fleet: Fleet, reporter: Remembering) -> None:
    between = measured(fleet, reporter)
    assert between.failures == {}
    assert len(between.pairs) == 12
    (pair,) = [pair for pair in between.pairs if (pair.source, pair.target) == ("gpu1", "gpu2")]
    assert (pair.address, pair.mtu, pair.mtu_local, pair.rate) == ("10.0.0.2", 1500, 1500, RATE)
    assert [(port.number, port.open) for port in pair.ports] == [(33, True), (1024, True), (CONTROL, True)]
    assert (pair.clock_s, pair.clock_error_s, pair.resolved) == (0.0, 5e-5, ("10.0.0.2",))
    steps = [event.text for event in reporter.events if isinstance(event, HostStep)]
    assert [text for text in steps if "round" in text] == [f"measuring rates, round {n} of 3" for n in (1, 2, 3)]
    assert ids(doctor(fleet.context(reporter))) == {}
    assert fleet.changes == {}


def test_a_firewall(fleet: Fleet, reporter: Remembering) -> None:
    for name in OTHERS:
        fleet[name].links["gpu2"] = FakeLink(closed={33, 1024})
    result = doctor(fleet.context(reporter))
    assert ids(result) == {"port-filtered": [("gpu2",)]}
    assert result.exit_code == 4


def test_a_firewall_that_lets_nothing_in_leaves_the_other_direction(fleet: Fleet, reporter: Remembering) -> None:
    for name in OTHERS:
        fleet[name].links["gpu2"] = FakeLink(closed={33, 1024, "control"})
    between = measured(fleet, reporter)
    assert all(pair.rate for pair in between.pairs)
    assert ids(doctor(fleet.context(reporter))) == {"port-filtered": [("gpu2",)]}


def test_two_hosts_that_cannot_connect_have_no_rate(reporter: Remembering) -> None:
    fleet = Fleet(2)
    for one, other in (("gpu1", "gpu2"), ("gpu2", "gpu1")):
        fleet[one].links[other] = FakeLink(closed={"control"})
    between = measured(fleet, reporter)
    assert [pair.rate for pair in between.pairs] == [None, None]


def test_a_path_that_loses_large_packets(fleet: Fleet, reporter: Remembering) -> None:
    for name in OTHERS:
        fleet[name].links["gpu2"] = FakeLink(mtu=1400, rate=0.0)
    assert ids(doctor(fleet.context(reporter))) == {"path-mtu": [("gpu2",)]}


def test_a_slow_host_is_measured_again(fleet: Fleet, reporter: Remembering) -> None:
    for name in OTHERS:
        fleet[name].links["gpu2"] = fleet["gpu2"].links[name] = FakeLink(rate=RATE / 10)
    result = doctor(fleet.context(reporter))
    assert ids(result) == {"slow-link": [("gpu2",)]}
    assert result.exit_code == 3
    steps = [event.text for event in reporter.events if isinstance(event, HostStep)]
    assert "measuring slow links again, round 3 of 3" in steps
    assert "measuring gpu2 and gpu4 again, alone" in steps
    assert result.unsure == ()


def test_a_host_that_sends_slowly(fleet: Fleet, reporter: Remembering) -> None:
    for name in OTHERS:
        fleet["gpu2"].links[name] = FakeLink(rate=RATE / 10)
    assert ids(doctor(fleet.context(reporter))) == {"one-way": [("gpu2",)]}


def test_a_rate_of_busy_hosts_is_no_rate(fleet: Fleet, reporter: Remembering) -> None:
    for name in OTHERS:
        fleet["gpu2"].links[name] = FakeLink(rate=RATE / 100, waited_s=0.9)
    between = measured(fleet, reporter)
    rates = {(pair.source, pair.target): pair.rate for pair in between.pairs}
    assert rates["gpu2", "gpu1"] is None
    assert rates["gpu1", "gpu3"] == RATE
    assert ids(doctor(fleet.context(reporter))) == {}


def test_the_wait_for_a_core_does_not_count(fleet: Fleet, reporter: Remembering) -> None:
    """Half of the time makes half of the rate. A limited link is slow also then."""
    for name in OTHERS:
        fleet["gpu2"].links[name] = fleet[name].links["gpu2"] = FakeLink(rate=RATE / 3, waited_s=0.5)
    assert ids(doctor(fleet.context(reporter))) == {}
    for name in OTHERS:
        fleet["gpu2"].links[name] = fleet[name].links["gpu2"] = FakeLink(rate=RATE / 30, waited_s=0.5)
    assert ids(doctor(fleet.context(reporter))) == {"slow-link": [("gpu2",)]}


def test_the_calmest_measurement_says_what_a_link_can_do(fleet: Fleet, reporter: Remembering) -> None:
    """The second one waited so long that the link may be fast. The first one says that it is not."""
    for name in OTHERS:
        busy = FakeLink(rate=RATE / 6, waited_s=0.65)
        fleet["gpu2"].links[name] = fleet[name].links["gpu2"] = FakeLink(rate=RATE / 10, again=busy)
    assert ids(doctor(fleet.context(reporter))) == {"slow-link": [("gpu2",)]}


def test_a_round_trip_of_busy_hosts_is_none(fleet: Fleet, reporter: Remembering) -> None:
    for name in OTHERS:
        fleet["gpu2"].links[name] = FakeLink(trip_s=0.02, waited_s=0.5)
        fleet[name].links["gpu2"] = FakeLink(trip_s=0.02, waited_s=0.5)
    between = measured(fleet, reporter)
    trips = {(pair.source, pair.target): pair.rtt_s for pair in between.pairs}
    assert trips["gpu2", "gpu1"] is None
    assert trips["gpu1", "gpu3"] == 1e-4
    assert ids(doctor(fleet.context(reporter))) == {}
    for name in OTHERS:
        fleet["gpu2"].links[name] = fleet[name].links["gpu2"] = FakeLink(trip_s=0.02)
    assert ids(doctor(fleet.context(reporter))) == {"slow-link": [("gpu2",)]}


def test_where_all_hosts_are_busy_only_calm_suspects_are_measured_again(fleet: Fleet, reporter: Remembering) -> None:
    """The processes of a slow link sleep most of the time, whatever else the hosts do."""
    for one in fleet.vms.values():
        for other in fleet.vms:
            one.links[other] = FakeLink(waited_s=0.9)
    for name in ("gpu1", "gpu3"):
        fleet["gpu2"].links[name] = fleet[name].links["gpu2"] = FakeLink(rate=RATE / 10, waited_s=0.9)
    assert ids(doctor(fleet.context(reporter))) == {}
    assert not [event for event in reporter.events if isinstance(event, HostStep) and "again" in event.text]
    for name in OTHERS:
        fleet["gpu2"].links[name] = fleet[name].links["gpu2"] = FakeLink(rate=RATE / 10)
    assert ids(doctor(fleet.context(reporter))) == {"slow-link": [("gpu2",)]}


@pytest.mark.parametrize("slow", [("gpu2",), ("gpu2", "gpu40")])
def test_slow_hosts_are_named_if_only_some_of_their_links_are_measured_again(
    reporter: Remembering, monkeypatch: pytest.MonkeyPatch, slow: tuple[str, ...]
) -> None:
    """Among many hosts, the time is over after about five rounds of suspects."""
    monkeypatch.setattr(examination, "MOST_ROUNDS", 5)
    fleet = Fleet(64)
    for name in slow:
        for other in fleet.vms.keys() - {name}:
            fleet[other].links[name] = fleet[name].links[other] = FakeLink(rate=RATE / 10)
    assert ids(doctor(fleet.context(reporter), pairing="quick")) == {"slow-link": [(name,) for name in slow]}


def test_suspects_that_were_not_measured_again_have_no_rate(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examination, "AGAIN_ROUNDS_S", -1.0)
    monkeypatch.setattr(examination, "AGAIN_MOST_S", -1.0)
    for name in OTHERS:
        fleet["gpu2"].links[name] = FakeLink(rate=RATE / 10)
    result = doctor(fleet.context(reporter))
    assert ids(result) == {}
    assert not [event for event in reporter.events if isinstance(event, HostStep) and "again" in event.text]
    # The report says so.
    assert {frozenset(link) for link in result.unsure} == {frozenset({"gpu2", name}) for name in OTHERS}
    shown = text.findings(result)
    assert "Not judged: 3 links looked slow, but the hosts were busy, or kit had no time to measure again." in shown
    assert "run kit doctor again when the hosts are idle" in shown


@pytest.mark.parametrize(
    ("closed", "lossy", "limited"), [("gpu1", "gpu2", "gpu3"), ("gpu4", "gpu1", "gpu2"), ("gpu2", "gpu3", "gpu1")]
)
def test_three_of_four_hosts_have_a_fault(
    closed: str, lossy: str, limited: str, fleet: Fleet, reporter: Remembering
) -> None:
    for one, vm in fleet.vms.items():
        for other in fleet.vms:
            link = FakeLink(closed={33, 1024} if other == closed else set())
            if other == lossy:
                link.mtu, link.rate = 1400, 0.0
            elif limited in (one, other):
                link.rate = RATE / 30
            vm.links[other] = link
    named = {"port-filtered": [(closed,)], "path-mtu": [(lossy,)], "slow-link": [(limited,)]}
    assert ids(doctor(fleet.context(reporter))) == named


def test_a_clock(fleet: Fleet, reporter: Remembering) -> None:
    fleet["gpu3"].clock_s = -60.0
    result = doctor(fleet.context(reporter))
    assert ids(result) == {"clock-offset": [("gpu3",)]}
    assert result.exit_code == 0


def test_a_name(fleet: Fleet, reporter: Remembering) -> None:
    fleet["gpu3"].links["gpu4"] = FakeLink(resolved=["192.0.2.99"])
    assert ids(doctor(fleet.context(reporter))) == {"name-differs": [("gpu3", "gpu4")]}


@pytest.mark.parametrize("pairing", ["all", "none"])
def test_the_heads_ssh_where_a_cluster_runs(fleet: Fleet, reporter: Remembering, pairing: Pairing) -> None:
    deploy(fleet.context(reporter))
    assert ids(doctor(fleet.context(reporter), pairing=pairing)) == {}
    fleet["gpu3"].faults.add("sshd dies")
    assert ids(doctor(fleet.context(reporter), pairing=pairing)) == {"head-ssh": [("gpu1", "gpu3")]}
    # Without the head there is nobody to log in.
    assert ids(doctor(fleet.context(reporter), hosts="gpu2,gpu3,gpu4", pairing=pairing)) == {}


@pytest.mark.parametrize(
    ("fault", "why"),
    [(b"\x1b[31m", ""), (rb"\u001b[31m", "not the name of an error"), (b"x", "not the name of an error")],
)
def test_a_host_that_answers_nonsense_is_named_and_the_others_go_on(
    fleet: Fleet, reporter: Remembering, fault: bytes, why: str
) -> None:
    # As many as kit asked for.
    faults = b",".join([b'"%s"' % fault] * 9)
    fleet["gpu2"].probe_answers["reach"] = b'{"serial": 3, "faults": [%s], "names": [null, null, null]}' % faults
    between = measured(fleet, reporter)
    assert isinstance(between.failures["gpu2"], AnswerError)
    assert "\x1b" not in str(between.failures["gpu2"])
    assert why in str(between.failures["gpu2"])
    rates = {(pair.source, pair.target): pair.rate for pair in between.pairs}
    assert rates["gpu1", "gpu3"] == RATE
    assert rates["gpu1", "gpu2"] is None
    (finding,) = [one for one in doctor(fleet.context(reporter)).findings if one.id == "unreachable"]
    assert finding.seen[0].hosts == ("gpu2",)


def test_a_host_that_answers_too_much_is_named(fleet: Fleet, reporter: Remembering) -> None:
    fleet["gpu2"].probe_answers["hello"] = b"x" * (1 << 21)
    assert isinstance(measured(fleet, reporter).failures["gpu2"], AnswerError)


def test_two_hosts_with_one_address(reporter: Remembering) -> None:
    fleet = Fleet(3)
    fleet["gpu3"].internal = fleet["gpu2"].internal
    between = measured(fleet, reporter)
    assert "also that of gpu2" in str(between.failures["gpu3"])
    assert {pair.source for pair in between.pairs} == {"gpu1", "gpu2"}


def test_many_hosts_are_paired_quickly(reporter: Remembering) -> None:
    between = measured(Fleet(24), reporter, "quick")
    assert between.failures == {}
    per_host = [sum(pair.rate is not None for pair in between.pairs if pair.source == f"gpu{n}") for n in range(1, 25)]
    assert max(per_host) <= 6
    # The head connects to all.
    assert sum(pair.source == "gpu1" for pair in between.pairs) == 23


def test_a_host_that_only_others_measure_gets_orders(reporter: Remembering, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last host of the file is the target in almost all rounds. Here, each round takes 20 s."""
    clock = [0.0]
    monkeypatch.setattr(probes, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    asked: dict[str, list[float]] = {}
    ask = probes.Probes.ask

    def remember(self: probes.Probes, orders: dict[str, Any], read: Any, *, within_s: float) -> dict[str, Any]:
        for name in orders:
            asked.setdefault(name, []).append(clock[0])
        clock[0] += 20.0 * any(order["do"] == "measure" for order in orders.values())
        return ask(self, orders, read, within_s=within_s)

    monkeypatch.setattr(probes.Probes, "ask", remember)
    between = measured(Fleet(12), reporter)
    assert between.failures == {}
    assert clock[0] == 11 * 20
    for times in asked.values():
        assert max(later - earlier for earlier, later in zip(times, [*times[1:], clock[0]], strict=True)) <= 60


# Real probes from here on.


def test_real_probes_on_loopback(reporter: Remembering) -> None:
    machine = Loopback(3)
    between = measure(machine.context(reporter), machine.hosts, "all")
    assert between.failures == {}
    assert len(between.pairs) == 6
    for pair in between.pairs:
        assert all(port.open for port in pair.ports)
        assert pair.mtu == pair.mtu_local == 65535
        assert pair.clock_error_s
        assert pair.clock_s is not None
        # They share one clock, which somebody may set meanwhile by a moment.
        assert abs(pair.clock_s) <= pair.clock_error_s + 0.05
    assert all(process.poll() == 0 for process in machine.processes.values())


def test_a_host_that_dies_hangs_or_is_down_is_named(reporter: Remembering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "PATIENCE_S", 8.0)
    monkeypatch.setattr("kit.remote.doctor.probes.START_S", 30.0)
    hello = json.dumps({"serial": 1, "name": "a", "interfaces": [], "route": None})
    machine = Loopback(
        6,
        altered={
            "gpu2": [sys.executable, "-c", "import sys; sys.exit('Traceback: python3 is too old')"],
            "gpu3": [sys.executable, "-c", f"import time; print({hello!r}, flush=True); time.sleep(60)"],
            "gpu4": [sys.executable, "-c", "while True: print('x' * 1000)"],
        },
        down={"gpu5"},
    )
    between = measure(machine.context(reporter), machine.hosts, "all")
    kinds = {name: type(error) for name, error in between.failures.items()}
    assert kinds == {"gpu2": StepError, "gpu3": SlowError, "gpu4": AnswerError, "gpu5": UnreachableError}
    assert {pair.source for pair in between.pairs if pair.rate} <= {"gpu1", "gpu6"}
    assert any(pair.ports for pair in between.pairs)
    end = time.monotonic() + 60
    while any(process.poll() is None for process in machine.processes.values()):
        assert time.monotonic() < end, "a process of a host still runs"
        time.sleep(0.05)


INTERRUPTED = """
import sys
from tests.fakes.loopback import Loopback
from kit.errors import Interrupted
from kit.flows.doctor import examination, pairs
examination.STREAM_S = 8.0
class Reporter:
    def report(self, event):
        text = getattr(event, "text", "")
        if text.startswith("measuring rates"):
            print(*(process.pid for process in machine.processes.values()), flush=True)
machine = Loopback(3)
try:
    pairs.measure(machine.context(Reporter()), machine.hosts, "all")
except Interrupted as error:
    print("interrupted", flush=True)
    sys.exit(130)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_after_ctrl_c_nothing_listens(number: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as kit:
        assert kit.stdout
        pids = [int(word) for word in kit.stdout.readline().split()]
        assert len(pids) == 3
        assert all(listening(pid) for pid in pids)
        os.kill(kit.pid, number)
        assert kit.wait(60) == (130 if number == signal.SIGINT else -9)
    end = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < end, "a probe still runs"
        time.sleep(0.05)
