"""The porter as a separate program, as kit sends it to a VM, beside an engine."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any

import pytest

from kit.remote.ship import porters
from kit.remote.ship.certificate import certificate
from kit.remote.ship.porter import wire
from kit.remote.ship.porter.engine import PART_LABEL
from kit.remote.ship.porter.layers import Layers
from kit.remote.ship.porter.serve import send
from kit.remote.ssh.program import BOOTSTRAP
from tests.fakes.socket_engine import FakeEngine, sha

BASE, MIDDLE, TOP = b"base" * 3000, b"middle" * 2000, b"top"
CHAIN = [sha(layer) for layer in (BASE, MIDDLE, TOP)]
CONFIG = {"architecture": "amd64", "os": "linux", "config": {"Env": ["A=1"]}}
IMAGE = "kit/horovod:abc"
CERTIFICATE, KEY = certificate()


class Sent:
    """A porter that was sent to this machine."""

    def __init__(self, engine: FakeEngine) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-Ic", BOOTSTRAP],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "DOCKER_HOST": f"unix://{engine.path}"},
        )
        assert self.process.stdin
        assert self.process.stdout
        assert self.process.stderr
        self.stdin: IO[bytes] = self.process.stdin
        self._stdout = self.process.stdout
        self._stderr = self.process.stderr
        self.put(porters.program())
        self.heard: list[dict[str, Any]] = []
        # What was passed over for a message of another kind: its threads say things in whichever order.
        self._passed: list[dict[str, Any]] = []

    def put(self, data: bytes) -> None:
        self.stdin.write(data)
        self.stdin.flush()

    def order(self, **words: Any) -> None:
        self.put(json.dumps(words).encode() + b"\n")

    def begin(self, **words: Any) -> None:
        config = {**CONFIG, "rootfs": {"type": "layers", "diff_ids": ["sha256:" + layer for layer in CHAIN]}}
        whole = {"image": IMAGE, "config": json.dumps(config), "layers": CHAIN, "owner": "mine", "most": 1 << 20}
        self.order(op="begin", **{**whole, **words}, certificate=CERTIFICATE, key=KEY.reveal().decode())

    def until(self, word: str) -> dict[str, Any]:
        """The next message of that kind."""
        for message in self._passed:
            if word in message:
                self._passed.remove(message)
                return message
        for line in self._stdout:
            message = json.loads(line)
            self.heard.append(message)
            assert word == "failed" or "failed" not in message, message
            if word in message:
                return dict(message)
            self._passed.append(message)
        pytest.fail(f"it ended before {word}: {self._stderr.read().decode()}")

    def gone(self) -> int:
        return self.process.wait(30)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.stdin, self._stdout, self._stderr):
            with contextlib.suppress(OSError):
                stream.close()


@pytest.fixture
def sent(engine: FakeEngine) -> Iterator[Callable[[], Sent]]:
    made: list[Sent] = []

    def start() -> Sent:
        made.append(Sent(engine))
        return made[-1]

    yield start
    for porter in made:
        porter.close()


class Answering:
    """An operator that has all layers: what it writes as frames comes to the porter as bytes of that serial."""

    def __init__(self, porter: Sent, serial: int) -> None:
        self._porter = porter
        self._serial = serial
        self.count = 0

    def write(self, data: bytes) -> int:
        self.count += len(data)
        head = json.dumps({"op": "bytes", "count": len(data), "serial": self._serial}).encode()
        self._porter.put(head + b"\n" + data)
        return len(data)

    def flush(self) -> None:
        pass


def whole(layers: Layers, *contents: bytes) -> Layers:
    for content in contents:
        path = layers.file("incoming")
        with open(path, "wb") as file:  # noqa: PTH123
            file.write(content)
        layers.admit(path, sha(content))
    return layers


def answer(porter: Sent, layers: Layers) -> int:
    """Answer its next question; the bytes that it took."""
    question = porter.until("ask")
    answering = Answering(porter, question["serial"])
    send(question["ask"], answering, layers)  # type: ignore[arg-type]
    return answering.count


def test_the_operator_may_answer_before_the_first_question(
    engine: FakeEngine, layers: Layers, sent: Callable[[], Sent]
) -> None:
    porter = sent()
    porter.begin()
    need = porter.until("ready")["ready"]["need"]
    porter.order(op="follow", turn=1, answered=need)
    send(need, Answering(porter, 1), whole(layers, BASE, MIDDLE, TOP))  # type: ignore[arg-type]
    porter.until("done")
    assert not any("ask" in message for message in porter.heard)
    assert engine.chain(IMAGE) == CHAIN


def test_a_porter_that_needs_something_else_than_was_answered_asks(
    engine: FakeEngine, layers: Layers, sent: Callable[[], Sent]
) -> None:
    porter = sent()
    porter.begin()
    porter.until("ready")
    porter.order(op="follow", turn=1, answered={CHAIN[0]: 0})
    question = porter.until("ask")
    assert (question["serial"], question["ask"]) == (2, dict.fromkeys(CHAIN, 0))
    send(question["ask"], Answering(porter, 2), whole(layers, BASE, MIDDLE, TOP))  # type: ignore[arg-type]
    porter.until("done")
    assert engine.chain(IMAGE) == CHAIN


def test_it_begins_takes_layers_in_and_goes(engine: FakeEngine, layers: Layers, sent: Callable[[], Sent]) -> None:
    porter = sent()
    porter.begin()
    ready = porter.until("ready")["ready"]
    assert ready["need"] == dict.fromkeys(CHAIN, 0)
    assert ready["held"] == 0
    assert ready["port"] == 0
    porter.order(op="follow", turn=1)
    answer(porter, whole(layers, BASE, MIDDLE, TOP))
    porter.until("done")
    assert any("received" in message for message in porter.heard)
    loaded = engine.find(IMAGE)
    assert loaded
    assert engine.chain(IMAGE) == CHAIN
    assert loaded["Config"] == {"Env": ["A=1"]}
    # Images of the first layers alone were helpers.
    assert [image for image in engine.images.values() if PART_LABEL in image["Config"].get("Labels", {})] == []
    porter.order(op="end", keep=False)
    assert porter.gone() == 0
    assert not (engine.root / "kit-ship").exists()


def test_beats_come_while_the_ship_waits_for_another_host(sent: Callable[[], Sent]) -> None:
    porter = sent()
    porter.order(op="beat")
    porter.begin()
    assert porter.until("ready")


def test_what_the_engine_has_is_not_requested(engine: FakeEngine, layers: Layers, sent: Callable[[], Sent]) -> None:
    engine.add([BASE, MIDDLE], "other:1")
    porter = sent()
    porter.begin()
    ready = porter.until("ready")["ready"]
    assert (ready["held"], ready["need"]) == (2, {CHAIN[2]: 0})
    porter.order(op="follow", turn=1)
    answer(porter, whole(layers, TOP))
    porter.until("done")
    assert engine.chain(IMAGE) == CHAIN


def test_an_engine_that_has_all_gets_the_name_only(engine: FakeEngine, sent: Callable[[], Sent]) -> None:
    engine.add([BASE, MIDDLE, TOP], "other:1")
    porter = sent()
    porter.begin()
    assert porter.until("ready")["ready"]["need"] == {}
    porter.until("done")
    assert engine.chain(IMAGE) == CHAIN


def test_what_an_interrupted_ship_left_is_gone_on_from(
    engine: FakeEngine, layers: Layers, sent: Callable[[], Sent]
) -> None:
    first = sent()
    first.begin()
    first.until("ready")
    first.order(op="follow", turn=1)
    serial = first.until("ask")["serial"]
    part = Answering(first, serial)
    wire.write_header(part, CHAIN[0], len(BASE), 0)  # type: ignore[arg-type]
    wire.write_frame(part, wire.DATA, BASE[:5000])  # type: ignore[arg-type]
    while first.until("at")["at"] < 5000:
        pass
    # The operator is gone.
    first.stdin.close()
    assert first.gone() == 0
    second = sent()
    second.begin()
    assert second.until("ready")["ready"]["need"] == {CHAIN[0]: 5000, CHAIN[1]: 0, CHAIN[2]: 0}
    second.order(op="follow", turn=1)
    took = answer(second, whole(layers, BASE, MIDDLE, TOP))
    assert took < len(BASE + MIDDLE + TOP) - 5000 + 1000
    second.until("done")
    assert engine.chain(IMAGE) == CHAIN


def test_whole_layers_that_went_bad_on_disk_come_again(
    engine: FakeEngine, layers: Layers, sent: Callable[[], Sent]
) -> None:
    """All bytes are here at once, and it is the engine that finds one wrong."""
    folder = engine.root / "kit-ship" / "mine"
    folder.mkdir(parents=True)
    for content in (BASE, MIDDLE[:-1] + b"!", TOP):
        (folder / sha(content if content in (BASE, TOP) else MIDDLE)).write_bytes(content)
    porter = sent()
    porter.begin()
    porter.until("ready")
    porter.order(op="follow", turn=1)
    assert porter.until("corrupt")["corrupt"] == CHAIN[1]
    assert answer(porter, whole(layers, MIDDLE)) < len(MIDDLE) + 1000
    porter.until("done")
    assert engine.chain(IMAGE) == CHAIN


def test_two_porters_one_after_the_other(
    engine: FakeEngine, sent: Callable[[], Sent], request: pytest.FixtureRequest
) -> None:
    """The source takes layers out of its engine and hands them on; the other one loads them."""
    with_image = FakeEngine(engine.root.parent / "source")
    with_image.add([BASE, MIDDLE, TOP], IMAGE, Env=["A=1"])
    source = Sent(with_image)
    request.addfinalizer(source.close)
    request.addfinalizer(with_image.close)
    source.order(op="inspect", image=IMAGE)
    inspected = source.until("inspected")["inspected"]
    assert inspected["layers"] == CHAIN
    words = {"config": inspected["config"], "layers": CHAIN, "listen": "127.0.0.1"}
    # The engine took its time for that.
    source.order(op="beat")
    source.begin(**words)
    port = source.until("ready")["ready"]["port"]
    porter = sent()
    porter.begin(**words)
    porter.until("ready")
    # Several may turn to the source, and want the same.
    source.order(op="fill", want=CHAIN)
    source.order(op="fill", want=CHAIN)
    porter.order(op="follow", turn=1, address="127.0.0.1", port=port)
    porter.until("done")
    assert engine.chain(IMAGE) == CHAIN
    loaded = engine.find(IMAGE)
    assert loaded
    assert loaded["Config"]["Env"] == ["A=1"]
    assert {source.until("filled")["filled"], source.until("filled")["filled"]} <= {"save", ""}
    assert [path for path in with_image.requests if "/images/get" in path] == [f"GET /images/get?names={quoted(IMAGE)}"]
    source.order(op="end", keep=False)
    assert source.gone() == 0


def quoted(name: str) -> str:
    return name.replace("/", "%2F").replace(":", "%3A")


def test_what_goes_wrong_is_reported(engine: FakeEngine, sent: Callable[[], Sent]) -> None:
    porter = sent()
    porter.order(op="inspect", image="nothing:1")
    report = porter.until("failed")
    assert report == {"failed": "no such image: nothing:1", "kind": "engine"}


@pytest.mark.parametrize(
    ("report", "kind"), [("it does not like this", "engine"), ("write /var/lib: no space left on device", "disk")]
)
def test_an_engine_that_refuses_is_quoted(
    engine: FakeEngine, layers: Layers, sent: Callable[[], Sent], report: str, kind: str
) -> None:
    engine.refuse.append(report)
    porter = sent()
    porter.begin()
    porter.until("ready")
    porter.order(op="follow", turn=1)
    answer(porter, whole(layers, BASE, MIDDLE, TOP))
    assert porter.until("failed") == {"failed": report, "kind": kind}
