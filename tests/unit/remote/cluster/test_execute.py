"""Which rounds begin after a failure, and that each kind of step has exactly one function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from kit.errors import KitError, NotReadyError, SlowError, StepError, UnreachableError
from kit.events import HostDone, HostFailed, HostStep, Phase
from kit.model import plan as model
from kit.model import swarm as swarm_model
from kit.model.plan import HostPlan, Needs, Plan, Round, Ship, Step, plan_of
from kit.model.setup import steps as setup_steps
from kit.remote.cluster import execute, steps
from kit.remote.cluster.execution import Execution
from kit.remote.ship.lanes import Target
from kit.remote.ship.result import Shipped
from kit.remote.ssh.transport import Transport
from tests.fakes.fleet import Fleet
from tests.fakes.reporter import Remembering

HOSTS = ("gpu1", "gpu2", "gpu3")


class Do(Step, frozen=True, kw_only=True):
    """A step that is only written down. It fails if `fails` or `hangs`, or if kit cannot reach the host (`lost`)."""

    what: str
    fails: bool = False
    lost: bool = False
    hangs: bool = False
    why: str = "a test needs it"

    def line(self) -> tuple[str, str]:
        return "do", self.what


@dataclass
class Bench:
    """Runs plans of `Do` and writes down what was done."""

    fleet: Fleet = field(default_factory=lambda: Fleet(3))
    reporter: Remembering = field(default_factory=Remembering)
    done: list[str] = field(default_factory=list)

    def execution(self) -> Execution:
        context = self.fleet.context(self.reporter)
        return Execution(
            cluster="lab",
            hosts={host.name: host for host in context.inventory.hosts},
            logins=context.logins,
            connect=context.connect,
            engine_of=context.engine_of,
            reporter=self.reporter,
            check=self.check,
        )

    def check(self) -> None:
        if "lose the lock" in self.done:
            raise NotReadyError("the lock was lost")

    def do(self, _execution: Execution, transport: Transport, step: Do) -> None:
        if step.lost:
            raise UnreachableError("no route", host=transport.host.name)
        if step.hangs:
            raise SlowError("no end", host=transport.host.name)
        self.done.append(step.what)
        if step.fails:
            raise StepError(f"{step.what} failed", host=transport.host.name)

    def run(self, *rounds: Round) -> set[str]:
        """Return the hosts that failed."""
        return set(execute.execute(self.execution(), Plan(cluster="lab", hosts=HOSTS, rounds=rounds)))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    one = Bench()
    monkeypatch.setattr(execute, "ON_HOST", {Do: one.do})
    return one


def one_round(name: str, hosts: Mapping[str, tuple[Step, ...]], needs: Needs = "all") -> Round:
    return Round(name=name, hosts=tuple(HostPlan(host=h, steps=s) for h, s in hosts.items()), needs=needs)


def do(what: str, *, fails: bool = False) -> tuple[Step, ...]:
    return (Do(what=what, fails=fails),)


def test_rounds_are_done_in_order_and_reported(bench: Bench) -> None:
    failed = bench.run(
        one_round("first", {"gpu1": do("a1"), "gpu2": do("a2")}),
        one_round("second", {"gpu2": (*do("b2"), *do("c2"))}),
    )
    assert failed == set()
    assert sorted(bench.done[:2]) == ["a1", "a2"]
    assert bench.done[2:] == ["b2", "c2"]
    assert [(phase.name, phase.hosts) for phase in bench.reporter.of(Phase)] == [
        ("first", ("gpu1", "gpu2")), ("second", ("gpu2",)),
    ]  # fmt: skip
    assert {event.text for event in bench.reporter.of(HostStep)} == {"do a1", "do a2", "do b2", "do c2"}
    assert [event.host for event in bench.reporter.of(HostDone)][2:] == ["gpu2"]


def test_a_host_stops_at_its_first_failure_and_the_others_continue(bench: Bench) -> None:
    failed = bench.run(one_round("only", {"gpu1": (*do("a1", fails=True), *do("b1")), "gpu2": (*do("a2"), *do("b2"))}))
    assert failed == {"gpu1"}
    assert set(bench.done) == {"a1", "a2", "b2"}
    assert [event.host for event in bench.reporter.of(HostFailed)] == ["gpu1"]


def test_a_round_that_needs_its_own_hosts_leaves_out_those_that_failed(bench: Bench) -> None:
    failed = bench.run(
        one_round("bring", {"gpu1": do("a1"), "gpu2": do("a2", fails=True)}),
        one_round("set up", {"gpu1": do("b1"), "gpu2": do("b2"), "gpu3": do("b3")}, needs="host"),
        one_round("verify", {"gpu1": do("c1")}),
    )
    assert failed == {"gpu2"}
    assert set(bench.done) == {"a1", "a2", "b1", "b3"}


def test_a_round_that_needs_all_hosts_ends_the_plan_after_a_failure(bench: Bench) -> None:
    """Also for later rounds that need their own hosts only: what they build on was not done."""
    failed = bench.run(
        one_round("take off", {"gpu1": do("a1", fails=True)}),
        one_round("bring", {"gpu2": do("b2")}),
        one_round("set up", {"gpu2": do("c2"), "gpu3": do("c3")}, needs="host"),
    )
    assert failed == {"gpu1"}
    assert bench.done == ["a1"]


def test_a_round_may_go_on_only_without_hosts_that_do_not_answer(bench: Bench) -> None:
    rounds = (
        one_round("take off", {"gpu1": (Do(what="a1", lost=True),)}),
        one_round("take down", {name: do(name) for name in HOSTS}, needs="reached"),
        one_round("leave", {"gpu1": do("c1")}, needs="host"),
    )
    assert bench.run(*rounds) == {"gpu1"}
    assert set(bench.done) == {"gpu2", "gpu3"}
    bench.done.clear()
    assert bench.run(one_round("take off", {"gpu1": (Do(what="a1", hangs=True),)}), *rounds[1:]) == {"gpu1"}
    assert set(bench.done) == {"gpu2", "gpu3"}
    bench.done.clear()
    assert bench.run(one_round("take off", {"gpu1": do("a1", fails=True)}), *rounds[1:]) == {"gpu1"}
    assert bench.done == ["a1"]


def test_no_step_begins_once_the_check_refuses(bench: Bench) -> None:
    failed = bench.run(
        one_round("first", {"gpu1": (*do("lose the lock"), *do("b1"))}),
        one_round("second", {"gpu2": do("a2")}, needs="host"),
    )
    assert failed == {"gpu1", "gpu2"}
    assert bench.done == ["lose the lock"]


def ship_step(image: str, address: str, source: tuple[str, str] | None = None) -> Ship:
    return Ship(image=image, image_id="sha256:ab", size=1, address=address, why="it is not there", source=source)


def test_a_broadcast_for_each_image_and_source(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step says what its host gets; no step counts for others."""
    calls: list[tuple[str, list[str], str | None]] = []
    lost = StepError("no space left on device", host="gpu3")

    def ship(image: str, *, targets: list[Target], source: Target | None, **_: object) -> Shipped:
        calls.append((image, [target.address for target in targets], source.address if source else None))
        failures: dict[str, KitError] = {"gpu3": lost} if "10.0.0.3" in calls[-1][1] else {}
        return Shipped(failures=failures)

    monkeypatch.setattr(steps, "ship", ship)
    by_host = {
        "gpu1": (ship_step("kit:a", "10.0.0.1"),),
        "gpu2": (ship_step("kit:b", "10.0.0.2", ("gpu1", "10.0.0.1")),),
        "gpu3": (ship_step("kit:a", "10.0.0.3"),),
    }
    hosts = tuple(HostPlan(host=name, steps=steps) for name, steps in by_host.items())
    failed = bench.run(
        Round(name="ship", hosts=hosts, together=True),
        one_round("set up", {name: do(name) for name in HOSTS}, needs="host"),
    )
    assert calls == [("kit:a", ["10.0.0.1", "10.0.0.3"], None), ("kit:b", ["10.0.0.2"], "10.0.0.1")]
    assert failed == {"gpu3"}
    assert set(bench.done) == {"gpu1", "gpu2"}
    assert [event.text for event in bench.reporter.of(HostDone)][:2] == ["has the image"] * 2


KINDS = {
    value
    for module in (model, swarm_model, setup_steps)
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, Step) and value is not Step
}


def test_each_kind_of_step_has_one_function_and_describes_itself() -> None:
    assert len(KINDS) == 43
    tables = [set(execute.ON_HOST), set(execute.ON_ALL)]
    assert set.union(*tables) == KINDS
    assert set.intersection(*tables) == set()
    for kind in KINDS:
        assert "line" in vars(kind), kind
        assert "why" in kind.__annotations__, kind


def test_a_plan_keeps_no_round_and_no_host_without_steps() -> None:
    plan = plan_of("lab", HOSTS, [
        one_round("first", {"gpu1": ()}),
        one_round("second", {"gpu1": (), "gpu2": do("a2")}, needs="host"),
    ])  # fmt: skip
    assert plan.hosts == HOSTS
    assert [(r.name, r.needs, [h.host for h in r.hosts]) for r in plan.rounds] == [("second", "host", ["gpu2"])]
    assert not plan.empty
    assert plan_of("lab", HOSTS, [one_round("first", {"gpu1": ()})]).empty
