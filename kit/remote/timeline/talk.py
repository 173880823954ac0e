"""A conversation with kit-timeline in the node of one host (images/lib/kitwatch/timeline.py has the protocol)."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import queue
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from kit.errors import KitError, NotReadyError, SlowError, StepError
from kit.model import names
from kit.model.answer import MOST, OddAnswer, answer_of, decode, number, other_version, within
from kit.model.host import Host
from kit.remote.engine.live import new_mark, stream_in_node
from kit.remote.ssh import open_files
from kit.remote.ssh.transport import Completed, Live, LiveTransport

PROGRAM = ("python3", "-IS", f"{names.IMAGE_BIN}/kit-timeline")
VERSION = 1
# A login, and a process in a container.
HELLO_S = 60.0
ANSWER_S = 30.0
# The quickest ping of this number counts.
PINGS = 20
# A part of 1 MiB that zlib cannot make smaller, as base64.
_MOST_LINE = 2 << 20
_PART = 1 << 20
# Answers that nobody has read yet: parts of files.
_MOST_UNREAD = 8
# Ranks of one host.
_MOST_RANKS = 4096
_ERRORS = 4000
# What kit-timeline says, and how long it waits for a kit that is gone (PATIENCE_S).
_BUSY = "another timeline of this run"
_BUSY_HINT = "wait until that one ends; if its kit lost the connection, the host gives it up within 5 minutes"
_NO_PROGRAM = 127


class Hello(Struct, frozen=True, kw_only=True):
    """The ranks that count on a host, and the number of ranks of their world."""

    ranks: tuple[int, ...] = ()
    size: int = 0


class _Answer(Struct, frozen=True, kw_only=True):
    """Any answer. An answer has the fields of its request."""

    version: int = 0
    ranks: tuple[int, ...] = ()
    size: int = 0
    clock: int = 0
    begun: tuple[int, ...] = ()
    states: dict[str, int] | None = None
    data: str | None = None
    sent: int | None = None
    error: str | None = None


class _Input:
    """What kit-timeline reads: a Reader of lines."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def put(self, line: bytes) -> None:
        self._lines.put(line)

    def read(self, _most: int) -> bytes:
        return self._lines.get()

    def close(self) -> None:
        # An empty line is the end of the stream.
        self._lines.put(b"")


