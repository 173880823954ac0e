"""Ctrl-C while a lab's hosts are being made."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from kit.events import Silent
from kit.flows.lab.make import _on_each
from kit.model.lab import HostContainer, LabSpec
from kit.plan import lab as plan
from kit.remote.machine.interrupts import Interrupts


@pytest.fixture(autouse=True)
def as_at_a_terminal() -> Iterator[None]:
    """A shell's background job ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def hosts() -> tuple[HostContainer, ...]:
    subnet = plan.IPv4Network("10.213.9.0/24")
    return plan.host_containers(LabSpec(hosts=3), folder="/nowhere", image="none", subnets=[subnet], public_key="none")


def test_ctrl_c_at_the_start_of_a_thread_waits_for_what_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool does not know a thread yet whose start was interrupted, and would not wait for it."""
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        signal.raise_signal(signal.SIGINT)

    began, ended = set(), set()

    def work(host: HostContainer, _stop: threading.Event) -> str:
        began.add(host.host)
        time.sleep(0.2)
        ended.add(host.host)
        return "key"

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        _on_each(hosts(), Silent(), interrupts, work)
    assert began == ended == {"gpu1", "gpu2", "gpu3"}


def test_ctrl_c_ends_threads_that_wait() -> None:
    def work(host: HostContainer, stop: threading.Event) -> str:
        if host.host == "gpu2":
            signal.raise_signal(signal.SIGINT)
        return "stopped" if stop.wait(60) else "not stopped"

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        _on_each(hosts(), Silent(), interrupts, work)
    assert time.monotonic() - began < 30
