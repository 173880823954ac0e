"""The door to a cluster's runs: a connection to kit-launch in the head's container, over OpenSSH.

images/lib/kitrun/front.py defines the protocol.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from msgspec import Struct

from kit.errors import KitError, NotReadyError
from kit.model import names
from kit.model.answer import OddAnswer, answer_of, convert, decode, other_version
from kit.model.code import Needed
from kit.model.host import Login
from kit.remote.engine.hiccups import no_exec, persistently
from kit.remote.run import endings
from kit.remote.scripts import in_node, script
from kit.remote.ssh import open_files
from kit.remote.ssh.attempts import Attempts
from kit.remote.ssh.login_text import MOST_BEFORE, LoginText
from kit.remote.ssh.openssh import SSH_FAILED, openssh_argv
from kit.remote.ssh.starting import starting
from kit.remote.ssh.stream import errors_of
from kit.remote.ssh.transport import BEGUN, Completed, marked

LAUNCHER = ("python3", "-IS", f"{names.IMAGE_BIN}/kit-launch")
VERSION = 2
READ = 1 << 18
# Time for the head's first line: a login, and a process in a container.
HELLO_S = 60.0
# The longest line of the head: its first, with the record of 10,000 nodes and all living runs, in bytes.
MOST_LINE = 64 * 2**20
# How many lines a login may print before the launcher's first one.
MOST_LINES_BEFORE = 10_000
# ssh gives up a cut link after this time, and kit connects again. The run continues meanwhile.
KEEP_ALIVE = ("ServerAliveInterval=5", "ServerAliveCountMax=4")


def new_run_id() -> str:
    """Return an id that sorts by time and differs for two runs of the same second."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


class _Hello(Struct, frozen=True, kw_only=True):
    """The launcher's first line. An older launcher lacks `code`, or the fields after `runs`."""

    record: str = ""
    runs: tuple[dict[str, Any], ...] = ()
    stdin: bool = False
    words: bool = False
    diffs: bool = False
    options: tuple[str, ...] | None = None
    code: dict[str, tuple[str, ...]] | None = None
    needed: tuple[str, ...] = ()
    waiting: int | None = None
    cordons: dict[str, Any] | None = None
    reserved: dict[str, Any] | None = None
    now: float | None = None


