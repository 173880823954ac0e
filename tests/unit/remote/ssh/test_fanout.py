"""One thing on many hosts: every result or error comes back, in the hosts' order."""

from __future__ import annotations

import errno
import threading

import pytest

from kit.errors import HostsFailed, Interrupted, StepError, UnreachableError
from kit.model.host import Host
from kit.remote.ssh import fanout
from tests.fakes.facts import host

HOSTS = [host(n) for n in range(1, 9)]


def test_results_keep_the_order_of_the_hosts() -> None:
    later = threading.Event()

    def work(one: Host) -> str:
        if one.name == "gpu1":
            assert later.wait(30)
        if one.name == "gpu8":
            later.set()
        return one.address

    outcome = fanout.each(HOSTS, work)
    assert list(outcome.results.items()) == [(h.name, h.address) for h in HOSTS]
    assert outcome.or_raise("it") == outcome.results


def test_hosts_go_side_by_side_but_no_wider_than_asked() -> None:
    together = threading.Barrier(4)
    assert len(fanout.each(HOSTS, lambda _: together.wait(30), width=4).results) == 8


def test_one_failure_is_itself_and_several_are_reported_together() -> None:
    def work(one: Host) -> None:
        if one.name in ("gpu2", "gpu5"):
            raise StepError("broken") if one.name == "gpu2" else UnreachableError("gone", host="elsewhere")

    outcome = fanout.each(HOSTS, work)
    assert [(name, error.host) for name, error in outcome.failures.items()] == [("gpu2", "gpu2"), ("gpu5", "elsewhere")]
    with pytest.raises(HostsFailed) as caught:
        outcome.or_raise("kit x")
    assert caught.value.message == "kit x: 2 of 8 hosts failed"
    assert caught.value.exit_code == StepError.exit_code
    with pytest.raises(StepError):
        fanout.each(HOSTS[:3], work).or_raise("kit x")


def test_a_bug_is_not_a_hosts_fault() -> None:
    def work(one: Host) -> None:
        if one.name == "gpu3":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fanout.each(HOSTS, work)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_few_open_files_are_no_bug(number: int) -> None:
    def work(one: Host) -> None:
        if one.name == "gpu3":
            raise OSError(number, "Too many open files")

    outcome = fanout.each(HOSTS, work)
    (error,) = outcome.failures.values()
    assert error.host == "gpu3"
    assert error.message == "this machine cannot open another connection: Too many open files"
    assert len(outcome.results) == 7


def test_ctrl_c_names_who_was_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    done, never = threading.Event(), threading.Event()

    def work(one: Host) -> None:
        if one.name == "gpu1":
            done.set()
            return
        never.wait(30)

    class Pressed(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            assert done.wait(30)
            while self.is_alive():
                raise KeyboardInterrupt

    monkeypatch.setattr(threading, "Thread", Pressed)
    with pytest.raises(Interrupted) as caught:
        fanout.each(HOSTS[:3], work, width=3)
    never.set()
    assert caught.value.message == "interrupted; not done: gpu[2-3]"
    assert caught.value.exit_code == 130


def test_no_hosts() -> None:
    assert fanout.each([], lambda _: 1).results == {}


def test_ctrl_c_while_the_threads_start_names_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = threading.Thread.start
    started: list[threading.Thread] = []

    def start(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise KeyboardInterrupt
        started.append(thread)
        begin(thread)

    hang = threading.Event()
    monkeypatch.setattr(threading.Thread, "start", start)
    try:
        with pytest.raises(Interrupted) as caught:
            fanout.each(HOSTS, lambda _: hang.wait(), width=3)
    finally:
        hang.set()
    # Two threads have a host each, and no host is done.
    assert caught.value.message == "interrupted; not done: gpu[1-8]"
