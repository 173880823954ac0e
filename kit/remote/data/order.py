"""An order to the stager of one host: over one connection, from the start of its container to the order's end."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from kit.errors import AnswerError, KitError, SlowError, StepError
from kit.model.answer import answer_of, beginning
from kit.model.host import Host
from kit.model.staging import MOST_LINE, Hello, StagerAnswer, order_line, read
from kit.remote.data.refusals import StagerGone, refusal
from kit.remote.scripts import script
from kit.remote.ssh import open_files
from kit.remote.ssh.logins import Logins
from kit.remote.ssh.transport import Live, LiveTransport

# The script's line before it passes orders on, and the beginning of all its lines.
_GO, _OWN = b"kit-data go", b"kit-data "
# From the start of ssh to that line. The script waits for a stager that is about to end, and for a removal.
START_S = 150.0
# Answers that nobody has read yet. A stager reports a few times a second.
_MOST_UNREAD = 10_000
# The record on the head, with 10,000 nodes, is the longest line of the script.
_MOST_RECORD = 64 << 20
_ERRORS = 4000
_NO_PROGRAM = 127

# start: with a stager that brings data. mount: with one that mounts a store. running: with one that is there.
How = Literal["start", "mount", "running"]


class Place(Struct, frozen=True, kw_only=True):
    """A data set on one host: its folder, and what this host's stager needs besides (options of docker run)."""

    cluster: str
    data: str
    folder: str
    options: tuple[str, ...] = ()

    def argv(self, how: How) -> Sequence[str]:
        return script("data_order", self.cluster, self.data, self.folder, how, *self.options)


class _Input:
    """What the stager reads. A writer waits while much of it is unread."""

    def __init__(self) -> None:
        self._parts: queue.Queue[bytes] = queue.Queue(maxsize=16)
        self._closed = threading.Event()

    def put(self, data: bytes) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._parts.put(data, timeout=0.5)
                return

    def read(self, _most: int) -> bytes:
        while not self._closed.is_set():
            with contextlib.suppress(queue.Empty):
                return self._parts.get(timeout=0.5)
        return b""

    def close(self) -> None:
        self._closed.set()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()


