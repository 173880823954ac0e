"""How long kit waits for the stagers of several hosts that hang."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import pytest

from kit.errors import SlowError
from kit.model.host import Host
from kit.remote.data import order as orders
from kit.remote.data.order import START_S, Order, Place
from kit.remote.ssh.transport import Live

HOSTS = [Host(name=f"gpu{n}", address=f"10.0.0.{n}") for n in range(1, 6)]
PLACE = Place(cluster="lab", data="images", folder="/data")


class Hanging:
    """A host whose engine does not answer: ssh logs in, and nothing comes. `lines` come first."""

    def __init__(self, host: Host, lines: bytes, over: threading.Event, begun: threading.Semaphore) -> None:
        self.host, self._lines, self._over, self._begun = host, lines, over, begun

    def stream(self, _argv: Sequence[str], live: Live) -> int:
        assert live.begin is not None
        live.begin()
        live.out(self._lines)
        self._begun.release()
        self._over.wait()
        return 1

    def close(self) -> None:
        pass


class Clock:
    """Goes on by 50 s with each look of the test's thread, and stops for others."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        if threading.current_thread() is threading.main_thread():
            self.now += 50.0
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    one = Clock()
    monkeypatch.setattr(orders, "time", SimpleNamespace(monotonic=one.monotonic))
    return one


@pytest.fixture
def started(clock: Clock) -> Iterator[Callable[[bytes], list[Order]]]:
    """Return orders to all hosts, which print these lines and then hang."""
    over = threading.Event()

    def start(lines: bytes) -> list[Order]:
        begun = threading.Semaphore(0)
        made = [Order(host, lambda host: Hanging(host, lines, over, begun), PLACE).start() for host in HOSTS]  # type: ignore[arg-type, return-value]
        for _ in made:
            begun.acquire()
        return made

    yield start
    over.set()


def test_hosts_whose_engines_hang_are_over_the_limit_together(
    started: Callable[[bytes], list[Order]], clock: Clock
) -> None:
    """One after the other, each host took the whole limit: 26 hosts an hour."""
    hanging, before = started(b""), clock.now
    for order in hanging:
        with pytest.raises(SlowError, match="did not start within 150 s") as caught:
            order.begun()
        assert caught.value.host == order.host.name
    assert clock.now - before < 3 * START_S


def test_hosts_that_were_asked_together_are_over_the_limit_together(
    started: Callable[[bytes], list[Order]], clock: Clock
) -> None:
    hanging = [order.begun() for order in started(b"kit-data go\n")]
    since = clock.now - 60.0
    for order in hanging:
        with pytest.raises(SlowError, match="did not answer within 60 s"):
            order.answer(60.0, since=since)
