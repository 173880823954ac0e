"""Does one thing on many hosts side by side. Every host's result or error comes back; Ctrl-C names the rest."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from kit.errors import HostsFailed, Interrupted, KitError
from kit.model.host import Host
from kit.model.text import fold
from kit.remote.ssh import open_files, retry

T = TypeVar("T")


class Outcome(Struct, Generic[T], frozen=True, kw_only=True):
    """What came back from the hosts, in their order."""

    results: Mapping[str, T]
    failures: Mapping[str, KitError]

    def or_raise(self, what: str) -> Mapping[str, T]:
        """Return the results. Raise the error of the only failed host, or HostsFailed for several."""
        if not self.failures:
            return self.results
        failures = list(self.failures.values())
        if len(failures) == 1:
            raise failures[0]
        count = len(self.results) + len(failures)
        raise HostsFailed(f"{what}: {len(failures)} of {count} hosts failed", failures)


class _Work(Generic[T]):
    """The queue of hosts, and what came of them; shared by the worker threads."""

    def __init__(self, hosts: Sequence[Host], work: Callable[[Host], T]) -> None:
        self._work = work
        self._todo: queue.SimpleQueue[Host] = queue.SimpleQueue()
        for host in hosts:
            self._todo.put(host)
        self.results: dict[str, T] = {}
        self.failures: dict[str, KitError] = {}
        self.bugs: list[BaseException] = []
        self.stop = threading.Event()

    def __call__(self) -> None:
        while not self.stop.is_set():
            try:
                host = self._todo.get_nowait()
            except queue.Empty:
                return
            try:
                self.results[host.name] = self._work(host)
            except KitError as error:
                self._fail(host, error)
            except BaseException as error:
                if isinstance(error, OSError) and error.errno in open_files.EXHAUSTED:
                    self._fail(host, open_files.no_connection(error, host.name))
                    continue
                # Not a host's fault but a bug: raised in the caller's thread.
                self.bugs.append(error)
                return

    def _fail(self, host: Host, error: KitError) -> None:
        error.host = error.host or host.name
        error.address = error.address or host.address
        self.failures[host.name] = error


class Started(Generic[T]):
    """Work that has begun on all hosts."""

    def __init__(self, hosts: Sequence[Host], shared: _Work[T], threads: Sequence[threading.Thread]) -> None:
        self._hosts, self._shared, self._threads = hosts, shared, threads

    def begin(self) -> None:
        """Start the threads. Ctrl-C raises Interrupted, here and in `outcome`: it names the hosts that are not done."""
        try:
            for thread in self._threads:
                thread.start()
        except KeyboardInterrupt:
            raise self._interrupted() from None

    def outcome(self) -> Outcome[T]:
        """Wait until all hosts are done."""
        shared = self._shared
        try:
            for thread in self._threads:
                while thread.is_alive():
                    thread.join(0.2)
        except KeyboardInterrupt:
            raise self._interrupted() from None
        if shared.bugs:
            raise shared.bugs[0]
        names = [host.name for host in self._hosts]
        return Outcome(
            results={name: shared.results[name] for name in names if name in shared.results},
            failures={name: shared.failures[name] for name in names if name in shared.failures},
        )

    def so_far(self, wait_s: float) -> Mapping[str, T]:
        """Wait for at most this time, stop before the next host, and return the results that are there."""
        end = time.monotonic() + wait_s
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        self._shared.stop.set()
        if self._shared.bugs:
            raise self._shared.bugs[0]
        results = dict(self._shared.results)
        return {host.name: results[host.name] for host in self._hosts if host.name in results}

    def _interrupted(self) -> Interrupted:
        """Stop before the next host of each thread."""
        self._shared.stop.set()
        ended = {*self._shared.results, *self._shared.failures}
        waiting = [host.name for host in self._hosts if host.name not in ended]
        return Interrupted(f"interrupted; not done: {fold(waiting) or 'none'}", hint="run the same again to finish")


def start(hosts: Sequence[Host], work: Callable[[Host], T], *, width: int | None = None) -> Started[T]:
    """Begin to call `work(host)` for every host, at most `width` at a time, and return at once.

    By default, `width` is what this machine's cores serve. A KitError of one host does not touch the others.
    """
    shared = _Work(hosts, work)
    at_once = min(width or retry.width(os.cpu_count() or 1), len(hosts))
    open_files.allow(at_once)
    # Daemon threads: a host that hangs cannot keep kit from ending after Ctrl-C.
    threads = [threading.Thread(target=shared, daemon=True) for _ in range(at_once)]
    started = Started(hosts, shared, threads)
    started.begin()
    return started


def each(hosts: Sequence[Host], work: Callable[[Host], T], *, width: int | None = None) -> Outcome[T]:
    """Call `work(host)` for every host, and wait. `width` is as for `start`."""
    return start(hosts, work, width=width).outcome()
