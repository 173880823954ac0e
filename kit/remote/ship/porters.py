"""A program on a VM, from the operator's side: OpenSSH brings it there, and carries orders and reports.

A porter is one of them. Another one gathers a commit of a repository (kit.remote.code.gatherer).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

from kit.model.answer import OddAnswer
from kit.model.host import Login
from kit.remote.ship.reports import MOST_LINE, Report, read
from kit.remote.ssh.openssh import Sharing, openssh_argv
from kit.remote.ssh.program import ARGV, package, packed
from kit.remote.ssh.transport import marked

R = TypeVar("R")

FOLDER = Path(__file__).parent / "porter"
# In the order in which they import each other.
_MODULES = (
    *("names", "wire", "hold", "layers", "serve", "fetch", "engine", "archive", "capture", "source", "image"),
    *("manifest", "delta", "store", "code", "operator", "main"),
)
_BULK = 8
# A program that receives nothing for a minute ends, because a connection can break without notice.
BEAT_S = 5.0
ERRORS_S = 1.0
# A porter reports some times a second. One that reports more often than this is broken.
_BURST, _RATE = 2000, 200
_MOST_ERROR = 4000
# AES-GCM is the cheapest cipher on a processor with AES instructions; the others stay as fallback. OpenSSH before 8.1,
# as in RHEL 8, does not know `^`.
_CIPHERS = (
    "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes128-ctr,aes192-ctr,aes256-ctr"
)


@cache
def program() -> bytes:
    """Return the porter as one program: it makes each module from its source, and then runs `main`."""
    return packed(f"{package('porter', FOLDER, _MODULES)}sys.modules['porter.main'].main()\n")


class FarProgram(Generic[R]):
    """One host's program. A thread calls `heard(program, report)` for each report, and with None after the end.

    `read` makes a report of a line of up to `most` bytes. In place of a line that does not fit, `heard` is called with
    the OddAnswer, and then no more until the end.
    `bulk`: many bytes are to come, so the program has a connection to itself. Otherwise it uses or leaves a kept one.
    `kept` says that there was one, which may be dead.
    """

    def __init__(
        self,
        login: Login,
        text: bytes,
        heard: Callable[[Any, R | OddAnswer | None], None],
        *,
        read: Callable[[bytes], R],
        most: int,
        bulk: bool = True,
    ) -> None:
        self.host = login.host
        self.kept = not bulk and os.path.exists(login.socket or "")  # noqa: PTH110
        self.last_heard = time.monotonic()
        # Bytes of the cargo, without the program of the porter and its orders.
        self.sent = 0
        self._heard = heard
        self._parse = read
        self._most = most
        self._changed = threading.Condition()
        self._orders: deque[bytes] = deque()
        self._bulk: deque[bytes] = deque()
        self._closing = False
        options = [f"Ciphers={_CIPHERS}", "Compression=no"] if bulk else []
        sharing: Sharing = "no" if bulk else "make"
        self._process = subprocess.Popen(
            [*openssh_argv(login, options=options, sharing=sharing), marked(ARGV)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # kit handles Ctrl-C, and then calls `kill`.
            start_new_session=True,
        )
        self._orders.append(text)
        self._lines: list[str] = []
        self._errors = threading.Thread(target=self._read_errors, daemon=True)
        self._errors.start()
        for work in (self._write, self._read):
            threading.Thread(target=work, daemon=True).start()

    def order(self, **words: Any) -> None:
        """Send an order, before bytes that wait."""
        with self._changed:
            self._orders.append(json.dumps(words).encode() + b"\n")
            self._changed.notify_all()

    def send(self, data: bytes, serial: int) -> None:
        """Send bytes in answer to the request of that serial. Wait for room. Raises OSError if the program is gone."""
        with self._changed:
            while len(self._bulk) >= _BULK and not self._closing:
                self._changed.wait()
            if self._closing:
                raise BrokenPipeError
            self._bulk.append(json.dumps({"op": "bytes", "count": len(data), "serial": serial}).encode() + b"\n" + data)
            self._changed.notify_all()

    def complaint(self) -> str:
        """Return the last lines of standard error, from ssh or from the program there."""
        return "\n".join(self._lines).strip()

    def end(self, *, keep: bool) -> None:
        """Order it to end, and to keep or remove what it has. Call `wait` afterwards."""
        self.order(op="end", keep=keep)

    def wait(self, patience: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        self.kill()

    def kill(self) -> None:
        """Close its standard input, which ends the program."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._process.kill()

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def _write(self) -> None:
        stream = self._process.stdin
        assert stream is not None  # noqa: S101  (for the type checker: it is a pipe)
        while True:
            with self._changed:
                if not (self._orders or self._bulk or self._closing):
                    self._changed.wait(BEAT_S)
                if self._closing:
                    return
                is_cargo = not self._orders and bool(self._bulk)
                queue = self._orders or self._bulk
                data = queue.popleft() if queue else b'{"op": "beat"}\n'
                self._changed.notify_all()
            # Count first: the host may answer before the write returns.
            count = len(data) if is_cargo else 0
            self.sent += count
            try:
                stream.write(data)
                stream.flush()
            except OSError:
                self.sent -= count
                with self._changed:
                    self._closing = True
                    self._changed.notify_all()
                return

    def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101
        try:
            self._read_reports(self._process.stdout)
        except OddAnswer as odd:
            self._heard(self, odd)
            # It may still write. The caller ends it.
            while self._process.stdout.read(_RATE):
                pass
        self._process.wait()
        # Read standard error to its end, unless another process holds it open.
        self._errors.join(ERRORS_S)
        self._heard(self, None)

    def _read_reports(self, stream: IO[bytes]) -> None:
        """Pass each report on. Raises OddAnswer."""
        begun, count, is_there = time.monotonic(), 0, False
        while line := stream.readline(self._most + 1):
            self.last_heard = time.monotonic()
            count += 1
            if count > _BURST + _RATE * (self.last_heard - begun):
                raise OddAnswer("it reports too often", line)
            # A shell's own files may print lines before the program begins. The mark ends the last one.
            is_there = is_there or line.startswith(b"{") or len(line) > self._most
            if is_there:
                self._heard(self, self._parse(line))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None  # noqa: S101
        while line := self._process.stderr.readline(_MOST_ERROR):
            self._lines.append(line.decode(errors="replace").rstrip())
            del self._lines[:-20]


class Porter(FarProgram[Report]):
    """One host's porter."""

    def __init__(
        self, login: Login, heard: Callable[[Porter, Report | OddAnswer | None], None], *, bulk: bool = True
    ) -> None:
        super().__init__(login, program(), heard, read=read, most=MOST_LINE, bulk=bulk)