class Talk:
    """Call `open` once, then the others, and `close` at the end. Raises the errors of the host and its connection."""

    def __init__(self, host: Host, connect: Callable[[Host], LiveTransport], container: str, run: str) -> None:
        self.host = host
        self._connect, self._container, self._run_id = connect, container, run
        self._input = _Input()
        # Each line with the moment at which it came (ns), and at last why there are no more.
        self._answers: queue.Queue[tuple[bytes, int] | KitError] = queue.Queue(maxsize=_MOST_UNREAD)
        self._rest = bytearray()
        self._errors = b""
        self._ranks: frozenset[int] = frozenset()
        self._closed = threading.Event()
        self._transport: LiveTransport | None = None
        self._thread = threading.Thread(target=self._run, name=f"kit-timeline-{host.name}", daemon=True)

    def open(self) -> Hello:
        """Connect, and return which ranks count there."""
        self._thread.start()
        answer, _ = self._answer(HELLO_S)
        if answer.version != VERSION:
            message = "its node has another version of kit-timeline"
            raise other_version(message, answer.version, VERSION, host=self.host.name)
        self._ranks = frozenset(answer.ranks)
        return Hello(ranks=answer.ranks, size=answer.size)

    def pings(self) -> Sequence[tuple[int, int, int]]:
        """Return pings for kit.plan.timeline.clocks: (sent, the host's clock, received), in ns since 1970."""
        pings = []
        for _ in range(PINGS):
            sent = time.time_ns()
            answer, received = self._ask(op="clock")
            pings.append((sent, answer.clock, received))
        return pings

    def begin(self, identity: int, seconds: float, most: int) -> Sequence[int]:
        """Let the ranks there begin. Return which do: some may have ended since `open`, and others begun."""
        begun = self._ask(op="begin", id=identity, seconds=seconds, bytes=most)[0].begun
        self._ranks = frozenset(begun)
        return begun

    def states(self) -> Mapping[int, int]:
        """Return the state of each rank that began (State)."""
        states = self._ask(op="look")[0].states or {}
        with answer_of(self.host.name, "the states of its ranks"):
            by_rank = {number(rank): state for rank, state in states.items()}
            if not self._ranks.issuperset(by_rank):
                raise OddAnswer("it has a rank that did not begin", str(sorted(by_rank)))
        return by_rank

    def receive(self, rank: int, most: int) -> bytes:
        """Return what a rank wrote, which is at most this many bytes."""
        answer, _ = self._ask(op="send", rank=rank)
        data = bytearray()
        with answer_of(self.host.name, "the timeline of a rank"):
            while answer.data is not None:
                data += _part(answer.data)
                if len(data) > most:
                    raise OddAnswer(f"it has more than {most} bytes")
                answer, _ = self._answer(ANSWER_S)
            if answer.sent != len(data):
                raise OddAnswer(f"it has {len(data)} bytes of {answer.sent}")
        return bytes(data)

    def close(self) -> None:
        """End the conversation. The host removes what it made."""
        self._closed.set()
        self._send(op="end")
        self._input.close()
        # The program ends within a moment, unless the connection is dead.
        if self._thread.ident is not None:
            with contextlib.suppress(queue.Empty):
                while True:
                    self._answers.get_nowait()
            self._thread.join(2.0)
        transport = self._transport
        if transport is not None and self._thread.is_alive():
            with contextlib.suppress(Exception):
                transport.close()

    def _ask(self, **request: object) -> tuple[_Answer, int]:
        self._send(**request)
        return self._answer(ANSWER_S)

    def _send(self, **request: object) -> None:
        self._input.put(json.dumps(request).encode() + b"\n")

    def _answer(self, patience_s: float) -> tuple[_Answer, int]:
        try:
            line = self._answers.get(timeout=patience_s)
        except queue.Empty:
            raise SlowError(
                f"its node did not answer within {patience_s:.0f} s",
                hint=f"look at the host's load: kit ssh {self.host.name} -- uptime",
                host=self.host.name,
            ) from None
        if isinstance(line, KitError):
            raise line
        with answer_of(self.host.name, "what its kit-timeline says"):
            # A name that is no name in Python.
            answer: _Answer = decode(line[0].replace(b'"kit-timeline"', b'"version"', 1), _Answer, most=_MOST_LINE)
            _check(answer)
        if answer.error is not None:
            text = f"no timeline can be written there: {answer.error[:500]}"
            raise StepError(text, hint=_BUSY_HINT if _BUSY in answer.error else None, host=self.host.name)
        return answer, line[1]

    def _run(self) -> None:
        error: KitError
        try:
            with contextlib.closing(self._connect(self.host)) as self._transport:
                live = Live(out=self._hear, err=self._complain, stdin=lambda: self._input)
                argv = [*PROGRAM, self._run_id]
                code = stream_in_node(
                    self._transport, self._container, argv, live, mark=new_mark(), answered=self._check_node
                )
            error = self._ended(code)
        except KitError as failed:
            failed.host = failed.host or self.host.name
            error = failed
        except OSError as failed:
            error = open_files.no_connection(failed, self.host.name)
        except Exception as failed:
            # A bug must not leave the caller waiting.
            error = StepError(f"kit failed: {type(failed).__name__}: {failed}", host=self.host.name)
        self._put(error)

    def _hear(self, data: bytes) -> None:
        received = time.time_ns()
        self._rest += data
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest[: _MOST_LINE + 1])
        for line in lines:
            self._put((line, received))

    def _put(self, answer: tuple[bytes, int] | KitError) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._answers.put(answer, timeout=0.2)
                return

    def _complain(self, data: bytes) -> None:
        self._errors = (self._errors + data)[-_ERRORS:]

    def _check_node(self, done: Completed) -> None:
        text = done.error_text or (done.text.strip() if done.code else "")
        if "o such container" in text or "is not running" in text:
            raise NotReadyError("no node of the cluster runs here", hint="run: kit deploy", host=self.host.name)

    def _ended(self, code: int) -> KitError:
        text = self._errors.decode(errors="replace").strip()
        last = text.splitlines()[-1] if text else f"exit {code}"
        if code == _NO_PROGRAM or "kit-timeline" in last:
            return NotReadyError("its image is older than kit timeline", hint="run: kit deploy", host=self.host.name)
        return StepError(f"its kit-timeline ended: {last[:500]}", host=self.host.name)


def _check(answer: _Answer) -> None:
    """Raise OddAnswer for numbers that no host has."""
    # ns since 1970 do not fit into 2^53.
    within(answer.clock, 0, MOST * 1024, "its clock")
    within(answer.size, 0, MOST, "the number of ranks")
    for ranks in (answer.ranks, answer.begun):
        if len(set(ranks)) != len(ranks) or len(ranks) > _MOST_RANKS:
            raise OddAnswer("it has a rank twice, or too many ranks")
        within(min(ranks, default=0), 0, MOST, "a rank")
        within(max(ranks, default=0), 0, MOST, "a rank")


def _part(text: str) -> bytes:
    """Return the bytes of a part. Raises OddAnswer."""
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(text, validate=True), _PART)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise OddAnswer(f"a part cannot be unpacked: {error}", text[:60]) from None
    # A part without bytes would let a host send parts without an end.
    if unpacker.unconsumed_tail or not unpacker.eof or not data:
        raise OddAnswer(f"a part is empty, cut, or has more than {_PART} bytes")
    return data
