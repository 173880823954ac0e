"""Who takes an image from whom, and what becomes of a ship when one of them fails. Porters and engine are made up."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kit.errors import ImageError, KitError, StepError, UnreachableError
from kit.events import Note
from kit.model.answer import OddAnswer
from kit.model.code import Needed
from kit.model.host import Login
from kit.remote.ship import lead as module
from kit.remote.ship import reports, spool
from kit.remote.ship.broadcast import ship
from kit.remote.ship.cargo import Cargo, ImageThere
from kit.remote.ship.faults import CODE
from kit.remote.ship.lanes import Target
from kit.remote.ship.reports import Report
from kit.remote.ship.result import Shipped
from kit.remote.ship.turn import Turn
from tests.fakes.reporter import Remembering

LONG = 30.0
CHAIN = ["a" * 64, "b" * 64, "c" * 64]
CONFIG = json.dumps({"rootfs": {"diff_ids": [f"sha256:{layer}" for layer in CHAIN]}})
IMAGE = "kit/horovod:abc"
Words = dict[str, Any]
# What a host does with an order; False when it does as others do.
Behaviour = Callable[["FakePorter", Words], bool]


class World:
    """All hosts. By default each needs all layers, and gets them as soon as it follows another."""

    def __init__(self) -> None:
        self.porters: dict[str, FakePorter] = {}
        self.need: dict[str, dict[str, int]] = {}
        self.behave: dict[str, Behaviour] = {}
        self.spool: FakeSpool | None = None
        self.reporter = Remembering()
        self.broken: KitError | None = None
        self.answer: Callable[[dict[str, int], Callable[[bytes], None]], None] = lambda need, put: None

    def ship(self, *hosts: str, source: str | None = None) -> Shipped:
        targets = [target(host) for host in hosts]
        given = target(source) if source else None
        return ship(IMAGE, owner="mine", targets=targets, reporter=self.reporter, source=given)

    def follows(self, host: str) -> list[str]:
        """Return the upstreams that the host was given, in order."""
        return [words.get("address", "operator") for words in self.porters[host].orders if words["op"] == "follow"]


def target(host: str) -> Target:
    login = Login(host=host, address=host, user=None, port=None, key=None, known_hosts=None)
    return Target(login=login, address=f"{host}.internal")


class FakePorter:
    world: World

    def __init__(
        self, login: Login, heard: Callable[[Any, Report | OddAnswer | None], None], *, bulk: bool = True
    ) -> None:
        self.host = login.host
        self.bulk = bulk
        self.kept = not bulk
        self.last_heard = time.monotonic()
        self.sent = 100
        self.exit_code: int | None = None
        self.output = ""
        self.killed = False
        self.waited = False
        self.orders: list[Words] = []
        self.received: list[tuple[bytes, int]] = []
        self._heard = heard
        self.world.porters[self.host] = self

    def hear(self, **message: Any) -> None:
        try:
            report: Report | OddAnswer = reports.read(json.dumps(message).encode())
        except OddAnswer as odd:
            report = odd
        self._heard(self, report)

    def gone(self, code: int, output: str) -> None:
        self.exit_code, self.output = code, output
        self._heard(self, None)

    def ready(self) -> None:
        need = self.world.need.get(self.host, dict.fromkeys(CHAIN, 0))
        port = 1000 + len(self.world.porters)
        self.hear(ready={"need": need, "held": len(CHAIN) - len(need), "port": port})
        if not need:
            self.done()

    def done(self) -> None:
        self.hear(received=True)
        self.hear(done=True, load_s=1.5)

    def order(self, **words: Any) -> None:
        self.orders.append(words)
        if self.host in self.world.behave and self.world.behave[self.host](self, words):
            return
        if words["op"] == "inspect":
            self.hear(inspected={"config": CONFIG, "layers": CHAIN, "sizes": [1, 2, 3]})
        elif words["op"] == "enter":
            self.hear(entered=True)
        elif words["op"] == "begin":
            self.ready()
        elif words["op"] == "follow":
            self.done()

    def send(self, data: bytes, serial: int) -> None:
        self.received.append((data, serial))

    def complaint(self) -> str:
        return self.output

    def end(self, *, keep: bool) -> None:
        self.orders.append({"op": "end", "keep": keep})

    def wait(self, patience: float) -> None:
        self.waited = True

    def kill(self) -> None:
        self.killed = True

    @property
    def cleaned(self) -> bool:
        return self.orders[-1] == {"op": "end", "keep": False} and self.waited


class FakeSpool:
    world: World

    def __init__(self, image: str, failed: Callable[[KitError], None]) -> None:
        assert image == IMAGE
        if self.world.broken:
            raise self.world.broken
        self.failed = failed
        self.config, self.chain, self.sizes, self.size = CONFIG, CHAIN, [1, 2, 3], 6
        self.provided: list[set[str]] = []
        self.closed = False
        self.world.spool = self

    def provide(self, wanted: set[str]) -> None:
        self.provided.append(wanted)

    def answer(self, need: dict[str, int], put: Callable[[bytes], None]) -> None:
        self.world.answer(need, put)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(module, "Porter", type("Porter", (FakePorter,), {"world": made}))
    monkeypatch.setattr(spool, "Spool", type("Spool", (FakeSpool,), {"world": made}))
    return made


def on(op: str, work: Callable[[FakePorter, Words], object], *, turn: int | None = None) -> Behaviour:
    """Does this at the order `op` (the one of that turn)."""

    def behave(porter: FakePorter, words: Words) -> bool:
        if words["op"] != op or turn not in (None, words.get("turn")):
            return False
        work(porter, words)
        return True

    return behave


def nothing(porter: FakePorter, words: Words) -> None:
    pass


def fails(kind: str, text: str = "it broke") -> Callable[[FakePorter, Words], None]:
    return lambda porter, _: porter.hear(failed=text, kind=kind)


# The chain.


def test_who_needs_most_is_first(world: World) -> None:
    world.need = {"few": {CHAIN[2]: 0}, "begun": dict.fromkeys(CHAIN, 5), "none": {}}
    shipped = world.ship("few", "all", "none", "begun")
    assert shipped.failures == {}
    assert world.follows("begun") == ["operator"]
    assert world.follows("all") == ["begun.internal"]
    assert world.follows("few") == ["all.internal"]
    assert world.follows("none") == []
    assert world.spool
    assert world.spool.provided == [set(CHAIN)]
    ports = {words["port"] for words in world.porters["all"].orders if words["op"] == "follow"}
    assert ports == {1000 + 4}


def test_what_came_of_it_is_reported(world: World) -> None:
    shipped = world.ship("one", "two")
    assert shipped.sent == 200
    assert shipped.load_s == {"one": 1.5, "two": 1.5}
    (note,) = world.reporter.of(Note)
    assert "from host to host" in note.text


def test_only_who_is_heard_by_others_listens(world: World) -> None:
    world.ship("one")
    assert world.porters["one"].orders[0]["listen"] is None
    world.ship("one", "two")
    begun = [world.porters[host].orders[0] for host in ("one", "two")]
    assert [words["listen"] for words in begun] == ["one.internal", "two.internal"]
    assert begun[0]["certificate"] == begun[1]["certificate"]
    assert begun[0]["key"] == begun[1]["key"]
    assert begun[0]["layers"] == CHAIN


def test_all_hosts_have_a_connection_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: list[int] = []
    monkeypatch.setattr(module, "open_files", SimpleNamespace(allow=allowed.append))
    world.ship("one", "two", "three")
    assert allowed == [3]


# Little code goes over kept connections.


def little(world: World, *hosts: str, confirm: str = "", spool: FakeSpool | None = None) -> Shipped:
    cargo = Cargo(words=CODE, order={"layers": CHAIN, "most": 9}, sizes=(9,), bulk=False, spool=cast(Any, spool))
    targets = [target(host) for host in hosts]
    listed = Needed(at=0.0)
    turn = Turn(head=confirm, store="code", needed=listed, renewed=lambda: listed)
    with closing(module.Ship("mine", targets, world.reporter, cargo=cargo, turn=turn)) as this_ship:
        return this_ship.run()


def test_a_dead_kept_connection_is_replaced_once(world: World) -> None:
    started: list[bool] = []

    def dead(porter: FakePorter, _: Words) -> bool:
        started.append(porter.bulk)
        if porter.kept:
            porter.gone(255, "mux_client: broken pipe")
        return porter.kept

    world.behave["two"] = lambda porter, words: words["op"] == "begin" and dead(porter, words)
    assert little(world, "one", "two").failures == {}
    assert started == [False, True]
    assert not world.porters["one"].bulk


def test_a_ship_waits_at_the_head_before_it_takes_another_host(world: World) -> None:
    """Two ships would wait for each other for ever."""

    def enters(porter: FakePorter, _: Words) -> None:
        porter.hear(waits=True)
        # Meanwhile, one more connection turns out to be dead.
        world.porters["one"].gone(255, "mux_client: broken pipe")
        assert not any(world.porters[host].orders for host in ("one", "two"))
        porter.hear(entered=True)

    world.behave["head"] = on("enter", enters)
    assert little(world, "one", "head", "two", confirm="head").failures == {}
    assert [words["op"] for words in world.porters["head"].orders][:2] == ["enter", "begin"]
    assert world.porters["one"].bulk


def test_a_dead_kept_connection_to_the_head_is_replaced_before_the_turn_has_come(world: World) -> None:
    started: list[bool] = []

    def enters(porter: FakePorter, words: Words) -> bool:
        if words["op"] == "enter":
            started.append(porter.bulk)
        if words["op"] != "enter" or not porter.kept:
            return False
        porter.gone(255, "mux_client: broken pipe")
        return True

    world.behave["head"] = enters
    assert little(world, "head", "one", confirm="head").failures == {}
    assert started == [False, True]


def test_a_ship_takes_no_host_without_its_turn(world: World) -> None:
    world.behave["head"] = on("enter", fails("system", "another ship of this cluster is running here"))
    shipped = little(world, "one", "head", confirm="head")
    assert list(shipped.failures) == ["head"]
    assert world.porters["one"].orders == []


@pytest.mark.parametrize("is_done", [False, True])
def test_a_ship_that_loses_its_turn_waits_for_no_host(world: World, is_done: bool) -> None:
    """Another one may have its turn now, and that host."""

    def loses(porter: FakePorter, _: Words) -> None:
        if is_done:
            porter.ready()
        porter.gone(255, "Connection reset by peer")

    world.need["head"] = {}
    world.behave = {"head": on("begin", loses), "one": on("begin", nothing)}
    shipped = little(world, "head", "one", confirm="head")
    assert list(shipped.failures) == ["head"]
    assert world.porters["one"].killed


@pytest.mark.parametrize("text", ["the snapshot is not here", "no space left"])
def test_a_head_that_fails_keeps_the_turn_until_the_end(world: World, text: str) -> None:
    """Its porter lives, and with it the turn, while the others wait for their hosts."""
    world.behave["head"] = on("begin", fails("disk" if "space" in text else "base", text))
    lives: list[bool] = []

    def begins(porter: FakePorter, _: Words) -> None:
        lives.append(not world.porters["head"].killed)
        porter.ready()

    world.behave["one"] = on("begin", begins)
    shipped = little(world, "head", "one", confirm="head")
    assert list(shipped.failures) == ["head"]
    assert "one" in shipped.load_s
    assert lives == [True]
    # What came so far does not keep its disk full.
    assert world.porters["head"].cleaned is ("space" in text)
    assert world.porters["head"].killed is ("space" not in text)


@pytest.mark.parametrize("report", [{"ready": {"need": {}, "held": 3, "port": 1}}, {"ask": {CHAIN[0]: 0}, "serial": 1}])
def test_a_head_that_has_only_its_turn_has_nothing_else_to_say(world: World, report: Words) -> None:
    world.behave["head"] = on("enter", lambda porter, _: porter.hear(**report))
    shipped = little(world, "head", "one", confirm="head")
    assert list(shipped.failures) == ["head"]
    assert world.porters["one"].orders == []


@pytest.mark.parametrize("have", [0, 5])
def test_the_first_question_for_code_is_answered_before_it_comes(world: World, have: int) -> None:
    """Only what is there already is unknown here: its bytes may turn out to be wrong."""
    made: type[FakeSpool] = type("Spool", (FakeSpool,), {"world": world})
    spool = made(IMAGE, lambda _: None)
    need = {CHAIN[0]: 0, CHAIN[1]: have}
    world.need["one"] = need
    questions: list[dict[str, int]] = []
    answered = threading.Event()

    def answer(need: dict[str, int], put: Callable[[bytes], None]) -> None:
        questions.append(need)
        put(b"frames")
        answered.set()

    world.answer = answer

    def follows(porter: FakePorter, words: Words) -> None:
        if words.get("answered") is None:
            porter.hear(ask=need, serial=1)
        assert porter.received == []
        threading.Thread(target=lambda: answered.wait(LONG) and porter.done()).start()

    world.behave["one"] = on("follow", follows)
    # The head has everything.
    world.need["head"] = {}
    assert little(world, "head", "one", confirm="head", spool=spool).failures == {}
    porter = world.porters["one"]
    (follow,) = (words for words in porter.orders if words["op"] == "follow")
    assert follow.get("answered") == (None if have else need)
    assert porter.received == [(b"frames", 1)]
    assert questions == [need]


def test_a_host_that_asks_for_code_too_early_does_not_end_the_ship_to_the_others(world: World) -> None:
    made: type[FakeSpool] = type("Spool", (FakeSpool,), {"world": world})
    spool = made(IMAGE, lambda _: None)
    need = dict.fromkeys(CHAIN, 0)

    def begins(porter: FakePorter, _: Words) -> None:
        # A porter asks only when it is ordered to follow.
        porter.hear(ask=need, serial=1)
        porter.ready()

    world.behave["one"] = lambda porter, words: (
        on("begin", begins)(porter, words)
        or on("follow", lambda porter, _: porter.hear(ask=need, serial=1))(porter, words)
    )
    # The head has everything, so this machine gives the layers to the host that asks.
    world.need["head"] = {}
    assert list(little(world, "head", "one", "two", confirm="head", spool=spool).failures) == ["one"]


def test_a_new_connection_that_breaks_is_not_replaced(world: World) -> None:
    def broken(porter: FakePorter, _: Words) -> None:
        porter.gone(255, "Connection reset by peer")

    world.behave["two"] = on("begin", broken)
    shipped = little(world, "one", "two")
    assert isinstance(shipped.failures["two"], UnreachableError)
    assert world.porters["two"].bulk


def test_a_kept_connection_that_breaks_later_is_not_replaced(world: World) -> None:
    world.behave["two"] = on("follow", lambda porter, _: porter.gone(255, "Connection reset by peer"))
    shipped = little(world, "one", "two")
    assert list(shipped.failures) == ["two"]
    assert not world.porters["two"].bulk


def test_an_image_has_connections_to_itself(world: World) -> None:
    world.ship("one", "two")
    assert all(porter.bulk for porter in world.porters.values())


# Failures of hosts.


def test_who_took_from_a_host_that_failed_takes_from_the_one_before(world: World) -> None:
    world.behave["three"] = on("follow", nothing, turn=1)
    world.behave["two"] = on("follow", fails("system"))
    shipped = world.ship("one", "two", "three")
    assert list(shipped.failures) == ["two"]
    assert world.follows("three") == ["two.internal", "one.internal"]
    assert [words["turn"] for words in world.porters["three"].orders if words["op"] == "follow"] == [1, 2]
    assert world.porters["two"].killed
    assert set(shipped.load_s) == {"one", "three"}


def test_who_took_from_the_first_takes_from_the_operator(world: World) -> None:
    world.need["two"] = {CHAIN[2]: 0}
    world.behave["two"] = on("follow", nothing, turn=1)
    world.behave["one"] = on("follow", fails("system"))
    shipped = world.ship("one", "two")
    assert list(shipped.failures) == ["one"]
    assert world.follows("two") == ["one.internal", "operator"]
    assert world.spool
    assert world.spool.provided == [set(CHAIN), {CHAIN[2]}]


def test_several_that_failed_are_passed_over(world: World) -> None:
    world.behave["four"] = on("follow", nothing, turn=1)
    world.behave["two"] = on("follow", nothing)

    def both_fail(porter: FakePorter, _: Words) -> None:
        world.porters["two"].hear(failed="it broke", kind="system")
        porter.hear(failed="it broke, too", kind="system")

    world.behave["three"] = on("follow", both_fail)
    shipped = world.ship("one", "two", "three", "four")
    assert list(shipped.failures) == ["two", "three"]
    assert world.follows("four")[-1] == "one.internal"


def test_who_has_all_is_left_alone(world: World) -> None:
    """It unpacks; where it came from does not matter any more."""
    world.behave["one"] = on("follow", nothing)

    def all_here(porter: FakePorter, _: Words) -> None:
        porter.hear(received=True)
        world.porters["one"].hear(failed="it broke", kind="system")
        porter.hear(done=True, load_s=1.0)

    world.behave["two"] = on("follow", all_here)
    shipped = world.ship("one", "two")
    assert list(shipped.failures) == ["one"]
    assert world.follows("two") == ["one.internal"]


def test_who_has_to_get_a_layer_again_is_not(world: World) -> None:
    """Its engine refused a layer after all had come, and then the host went from which it would come again."""
    world.behave["one"] = on("follow", nothing)

    def refused(porter: FakePorter, _: Words) -> None:
        porter.hear(received=True)
        porter.hear(corrupt=CHAIN[0], count=1)
        world.porters["one"].hear(failed="it broke", kind="system")

    world.behave["two"] = on("follow", refused, turn=1)
    shipped = world.ship("one", "two")
    assert list(shipped.failures) == ["one"]
    assert world.follows("two") == ["one.internal", "operator"]
    assert [event.text for event in world.reporter.warnings] == [
        f"two: the layer {'a' * 12} came with wrong bytes; kit sends it again"
    ]


def test_a_lost_connection_goes_one_up_and_at_last_to_the_operator(world: World) -> None:
    def lose(porter: FakePorter, words: Words) -> None:
        # An old report comes late, and means nothing.
        porter.hear(lost="old news", turn=words["turn"] - 1)
        porter.hear(lost="No route to host", turn=words["turn"])

    def behave(porter: FakePorter, words: Words) -> bool:
        if words["op"] == "follow" and "address" in words:
            lose(porter, words)
            return True
        return False

    world.behave["three"] = behave
    shipped = world.ship("one", "two", "three")
    assert shipped.failures == {}
    assert world.follows("three") == ["two.internal", "one.internal", "operator"]
    assert [event.text for event in world.reporter.warnings] == [
        f"three cannot take the image from {host} ({host}.internal): No route to host" for host in ("two", "one")
    ]


def test_who_loses_the_operator_too_is_out(world: World) -> None:
    world.behave["two"] = on("follow", lambda porter, words: porter.hear(lost="timed out", turn=words["turn"]))
    shipped = world.ship("one", "two")
    assert world.follows("two") == ["one.internal", "operator"]
    error = shipped.failures["two"]
    assert isinstance(error, UnreachableError)
    assert "timed out" in error.message


def test_a_host_that_never_answers_is_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "START_S", 0.0)
    world.behave["two"] = on("begin", nothing)
    shipped = world.ship("one", "two", "three")
    assert list(shipped.failures) == ["two"]
    assert isinstance(shipped.failures["two"], UnreachableError)
    assert world.follows("two") == []
    assert world.follows("three") == ["one.internal"]
    assert world.porters["two"].killed


def test_a_host_that_falls_silent_is_out(world: World) -> None:
    def silent(porter: FakePorter, _: Words) -> None:
        porter.last_heard -= 2 * module.SILENCE_S

    world.behave["two"] = on("follow", silent)
    world.behave["three"] = on("follow", nothing, turn=1)
    shipped = world.ship("one", "two", "three")
    assert list(shipped.failures) == ["two"]
    assert "it sent nothing" in shipped.failures["two"].message
    assert world.follows("three") == ["two.internal", "one.internal"]


@pytest.mark.parametrize(
    ("code", "output", "kind", "text"),
    [
        (255, "ssh: connect to host two port 22: No route to host", UnreachableError, "No route to host"),
        (
            255,
            "kex_exchange_identification: read: Connection reset by peer\nx",
            UnreachableError,
            "hung up before the login",
        ),
        (127, "bash: line 1: python3: command not found", StepError, "python3: command not found"),
        (1, "SyntaxError: invalid syntax", StepError, "invalid syntax"),
        (1, "", StepError, "exit code 1"),
    ],
)
def test_a_porter_that_ended_is_reported_by_its_last_words(
    world: World, code: int, output: str, kind: type[KitError], text: str
) -> None:
    world.behave["two"] = on("begin", lambda porter, _: porter.gone(code, output))
    error = world.ship("one", "two").failures["two"]
    assert type(error) is kind
    assert text in error.message
    assert error.host == "two"
    assert error.hint


def test_a_full_disk_is_cleared_before_the_host_is_left(world: World) -> None:
    world.behave["two"] = on("follow", fails("disk"))
    shipped = world.ship("one", "two")
    assert "no space left" in shipped.failures["two"].message
    assert world.porters["two"].cleaned
    assert world.porters["two"].killed


def test_what_is_kept_of_another_failure_is_for_the_next_ship(world: World) -> None:
    world.behave["two"] = on("follow", fails("corrupt"))
    world.ship("one", "two")
    assert not any(words["op"] == "end" for words in world.porters["two"].orders)
    assert world.porters["two"].killed


# What the operator sends.


def test_the_operator_answers_the_latest_question_alone(world: World) -> None:
    asked_again, reported = threading.Event(), threading.Event()
    refused: list[type[BaseException]] = []

    def answer(need: dict[str, int], put: Callable[[bytes], None]) -> None:
        if need == {CHAIN[0]: 0}:
            assert asked_again.wait(LONG)
            try:
                put(b"late")
            except OSError as error:
                refused.append(type(error))
            reported.set()
            return
        put(b"now")
        asked_again.set()
        assert reported.wait(LONG)
        world.porters["one"].done()

    def ask(porter: FakePorter, _: Words) -> None:
        porter.hear(ask={CHAIN[0]: 0}, serial=1)
        porter.hear(ask={CHAIN[0]: 7}, serial=2)

    world.answer = answer
    world.behave["one"] = on("follow", ask)
    assert world.ship("one").failures == {}
    assert world.porters["one"].received == [(b"now", 2)]
    assert refused == [BrokenPipeError]


def test_an_engine_here_that_gives_no_layers_ends_it(world: World) -> None:
    def fail(porter: FakePorter, _: Words) -> None:
        assert world.spool
        world.spool.failed(ImageError("it gave up"))

    world.behave["one"] = on("follow", fail)
    with pytest.raises(ImageError, match="it gave up"):
        world.ship("one", "two")
    assert closed(world)


def test_an_engine_here_without_the_image_ends_it_before_any_host_hears_of_it(world: World) -> None:
    world.broken = ImageError("no such image")
    with pytest.raises(ImageError):
        world.ship("one")
    assert world.porters == {}


# Out of another host's engine.


def at_work(porter: FakePorter, words: Words) -> bool:
    """A source has the image itself, and is done with that at once."""
    world = porter.world
    world.need[porter.host] = {}
    return False


def test_the_first_takes_from_the_source(world: World) -> None:
    world.behave["head"] = at_work
    shipped = world.ship("one", "two", source="head")
    assert shipped.failures == {}
    assert world.spool is None
    assert world.follows("one") == ["head.internal"]
    assert world.follows("two") == ["one.internal"]
    orders = world.porters["head"].orders
    assert [words["op"] for words in orders] == ["inspect", "begin", "fill", "end"]
    assert orders[2]["want"] == CHAIN
    assert set(shipped.load_s) == {"one", "two"}
    assert all(porter.cleaned for porter in world.porters.values())


def test_who_took_from_the_first_takes_from_the_source_and_no_further_up(world: World) -> None:
    world.behave["head"] = at_work
    world.behave["one"] = on("follow", fails("system"))
    world.behave["two"] = on("follow", lambda porter, words: porter.hear(lost="timed out", turn=words["turn"]))
    shipped = world.ship("one", "two", source="head")
    assert world.follows("two") == ["one.internal", "head.internal"]
    assert isinstance(shipped.failures["two"], UnreachableError)
    assert "head (head.internal)" in shipped.failures["two"].message


def test_a_source_without_the_image_ends_it(world: World) -> None:
    world.behave["head"] = on("inspect", fails("engine", "no such image"))
    with pytest.raises(ImageError, match="no such image") as caught:
        world.ship("one", source="head")
    assert caught.value.host == "head"
    assert list(world.porters) == ["head"]
    assert closed(world)


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        # The image of that name would be there, and kit image build alone would build nothing.
        ("engine", "If head fails again, first: kit image build --builder head --force"),
        ("disk", "free space (docker system prune), then run kit deploy again"),
    ],
)
def test_the_hint_for_a_source_that_fails_is_that_of_its_failure(world: World, kind: str, hint: str) -> None:
    world.behave["head"] = on("inspect", fails(kind))
    with pytest.raises(ImageError, match="head: does not give") as caught:
        world.ship("one", source="head")
    assert caught.value.hint is not None
    assert caught.value.hint.endswith(hint)
    # kit does not build a plugin's image.
    assert ImageThere(image="kit-plugin:lab", origin="sha256:1f").renewal == ""


def test_a_source_that_does_not_answer_ends_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "START_S", 0.01)
    world.behave["head"] = on("inspect", nothing)
    with pytest.raises(ImageError, match="does not answer"):
        world.ship("one", source="head")
    assert closed(world)


def source_that(op: str, work: Callable[[FakePorter, Words], object]) -> Behaviour:
    special = on(op, work)
    return lambda porter, words: at_work(porter, words) or special(porter, words)


@pytest.mark.parametrize(
    "work",
    [
        fails("engine", "it gave up"),
        lambda porter, _: porter.gone(255, "it gave up"),
    ],
    ids=["fails", "ends"],
)
@pytest.mark.parametrize("op", ["begin", "fill"])
def test_a_source_that_fails_while_hosts_wait_for_it_ends_it(
    world: World, work: Callable[[FakePorter, Words], object], op: str
) -> None:
    """Also where it has the image itself, and was done with that before."""
    world.behave["head"] = source_that(op, work)
    world.behave["one"] = world.behave["two"] = on("follow", nothing)
    with pytest.raises(ImageError, match=r"head: does not give .*it gave up"):
        world.ship("one", "two", source="head")
    assert closed(world)


def test_a_source_that_falls_silent_while_hosts_wait_for_it_ends_it(world: World) -> None:
    def silent(porter: FakePorter, _: Words) -> None:
        porter.last_heard -= 2 * module.SILENCE_S

    world.behave["head"] = source_that("fill", silent)
    world.behave["one"] = on("follow", nothing)
    with pytest.raises(ImageError, match="it sent nothing"):
        world.ship("one", source="head")
    assert closed(world)


def test_a_source_that_fails_when_the_first_has_all_is_not_missed(world: World) -> None:
    world.behave["head"] = at_work

    def all_here(porter: FakePorter, _: Words) -> None:
        porter.hear(received=True)
        world.porters["head"].hear(failed="it broke", kind="system")
        world.porters["two"].done()
        porter.hear(done=True, load_s=1.0)

    world.behave["one"] = on("follow", all_here)
    world.behave["two"] = on("follow", nothing)
    assert world.ship("one", "two", source="head").failures == {}


# The end.


def closed(world: World) -> bool:
    """Every porter was ended or killed."""
    return all(porter.killed or porter.cleaned for porter in world.porters.values()) and (
        world.spool is None or world.spool.closed
    )


def test_who_is_done_is_cleaned_and_who_failed_is_killed(world: World) -> None:
    world.behave["two"] = on("follow", fails("system"))
    world.ship("one", "two", "three")
    assert [world.porters[host].cleaned for host in ("one", "two", "three")] == [True, False, True]
    assert closed(world)


def test_ctrl_c_leaves_no_porter(world: World) -> None:
    def pressed(porter: FakePorter, _: Words) -> None:
        raise KeyboardInterrupt

    world.behave["three"] = on("begin", pressed)
    with pytest.raises(KeyboardInterrupt):
        world.ship("one", "two", "three")
    assert closed(world)
    # What had come stays for the next ship.
    assert not any(words["op"] == "end" for porter in world.porters.values() for words in porter.orders)
