"""The probes of one examination, from the operator's side: each host has one, over one connection, until the end."""

from __future__ import annotations

import contextlib
import json
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

from kit.errors import AnswerError, KitError, SlowError, StepError
from kit.model.answer import OddAnswer, answer_of, beginning
from kit.model.host import Host
from kit.remote.doctor.answers import MOST_LINE, serial_of
from kit.remote.ssh import open_files
from kit.remote.ssh.logins import Logins
from kit.remote.ssh.program import ARGV, ended, package, packed
from kit.remote.ssh.transport import Live, LiveTransport

T = TypeVar("T")
Order: TypeAlias = Mapping[str, Any]
# Decodes an answer: one function for all hosts, or one for each.
Read: TypeAlias = Callable[[bytes], T] | Mapping[str, Callable[[bytes], T]]

_FOLDER = Path(__file__).parent / "probe"
# In the order in which they import each other.
MODULES = ("wire", "host", "streams", "door", "measure", "reach", "packets", "main")
# From the start of ssh on, many of them side by side, to a probe's first answer.
START_S = 90.0
# A probe ends with its input. kit waits this long for all of them.
END_S = 3.0
# Lines that nobody has read yet. A probe answers one order at a time.
_MOST_LINES = 4
_ERRORS = 4000


@cache
def program() -> bytes:
    """Return the probe as one program, which reads orders after it."""
    return packed(f"{package('probe', _FOLDER, MODULES)}sys.modules['probe.main'].main()\n")


class _Input:
    """The input of one probe: the program, then orders. It waits for them."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._lines.put(program())
        self.closed = False

    def send(self, line: bytes) -> None:
        self._lines.put(line)

    def read(self, _most: int) -> bytes:
        return b"" if self.closed else self._lines.get()

    def close(self) -> None:
        self.closed = True
        self._lines.put(b"")


class _Probe:
    """One host's probe, and the thread that holds its connection."""

    def __init__(self, host: Host, connect: Callable[[Host], LiveTransport], logins: Logins) -> None:
        self.host = host
        self.answers: queue.SimpleQueue[bytes | KitError] = queue.SimpleQueue()
        self.serial = 0
        self.ordered_at = time.monotonic()
        self._input = _Input()
        self._connect, self._logins = connect, logins
        self._partial, self._errors = bytearray(), bytearray()
        self._transport: LiveTransport | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def order(self, order: Order) -> None:
        self.serial += 1
        self.ordered_at = time.monotonic()
        self._input.send(json.dumps({**order, "serial": self.serial}).encode() + b"\n")

    def end(self) -> None:
        """Close its input, which ends it."""
        self._input.close()

    def kill(self) -> None:
        """End its connection, which ends it on any host that has not been altered."""
        self.end()
        transport = self._transport
        if transport is not None:
            with contextlib.suppress(Exception):
                transport.close()

    def _run(self) -> None:
        try:
            self.answers.put(self._talk())
        except KitError as error:
            error.host = error.host or self.host.name
            self.answers.put(error)
        except OSError as error:
            self.answers.put(open_files.no_connection(error, self.host.name))
        except Exception as error:
            # A bug must not leave the caller waiting.
            self.answers.put(StepError(f"kit failed: {type(error).__name__}: {error}", host=self.host.name))

    def _talk(self) -> KitError:
        """Return how the probe ended, which is always too early."""
        with self._logins.turn() as turn, contextlib.closing(self._connect(self.host)) as self._transport:

            def begin() -> bool:
                turn.end()
                return not self._input.closed

            live = Live(out=self._hear, err=self._complain, stdin=lambda: self._input, begin=begin)
            code = self._transport.stream(ARGV, live)
        return ended("the probe ended early", self.host.name, errors=bytes(self._errors), code=code)

    def _hear(self, data: bytes) -> None:
        self._partial += data
        if len(self._partial) > MOST_LINE or self.answers.qsize() > _MOST_LINES:
            self._partial.clear()
            self._input.close()
            raise AnswerError(
                f"its probe answers more than kit asked for: {beginning(data)}",
                hint=f"look at the host: kit ssh {self.host.name}",
                host=self.host.name,
            )
        *lines, rest = bytes(self._partial).split(b"\n")
        self._partial = bytearray(rest)
        for line in lines:
            self.answers.put(line)

    def _complain(self, data: bytes) -> None:
        self._errors = (self._errors + data)[-_ERRORS:]


class Probes:
    """All probes. A host that fails is in `failures`, and gets no more orders; the others go on.

    Not thread-safe. Leaving the context ends the probes, also after Ctrl-C.
    """

    def __init__(self, hosts: Sequence[Host], connect: Callable[[Host], LiveTransport]) -> None:
        self.failures: dict[str, KitError] = {}
        self._secret = secrets.token_hex(16)
        logins = Logins()
        self._probes = {host.name: _Probe(host, connect, logins) for host in hosts}

    def __enter__(self) -> Probes:
        open_files.allow(len(self._probes))
        for probe in self._probes.values():
            probe.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for probe in self._probes.values():
            probe.end()
        end = time.monotonic() + END_S
        for probe in self._probes.values():
            probe.thread.join(max(end - time.monotonic(), 0))
            if probe.thread.is_alive():
                probe.kill()

    @property
    def alive(self) -> tuple[str, ...]:
        """The hosts that have not failed, in their order."""
        return tuple(name for name in self._probes if name not in self.failures)

    def idle(self, for_s: float) -> tuple[str, ...]:
        """Return the hosts that have not failed and got no order for that many seconds, in their order."""
        before = time.monotonic() - for_s
        return tuple(name for name in self.alive if self._probes[name].ordered_at <= before)

    def greet(self, read: Callable[[bytes], T]) -> dict[str, T]:
        """Wait for the probes to start, and return what each says of its host."""
        return self.ask({name: {"do": "hello", "secret": self._secret} for name in self.alive}, read, within_s=START_S)

    def ask(self, orders: Mapping[str, Order], read: Read[T], *, within_s: float) -> dict[str, T]:
        """Send an order to each of these hosts, all at once, and return the answers of those that answer.

        `read` decodes an answer, one for all hosts or one for each. A host that does not answer in time fails.
        """
        names = [name for name in orders if name not in self.failures]
        for name in names:
            self._probes[name].order(orders[name])
        end = time.monotonic() + within_s
        answers: dict[str, T] = {}
        for name in names:
            try:
                answers[name] = self._answer(name, read if callable(read) else read[name], end, within_s)
            except KitError as error:
                self.fail(name, error)
        return answers

    def fail(self, name: str, error: KitError) -> None:
        """Give a host no more orders."""
        self.failures[name] = error
        self._probes[name].kill()

    def _answer(self, name: str, read: Callable[[bytes], T], end: float, within_s: float) -> T:
        probe = self._probes[name]
        try:
            line = probe.answers.get(timeout=max(end - time.monotonic(), 0.001))
        except queue.Empty:
            raise SlowError(
                f"the probe did not answer within {within_s:.0f} s",
                hint=f"look at the host's load: kit ssh {name} -- uptime",
                host=name,
            ) from None
        if isinstance(line, KitError):
            raise line
        with answer_of(name, "what the probe measured"):
            serial, failed = serial_of(line)
            if serial != probe.serial:
                raise OddAnswer("it answers another order", line)
            if failed is not None:
                raise StepError(
                    f"the probe failed: {beginning(failed)}", hint=f"look at the host: kit ssh {name}", host=name
                )
            return read(line)
