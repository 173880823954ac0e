"""The turn of a ship of code at the head: one porter has it until it ends, as separate programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from kit.remote.ship.porter import main
from tests.fakes.socket_engine import FakeEngine
from tests.unit.remote.ship.porter.test_code import TREE, Host, manifest_of, pack_of, sha
from tests.unit.remote.ship.porter.test_program import CERTIFICATE, KEY, Sent

NAME, BASE = "a" * 64, "b" * 64


@pytest.fixture
def start(engine: FakeEngine) -> Iterator[Callable[[], Sent]]:
    made: list[Sent] = []

    def another() -> Sent:
        made.append(Sent(engine))
        return made[-1]

    yield another
    for porter in made:
        porter.close()


def test_the_next_waits_until_the_one_before_has_ended(start: Callable[[], Sent], tmp_path: Path) -> None:
    first, second = start(), start()
    store = str(tmp_path / "code")
    first.order(op="enter", store=store)
    assert first.until("entered") == {"entered": True}
    second.order(op="enter", store=store)
    assert second.until("waits") == {"waits": True}
    # The pack's base is not here. A porter that has failed keeps the turn, because its ship goes on elsewhere.
    code = {"digest": NAME, "base": BASE, "store": store}
    needed = {"digests": [], "age_s": 0.0}
    words = {"code": code, "needed": needed, "layers": [NAME], "most": 1, "owner": "mine", "listen": None}
    first.order(op="begin", **words, certificate=CERTIFICATE, key=KEY.reveal().decode())
    assert first.until("failed")["kind"] == "base"
    assert second.until("waits") == {"waits": True}
    assert second.until("waits") == {"waits": True}
    assert not any("entered" in message for message in second.heard)
    first.order(op="end", keep=True)
    assert first.gone() == 0
    second.until("entered")


def test_a_ship_may_end_before_it_begins(start: Callable[[], Sent], tmp_path: Path) -> None:
    porter = start()
    porter.order(op="enter", store=str(tmp_path / "code"))
    porter.until("entered")
    porter.order(op="beat")
    porter.order(op="end", keep=False)
    assert porter.gone() == 0
    # It leaves nothing in the way of others.
    assert list((tmp_path / "code").iterdir()) == []


def test_a_ship_that_ends_before_it_begins_leaves_no_pack(start: Callable[[], Sent], tmp_path: Path) -> None:
    """The operator asks the head again what runs need, after the source has packed. That may fail."""
    digest = sha(manifest_of(TREE))
    Host(tmp_path).take(pack_of(TREE), digest)
    porter = start()
    store = str(tmp_path / "code")
    porter.order(op="enter", store=store)
    porter.until("entered")
    porter.order(op="inspect", code={"digest": digest, "base": None, "store": store})
    pack = tmp_path / "code" / "incoming" / porter.until("packed")["packed"]["sha256"]
    assert pack.exists()
    porter.order(op="end", keep=False)
    assert porter.gone() == 0
    assert not pack.exists()


class Orders:
    """What an operator sends, with when the porter last heard it as each order is awaited."""

    def __init__(self, *orders: bytes) -> None:
        self._orders = list(orders)
        self.porter: Any = None
        self.heard: list[float] = []

    def readline(self, _: int) -> bytes:
        self.heard.append(self.porter._heard)
        return self._orders.pop(0) + b"\n" if self._orders else b""

    def write(self, data: bytes) -> None:
        pass

    def flush(self) -> None:
        pass


def test_an_operator_that_falls_silent_loses_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A porter that waits for orders is watched; one that waits for its turn does not listen."""
    orders = Orders(b'{"op": "enter", "store": "%s"}' % bytes(tmp_path / "code"), b'{"op": "end"}')
    orders.porter = porter = main.Porter(cast(Any, orders), cast(BinaryIO, orders))
    waiting: list[float] = []
    take = porter._hold.take

    def taking(*words: Any) -> None:
        waiting.append(porter._heard)
        take(*words)

    monkeypatch.setattr(porter._hold, "take", taking)
    monkeypatch.setattr(porter, "_watch", lambda: None)
    porter.run()
    assert waiting == [math.inf]
    assert len(orders.heard) == 2
    assert all(0 < heard < math.inf for heard in orders.heard)