class Order:
    """One order. Call `start`, then `begun`, then `send` once, and read answers with `next`. `close` ends it here.

    A staging goes on without it. `record` is the text of the cluster's record, if the host is its head; `hello` is what
    the stager says of itself first. `raw` gets the stager's bytes in place of lines, if it is set before the order is
    sent (kit.remote.data.feed). `logins` limits how many hosts log in at a time. Not thread-safe.
    """

    def __init__(
        self,
        host: Host,
        connect: Callable[[Host], LiveTransport],
        place: Place,
        *,
        how: How = "start",
        logins: Logins | None = None,
    ) -> None:
        self.host = host
        self.record = ""
        self.hello: Hello | None = None
        self.raw: Callable[[bytes], None] | None = None
        self._connect, self._place, self._how = connect, place, how
        self._logins = logins or Logins()
        self._input = _Input()
        self._answers: queue.Queue[bytes | KitError] = queue.Queue(maxsize=_MOST_UNREAD)
        self._partial, self._errors = bytearray(), bytearray()
        self._gone = False
        # When ssh started, by the monotonic clock; None before the host's turn to log in.
        self._since: float | None = None
        self._going = threading.Event()
        self._refused: str | None = None
        self._transport: LiveTransport | None = None
        self._thread = threading.Thread(target=self._run, name=f"kit-data-{host.name}", daemon=True)

    def start(self) -> Order:
        """Begin to connect, and return at once."""
        self._thread.start()
        return self

    def begun(self) -> Order:
        """Wait for the stager to take an order. Raises the error of a host where it cannot.

        The limit counts from the start of ssh, so hosts that hang together are over it together.
        """
        while not self._going.wait(0.05):
            if not self._thread.is_alive() and not self._going.is_set():
                raise self._error(self._answers.get())
            if self._since is not None and time.monotonic() - self._since > START_S:
                raise SlowError(
                    f"the stager did not start within {START_S:.0f} s",
                    hint=f"look at the host's load and its engine: kit ssh {self.host.name} -- sudo docker ps",
                    host=self.host.name,
                )
        return self

    def send(self, **words: object) -> None:
        self._input.put(order_line(**words))

    def put(self, data: bytes) -> None:
        """Send bytes. Wait while the stager has not read earlier ones."""
        self._input.put(data)

    def next(self, patience_s: float) -> StagerAnswer | None:
        """Return the next answer, or None if none came in this time.

        Raises the error of the host or its connection, and at the end of the stream.
        """
        if self._gone:
            raise self._ended(0)
        try:
            line = self._answers.get(timeout=patience_s)
        except queue.Empty:
            return None
        if isinstance(line, KitError):
            raise self._error(line)
        with answer_of(self.host.name, "what its stager says"):
            return read(line)

    def answer(self, patience_s: float, *, since: float | None = None) -> StagerAnswer:
        """Return the next answer. Raises SlowError if none comes in time.

        The time counts from `since` by the monotonic clock, when other hosts were asked, too; by default, from now.
        """
        passed = 0.0 if since is None else time.monotonic() - since
        answer = self.next(max(0.0, patience_s - passed))
        if answer is None:
            raise SlowError(
                f"the stager did not answer within {patience_s:.0f} s",
                hint=f"look at the host's load: kit ssh {self.host.name} -- uptime",
                host=self.host.name,
            )
        return answer

    def close(self) -> None:
        """End the connection."""
        self._input.close()
        transport = self._transport
        if transport is not None:
            with contextlib.suppress(Exception):
                transport.close()

    @property
    def ended(self) -> bool:
        """Whether the connection has ended."""
        return not self._thread.is_alive()

    def _error(self, error: bytes | KitError) -> KitError:
        self._gone = True
        if isinstance(error, KitError):
            error.host = error.host or self.host.name
            return error
        return self._ended(0)

    def _run(self) -> None:
        error: KitError
        turn = self._logins.turn()
        self._since = time.monotonic()

        def begin() -> bool:
            turn.end()
            return not self._input.closed

        try:
            with contextlib.closing(self._connect(self.host)) as self._transport:
                live = Live(out=self._hear, err=self._complain, stdin=lambda: self._input, begin=begin)
                code = self._transport.stream(self._place.argv(self._how), live)
            error = self._ended(code)
        except KitError as failed:
            error = failed
        except OSError as failed:
            error = open_files.no_connection(failed, self.host.name)
        except Exception as failed:
            # A bug must not leave the caller waiting.
            error = StepError(f"kit failed: {type(failed).__name__}: {failed}", host=self.host.name)
        finally:
            turn.end()
        self._input.close()
        # A full queue means that nobody reads any more.
        with contextlib.suppress(queue.Full):
            self._answers.put(error, timeout=60)

    def _hear(self, data: bytes) -> None:
        if self._going.is_set() and self.raw is not None:
            self.raw(data)
            return
        self._partial += data
        while (at := self._partial.find(b"\n")) >= 0:
            line = bytes(self._partial[:at])
            del self._partial[: at + 1]
            self._take(line)
            if self._going.is_set() and self.raw is not None:
                rest, self._partial = bytes(self._partial), bytearray()
                self.raw(rest)
                return
        if len(self._partial) > (MOST_LINE if self._going.is_set() else _MOST_RECORD):
            raise self._odd(bytes(self._partial[:100]), "its stager wrote a line that is too long")

    def _take(self, line: bytes) -> None:
        if self._going.is_set():
            try:
                self._answers.put_nowait(line)
            except queue.Full:
                raise self._odd(line, "its stager says more than kit can read") from None
            return
        words = line.split(b" ", 2)
        if line == _GO:
            self._going.set()
        elif line.startswith(_OWN) and len(words) == 3:
            value = words[2].decode(errors="replace")
            if words[1] == b"record":
                self.record = value
            elif words[1] == b"hello":
                with answer_of(self.host.name, "what its stager says"):
                    self.hello = read(words[2]).hello
            elif words[1] == b"refused":
                self._refused = value

    def _odd(self, line: bytes, what: str) -> AnswerError:
        hint = f"look at the host: kit ssh {self.host.name}"
        return AnswerError(f"{what}: {beginning(line)}", hint=hint, host=self.host.name)

    def _complain(self, data: bytes) -> None:
        self._errors = (self._errors + data)[-_ERRORS:]

    def _ended(self, code: int) -> KitError:
        text = bytes(self._errors).decode(errors="replace").strip()
        if self._refused is not None:
            return refusal(self._refused, text, self._place.data, self.host.name)
        last = text.splitlines()[-1] if text else f"exit {code}"
        if not self._going.is_set():
            return StepError(
                f"the stager cannot start: {last}",
                hint=f"look at the host's engine: kit ssh {self.host.name} -- sudo docker ps",
                host=self.host.name,
            )
        if code == _NO_PROGRAM or ("kit-data" in last and "not found" in last):
            return refusal("no-stager", text, self._place.data, self.host.name)
        return StagerGone(
            f"its stager ended{f': {last}' if text else ''}",
            hint=f"see what is there: kit data ls; go on: kit data stage {self._place.data}",
            host=self.host.name,
        )
