"""Watches several hosts at once: a thread, a connection and a program on each."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from kit.errors import AnswerError, KitError, LoginRefusedError, StepError, UnreachableError
from kit.model.answer import answer_of, beginning
from kit.model.host import Host
from kit.model.values import replace
from kit.model.watch import Reading, Seen, SuspectReading
from kit.remote.ssh import open_files
from kit.remote.ssh.logins import Logins
from kit.remote.ssh.program import ARGV, ended
from kit.remote.ssh.transport import Live, LiveTransport
from kit.remote.watch.answers import MOST_LINE, reading_of
from kit.remote.watch.program import program

# The program ends if it hears nothing for PATIENCE_S: the connection may have broken without notice.
BEAT_S, PATIENCE_S = 10.0, 45.0
# A host that fails is tried again after the first of these times, then after the next ones.
AGAIN_S = (3.0, 6.0, 15.0, 30.0)
# Servers count refused logins, and block who tries too often (kit.flows.run.follow).
REFUSED_S = 30.0
# The programs end with their input. kit waits this long for all of them.
END_S = 3.0
_ERRORS = 4000
# A look at what is known takes longer with more hosts, and their readings come more often. So `wait` looks again after
# this time for each host at the earliest: 10 times a second with 1,000 hosts.
_LOOK_S = 1e-4


class _Input:
    """The input of one program: its text, then an empty line every BEAT_S. It ends when `close` is called."""

    def __init__(self, text: bytes) -> None:
        self._pieces: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._pieces.put(text)
        self.closed = False

    def read(self, _most: int) -> bytes:
        if self.closed:
            return b""
        try:
            return self._pieces.get(timeout=BEAT_S)
        except queue.Empty:
            return b"\n"

    def close(self) -> None:
        self.closed = True
        self._pieces.put(b"")


class _Watcher:
    """One host, and the thread that holds its connection and connects again."""

    def __init__(self, host: Host, watchers: Watchers) -> None:
        self.host, self._all = host, watchers
        self.readings: list[Reading] = []
        self.number, self.heard, self.stream = 0, 0.0, 0
        self.error: KitError | None = None
        self.over = False
        self._input: _Input | None = None
        self._transport: LiveTransport | None = None
        self._partial, self._errors = bytearray(), bytearray()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def end(self) -> None:
        if self._input is not None:
            self._input.close()

    def kill(self) -> None:
        transport = self._transport
        if transport is not None:
            with contextlib.suppress(Exception):
                transport.close()

    def _run(self) -> None:
        tries = 0
        while not self._all.closed.is_set():
            before = self.number
            try:
                self._talk()
                error: KitError | None = None
            except KitError as failure:
                error = failure
            except OSError as failure:
                error = open_files.no_connection(failure, self.host.name)
            except Exception as failure:
                # A bug must not leave the caller waiting.
                error = StepError(f"kit failed: {type(failure).__name__}: {failure}")
            if error is None or not self._all.again:
                break
            tries = 0 if self.number > before else tries
            self._failed(error)
            pause = REFUSED_S if isinstance(error, LoginRefusedError) else AGAIN_S[min(tries, len(AGAIN_S) - 1)]
            tries += 1
            self._all.closed.wait(pause)
        if error is not None and not self._all.closed.is_set():
            self._failed(error)
        with self._all.changed:
            self.over = True
            self._all.changed.notify_all()

    def _failed(self, error: KitError) -> None:
        error.host = error.host or self.host.name
        with self._all.changed:
            self.error = error
            self._all.changed.notify_all()

    def _talk(self) -> None:
        """Read until the program ends. Raises KitError unless kit ended it, or it printed all that was wanted."""
        self._partial, self._errors = bytearray(), bytearray()
        self.stream += 1
        self._input = _Input(program(self._all.order))
        turn = self._all.logins.turn()

        def begun() -> bool:
            turn.end()
            return not self._all.closed.is_set()

        started = self.number
        try:
            with contextlib.closing(self._all.connect(self.host)) as self._transport:
                live = Live(out=self._hear, err=self._complain, stdin=lambda: self._input or _Input(b""), begin=begun)
                code = self._transport.stream(ARGV, live)
        except KitError:
            if self._all.closed.is_set():
                return
            raise
        finally:
            turn.end()
        wanted = int(self._all.order["count"])
        if not self._all.closed.is_set() and not (wanted and self.number - started >= wanted):
            raise ended("its readings ended", self.host.name, errors=bytes(self._errors), code=code)

    def _hear(self, data: bytes) -> None:
        self._partial += data
        if len(self._partial) > MOST_LINE:
            self.end()
            raise AnswerError(
                f"it prints more than a reading: {beginning(data)}", hint=f"look at the host: kit ssh {self.host.name}"
            )
        *lines, rest = bytes(self._partial).split(b"\n")
        self._partial = bytearray(rest)
        for line in lines:
            with answer_of(self.host.name, "what kit reads there"):
                reading = reading_of(line, self._all.form)
            now = time.monotonic()
            if isinstance(reading, SuspectReading):
                reading = replace(reading, heard=now, stream=self.stream)
            with self._all.changed:
                self.readings = [*self.readings, reading][-self._all.keep :]
                self.number, self.heard, self.error = self.number + 1, now, None
                self._all.changed.notify_all()

    def _complain(self, data: bytes) -> None:
        self._errors = (self._errors + data)[-_ERRORS:]


class Watchers:
    """Readings of all hosts, as they come. A host that fails has an error, is tried again, and delays no other.

    `every` is the time between readings in seconds. `count` ends after that many readings of each host; then a host
    that fails is not tried again. `threads` lets ranks have `waited_all_s`. `keep` is how many readings of each host
    `history` returns. With `run`, each is a SuspectReading, with what the ranks of this run do. Leaving the context
    ends the programs on the hosts, also after Ctrl-C.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        connect: Callable[[Host], LiveTransport],
        *,
        every: float = 1.0,
        count: int = 0,
        threads: bool = False,
        paths: Sequence[str] = (),
        keep: int = 1,
        run: str = "",
    ) -> None:
        self.order: Mapping[str, Any] = {
            "every": every,
            "count": count,
            "threads": threads,
            "paths": list(paths),
            "patience": PATIENCE_S,
            **({"run": run} if run else {}),
        }
        self.form = SuspectReading if run else Reading
        self.connect, self.keep, self.again = connect, max(keep, 1), not count
        self.changed = threading.Condition()
        self.closed = threading.Event()
        self.logins = Logins()
        self._watchers = [_Watcher(host, self) for host in hosts]

    def __enter__(self) -> Watchers:
        open_files.allow(len(self._watchers))
        for watcher in self._watchers:
            watcher.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closed.set()
        for watcher in self._watchers:
            watcher.end()
        end = time.monotonic() + END_S
        for watcher in self._watchers:
            watcher.thread.join(max(end - time.monotonic(), 0))
            if watcher.thread.is_alive():
                watcher.kill()

    def now(self) -> tuple[Seen, ...]:
        """Return what is known of each host, in their order."""
        with self.changed:
            now = time.monotonic()
            return tuple(
                Seen(
                    host=one.host.name,
                    reading=one.readings[-1] if one.readings else None,
                    age=self._age(one, now),
                    number=one.number,
                    error=one.error,
                )
                for one in self._watchers
            )

    def _age(self, one: _Watcher, now: float) -> float:
        """Return the age of a host's newest reading. With `count`, its last one does not age: no other is to come.

        kit may wait long for another host then, which says nothing of this one.
        """
        wanted = int(self.order["count"])
        return 0.0 if not one.number or (wanted and one.number >= wanted) else now - one.heard

    def history(self) -> Mapping[str, Sequence[Reading]]:
        """Return the last `keep` readings of each host, the oldest first."""
        with self.changed:
            return {one.host.name: one.readings for one in self._watchers}

    def wait(self, done: Callable[[tuple[Seen, ...]], bool], within_s: float) -> bool:
        """Wait until `done` of what is known, or all have ended. Return whether it was done in time."""
        end = time.monotonic() + within_s
        pause = len(self._watchers) * _LOOK_S
        while not done(self.now()):
            looked = time.monotonic()
            with self.changed:
                left = end - time.monotonic()
                if left <= 0 or all(one.over for one in self._watchers):
                    break
                self.changed.wait(min(left, 0.5))
            self.closed.wait(max(min(looked + pause, end) - time.monotonic(), 0))
        return done(self.now())


def answered(seen: Sequence[Seen]) -> bool:
    """Return whether every host has a reading or an error."""
    return all(one.reading is not None or one.error is not None for one in seen)


def given_up(seen: Sequence[Seen], within_s: float) -> tuple[Seen, ...]:
    """Return what is known after this time: a host that has given nothing in it has an error."""
    return tuple(replace(one, error=_silent(one.host, within_s)) if not answered([one]) else one for one in seen)


def _silent(host: str, within_s: float) -> UnreachableError:
    return UnreachableError(
        f"no reading within {within_s:.0f} s", hint=f"look at the host: kit ssh {host} -- uptime", host=host
    )
