"""A lab whose making ends in the middle, also by Ctrl-C."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kit.errors import NotReadyError, StepError
from kit.events import Silent
from kit.flows.lab import make as flow
from kit.flows.lab.make import _on_each
from kit.model.lab import HostContainer, LabContainer, LabNetwork, LabObjects, LabSpec
from kit.plan import lab as plan
from kit.remote.lab import access
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


class Engine:
    """Makes everything, except that it cannot limit links."""

    def create_network(self, *_: object) -> bool:
        return True

    def taken_subnets(self) -> tuple[plan.IPv4Network, ...]:
        return ()

    def create(self, _host: HostContainer) -> None:
        """Take it as done."""

    def start(self, *_: object) -> None:
        """Take it as done."""

    def bridge(self, _network: str) -> str:
        return "br-1"

    def host(self, *_: object) -> Any:
        return SimpleNamespace(alive=lambda: None, public_host_key=lambda: "ssh-ed25519 AAAA", link=lambda _nic: 7)

    def shape_links(self, *_: object) -> None:
        raise StepError("the links cannot be limited")


@pytest.mark.parametrize("stopped", [True, False])
def test_a_lab_whose_links_are_not_limited_yet_is_unfinished(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, stopped: bool
) -> None:
    """kit lab up takes known_hosts for the mark of a lab that is complete."""
    spec, existing = LabSpec(hosts=1, link_rate="200mbit"), LabObjects()
    if stopped:
        subnet = plan.IPv4Network("10.213.9.0/24")
        network = LabNetwork(id="1", name="kit-lab-lab", subnet=subnet, shape=spec.shape, folder=str(tmp_path))
        host = LabContainer(id="1", host="gpu1", address="10.213.9.11", state="exited")
        existing = LabObjects(network=network, containers=(host,))
        access.write(access.known_hosts_path(tmp_path), "10.213.9.11 ssh-ed25519 AAAA\n")
    monkeypatch.setattr(flow, "_build", lambda *_: SimpleNamespace(tag="kit-lab:1"))
    monkeypatch.setattr(flow, "reaches", lambda _subnet: True)
    begun = threading.Event()
    with pytest.raises(StepError, match="cannot be limited"):
        flow.make(cast(Any, Engine()), spec, tmp_path, existing, Silent(), begun=begun)
    assert not access.known_hosts_path(tmp_path).exists()
    assert begun.is_set() is not stopped


@pytest.mark.parametrize(("address", "step"), [("ssh://gpu-box", "unset DOCKER_HOST"), ("", "on this machine itself.")])
def test_a_lab_on_an_engine_elsewhere_is_refused_before_its_hosts_are_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str, step: str
) -> None:
    """ssh tried for two minutes to reach hosts in the virtual machine of Docker Desktop, and blamed the hosts."""
    monkeypatch.setattr(flow, "_build", lambda *_: SimpleNamespace(tag="kit-lab:1"))
    monkeypatch.setattr(flow, "reaches", lambda _subnet: False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("DOCKER_HOST", address)
    begun = threading.Event()
    with pytest.raises(NotReadyError, match="no route to the lab's network 10") as caught:
        flow.make(cast(Any, Engine()), LabSpec(hosts=1), tmp_path, LabObjects(), Silent(), begun=begun)
    assert str(caught.value.hint).endswith(step)
    # So kit lab up removes it again.
    assert begun.is_set()
    assert not list(tmp_path.iterdir())