class Door:
    """One connection to kit-launch.

    `open` sets `record` (the text of cluster.json), `living` (runs that hold slots), and `code`: the digests of the
    snapshots of code that the head has, the newest first, each with the hosts that have it; None if its launcher knows
    no code.
    `needed` are those that living or waiting runs need.
    `waiting` is how many runs wait in line, and `cordons` has the cordoned hosts (kit.plan.queue.answers); both are
    None if its launcher knows no line. `reserved` is what is reserved for the first in line, or None. `now` is the time
    by the head's clock, which cordons have, in seconds since 1970; None if its launcher does not send it.
    """

    def __init__(self, head: Login, container: str) -> None:
        self._head = head
        self._container = container
        self._process: subprocess.Popen[bytes] | None = None
        # A bytearray: its first lines leave it without a copy of the others.
        self._rest = bytearray()
        self._closed = threading.Event()
        self._hello: Mapping[str, Any] = {}
        self._attempts = Attempts(head)
        self._asked_at = 0.0
        self.record = ""
        # Whether the launcher passes standard input on to rank 0, and whether hosts that come to an elastic run can
        # have their own values of variables.
        self.takes_stdin = self.takes_words = False
        # Whether runs that join the line can have one difference of their code together.
        self.takes_diffs = False
        # See kit.plan.run.known; None if it lists none.
        self.options: Sequence[str] | None = None
        self.living: tuple[Mapping[str, Any], ...] = ()
        self.code: Mapping[str, Sequence[str]] | None = None
        self.needed = Needed(at=0.0)
        self.waiting: int | None = None
        self.cordons: Mapping[str, Any] | None = None
        self.now: float | None = None
        self.reserved: Mapping[str, Any] | None = None

    @property
    def host(self) -> str:
        """Return the name of the head."""
        return self._head.host

    def another(self) -> Door:
        """Return a new door to the same head, not connected yet."""
        return Door(self._head, self._container)

    def start(self) -> None:
        """Start to connect, and return at once."""
        self._attempts.begin(self._head)
        self._asked_at = time.time()
        argv = openssh_argv(self._head, options=KEEP_ALIVE, sharing="make")
        command = marked(in_node(self._container, LAUNCHER, interactive=True))
        # Ctrl-C must not reach ssh: kit asks the run to stop, and waits until it has ended.
        with starting(self.host):
            self._process = subprocess.Popen(
                [*argv, command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )

    def open(self, *, patient: bool = True) -> None:
        """Connect, and read the first line. Raises UnreachableError or NotReadyError.

        Connect again if a kept connection was dead. `patient`: also wait for a head that hangs up or refuses, as other
        commands do.
        """
        ended = persistently(lambda: self._reached(patient=patient), no_exec)
        if not self._hello:
            if ended.code == SSH_FAILED:
                raise self._attempts.error(ended.error_text)
            raise endings.no_launcher(self.host, ended)
        version = self._hello.get("kit-launch")
        if version != VERSION:
            raise other_version("the cluster has another version of kit's launcher", version, VERSION, host=self.host)
        with answer_of(self.host, "the first line of its launcher"):
            hello = convert(self._hello, _Hello)
        self.record, self.takes_stdin, self.living, self.code = hello.record, hello.stdin, hello.runs, hello.code
        self.needed = Needed(digests=hello.needed, at=self._asked_at)
        self.takes_words, self.takes_diffs, self.options = hello.words, hello.diffs, hello.options
        self.waiting, self.cordons, self.reserved = hello.waiting, hello.cordons, hello.reserved
        self.now = hello.now

    def _reached(self, *, patient: bool) -> Completed:
        """Wait for the launcher's first line, over as many connections as needed."""
        while True:
            ended = self._greeted()
            pause = self._attempts.pause_s(ended.error_text) if ended.code == SSH_FAILED else None
            if pause is None or (pause and not patient):
                return ended
            time.sleep(pause)

    def _greeted(self) -> Completed:
        """Wait for the launcher's first line. Return ssh's exit code and output if it ended without one."""
        if self._process is None:
            self.start()
        # A login may print something first; only the launcher's line has this key.
        before = bytearray()
        lines, begun = 0, False
        end = time.monotonic() + HELLO_S
        while (line := self._line(max(0.0, end - time.monotonic()))) is not None:
            self._hello = self._hello_in(line)
            if self._hello:
                return Completed(code=0, stdout=b"", stderr=b"")
            before += line + b"\n"
            lines += 1
            if not begun and before.endswith(BEGUN):
                # What follows is of the engine, which may report on this stream that the launcher did not begin.
                begun = True
                before.clear()
            if len(before) > MOST_BEFORE or lines > MOST_LINES_BEFORE:
                with answer_of(self.host, "what its login printed"):
                    most = f"{MOST_BEFORE} bytes" if len(before) > MOST_BEFORE else f"{MOST_LINES_BEFORE} lines"
                    raise OddAnswer(f"it has more than {most}", bytes(before[:100]))
        before += self._rest[:MOST_BEFORE]
        errors, code = self._ended()
        self._hang_up(0.0)
        self._process, self._rest = None, bytearray()
        return Completed(code=code, stdout=bytes(before), stderr=errors.encode())

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request and return its first answer."""
        self.send(request)
        return self.answer()

    def answer(self) -> Mapping[str, Any]:
        """Return the next answer, which is one line. The run's log follows an answer that starts it."""
        line = self._line()
        if line is None:
            errors, code = self._ended()
            raise self.broken(errors, code)
        with answer_of(self.host, "an answer of its launcher"):
            return decode(line, dict[str, Any], most=MOST_LINE)

    def send(self, value: Mapping[str, Any]) -> None:
        """Send one line of JSON. A closed connection is noticed when reading, so it is ignored here."""
        with contextlib.suppress(OSError, ValueError):
            pipe = _pipe(self._running().stdin)
            pipe.write(json.dumps(value).encode() + b"\n")
            pipe.flush()

    def keep_showing(self, every_s: float) -> None:
        """Send a heartbeat from a thread, so that the run knows its operator even while kit's own output blocks."""

        def show() -> None:
            while not self._closed.wait(every_s):
                self.send({})

        threading.Thread(target=show, name="kit-operator", daemon=True).start()

    def read(self, patience_s: float, *, also: int | None = None) -> bytes | None:
        """Return bytes of the log; b"" if none came in time or `also` is readable; None at the end of the stream."""
        if self._rest:
            data, self._rest = self._rest, bytearray()
            return bytes(data)
        out = _pipe(self._running().stdout).fileno()
        waiting = [out] if also is None else [out, also]
        if out not in open_files.ready(waiting, patience_s):
            return b""
        return os.read(out, READ) or None

    def hung_up(self, patience_s: float) -> bool:
        """Wait that long at most, and return whether the stream has ended. What it still has is there for `read`."""
        return open_files.hung_up(_pipe(self._running().stdout).fileno(), patience_s)

    def over(self) -> tuple[str, int]:
        """Return the errors and the exit code of ssh, after the end of the stream."""
        return self._ended()

    def close(self, *, ended: bool = False) -> None:
        """Close the connection. A run that depends on its operator notices; a detached run continues.

        `ended`: the protocol is finished, so do not wait for ssh to disconnect.
        """
        self._closed.set()
        self._hang_up(0.0 if ended else 0.5)

    def _hang_up(self, patience_s: float) -> None:
        process = self._process
        if process is None:
            return
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None and not pipe.closed:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def broken(self, errors: str, code: int) -> KitError:
        """Return the error for a stream that ended too early. EngineDownError: the run may have survived."""
        return endings.broken(self._head.host, errors, code)

    def _line(self, patience_s: float | None = None) -> bytes | None:
        """Return the next line, or None at the end of the stream. Keep what follows for `read`.

        `patience_s` is for the whole line. Raises AnswerError for a line that is too long.
        """
        out = _pipe(self._running().stdout).fileno()
        end = None if patience_s is None else time.monotonic() + patience_s
        searched = 0
        while (at := self._rest.find(b"\n", searched)) < 0:
            searched = len(self._rest)
            if searched > MOST_LINE:
                with answer_of(self.host, "a line of its launcher"):
                    raise OddAnswer(f"it has more than {MOST_LINE} bytes", bytes(self._rest[:100]))
            left = None if end is None else max(0.0, end - time.monotonic())
            if not open_files.ready([out], left):
                raise NotReadyError(
                    f"the head's launcher does not answer within {HELLO_S:.0f} s",
                    hint=f"check whether its engine hangs: kit ssh {self._head.host} -- sudo docker ps",
                    host=self._head.host,
                )
            data = os.read(out, READ)
            if not data:
                return None
            self._rest += data
        line = bytes(self._rest[:at])
        del self._rest[: at + 1]
        return line

    def _hello_in(self, line: bytes) -> Mapping[str, Any]:
        """Return the fields of the launcher's first line; empty for a line that a login printed before it."""
        if b'"kit-launch"' not in line:
            return {}
        with answer_of(self.host, "the first line of its launcher"):
            return decode(line, dict[str, Any], most=MOST_LINE)

    def _ended(self) -> tuple[str, int]:
        """Return the errors and the exit code of ssh, once it has ended."""
        process = self._running()
        errors = errors_of(process)
        return errors, process.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the door was not opened")
        return self._process


class LogFile(Door):
    """The log of a run, read from the disk of the head's VM, for a head whose container is down. Empty if deleted.

    `folder` is the cluster's. Ranks can write to the log's folder: runs.py opens it.
    """

    def __init__(self, head: Login, folder: str, run: str) -> None:
        super().__init__(head, "")
        self._process = subprocess.Popen(
            [*openssh_argv(head), marked(script("runs", folder, "read", run, "log"))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._login_text = LoginText()

    def read(self, patience_s: float, *, also: int | None = None) -> bytes | None:
        """Return bytes of the log as Door does, without what the login printed before them."""
        data = super().read(patience_s, also=also)
        with answer_of(self.host, "what its login printed"):
            return self._login_text.cut(data) if data else data

    def send(self, value: Mapping[str, Any]) -> None:
        """Do nothing: a file takes no requests."""


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RuntimeError("the process was started without this pipe")
    return pipe
