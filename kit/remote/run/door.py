"""The door to a cluster's runs: kit-launch in the head's container, through an OpenSSH stream.

images/lib/kitrun/front.py has the protocol.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import subprocess
import threading
import time
from collections.abc import Mapping
from typing import IO, Any

from kit.errors import KitError, NotReadyError, UnreachableError
from kit.model import names
from kit.model.host import Login
from kit.remote.engine.hiccups import no_exec, persistently
from kit.remote.scripts import in_node
from kit.remote.ssh.openssh import openssh_argv
from kit.remote.ssh.refusals import no_session
from kit.remote.ssh.transport import Completed, as_root

LAUNCHER = ("python3", "-IS", f"{names.IMAGE_BIN}/kit-launch")
VERSION = 2
READ = 1 << 18
# What the head has to say a first word: a login, and a process in a container.
HELLO_S = 60.0
# A link that is cut is given up after this, and another connection tried: the run goes on meanwhile.
KEEP_ALIVE = ("ServerAliveInterval=5", "ServerAliveCountMax=4")


def new_run_id() -> str:
    """Sorts by time, and two operators at the same second still differ."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


class Door:
    """One connection to kit-launch. `record` (cluster.json's text) and `living` are known once `open` returned."""

    def __init__(self, head: Login, container: str) -> None:
        self._head = head
        self._container = container
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._closed = threading.Event()
        self._hello: Mapping[str, Any] = {}
        self.record = ""
        self.living: tuple[Mapping[str, Any], ...] = ()

    def another(self) -> Door:
        """A new connection to the same place."""
        return Door(self._head, self._container)

    def start(self) -> None:
        """Begin to connect, and wait for nothing."""
        argv = openssh_argv(self._head, options=KEEP_ALIVE)
        command = as_root(in_node(self._container, LAUNCHER, interactive=True))
        # Ctrl-C must not reach ssh: kit asks the run to stop, and waits for how that went.
        self._process = subprocess.Popen(
            [*argv, command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def open(self) -> None:
        """Connect, and read the first line. Raises UnreachableError or NotReadyError."""
        ended = persistently(self._greeted, no_exec)
        if not self._hello:
            raise self._no_launcher(ended)
        if self._hello["kit-launch"] != VERSION:
            raise NotReadyError(
                "the cluster runs another version of kit's launcher", hint="run: kit deploy", host=self._head.host
            )
        self.record = str(self._hello.get("record", ""))
        self.living = tuple(self._hello.get("runs", ()))

    def _greeted(self) -> Completed:
        """Wait for the launcher's first line. Where it does not come: with what words and exit code ssh ended."""
        if self._process is None:
            self.start()
        # A login may say something of its own first; the launcher's line tells itself apart.
        before = b""
        while (line := self._line(HELLO_S)) is not None:
            self._hello = _object(line)
            if "kit-launch" in self._hello:
                return Completed(code=0, stdout=b"", stderr=b"")
            before += line + b"\n"
        self._hello = {}
        before += self._rest
        said, code = self._last_words()
        self._hang_up(0.0)
        self._process, self._rest = None, b""
        return Completed(code=code, stdout=before, stderr=said.encode())

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request and return its first answer."""
        self.send(request)
        return self.answer()

    def answer(self) -> Mapping[str, Any]:
        """The next answer: one line. After one that says so, the run's log follows."""
        line = self._line()
        if line is None:
            said, code = self._last_words()
            raise self.broken(said, code)
        return _object(line)

    def send(self, value: Mapping[str, Any]) -> None:
        """Where nobody reads any more, what comes back says so."""
        with contextlib.suppress(OSError, ValueError):
            pipe = _pipe(self._running().stdin)
            pipe.write(json.dumps(value).encode() + b"\n")
            pipe.flush()

    def keep_showing(self, every_s: float) -> None:
        """Say from now on that somebody is here, whatever this program waits for: a screen may stand still for long."""

        def show() -> None:
            while not self._closed.wait(every_s):
                self.send({})

        threading.Thread(target=show, name="kit-operator", daemon=True).start()

    def read(self, patience_s: float, *, also: int | None = None) -> bytes | None:
        """Bytes of the log; b"" when none came in time, or `also` can be read; None when the stream is over."""
        if self._rest:
            data, self._rest = self._rest, b""
            return data
        out = _pipe(self._running().stdout).fileno()
        waiting = [out] if also is None else [out, also]
        if out not in select.select(waiting, [], [], patience_s)[0]:
            return b""
        return os.read(out, READ) or None

    def over(self) -> tuple[str, int]:
        """After the stream's end: its last words and ssh's exit code."""
        return self._last_words()

    def close(self, *, ended: bool = False) -> None:
        """Hang up. A run that waits for its operator notices; one that is detached does not care.

        `ended`: all has been said, and nobody waits until ssh has taken leave of the other end.
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

    def broken(self, said: str, code: int) -> KitError:
        """Why a stream that had begun ended without a last word."""
        if code == 255:
            return UnreachableError(
                f"the connection to the head broke{f': {_last(said)}' if said else ''}",
                hint="is the VM up? kit runs shows what became of the run",
                host=self._head.host,
            )
        return NotReadyError(
            f"the launcher ended without a message (exit {code}): its container was stopped or killed",
            hint=f"kit ps, kit logs {self._head.host}; then: kit deploy",
            host=self._head.host,
        )

    def _line(self, patience_s: float | None = None) -> bytes | None:
        """The next line; None at the stream's end. What follows it stays for `read`."""
        out = _pipe(self._running().stdout).fileno()
        while b"\n" not in self._rest:
            if not select.select([out], [], [], patience_s)[0]:
                raise NotReadyError(
                    f"the head's launcher does not answer within {patience_s:.0f} s",
                    hint=f"does its engine hang? kit ssh {self._head.host} -- docker ps",
                    host=self._head.host,
                )
            data = os.read(out, READ)
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _last_words(self) -> tuple[str, int]:
        process = self._running()
        said = _pipe(process.stderr).read().decode(errors="replace").strip()
        return said, process.wait()

    def _no_launcher(self, ended: Completed) -> KitError:
        said = ended.error_text
        last = _last(said) or (ended.text.strip() if ended.code else "") or f"exit {ended.code}"
        if ended.code == 255:
            return no_session(self._head, said)
        if "sudo" in last:
            hint = "give the user sudo without a password, or set user=root in the hosts file"
            return NotReadyError(f"the login cannot become root: {last}", hint=hint, host=self._head.host)
        if "o such container" in said or "is not running" in said:
            return NotReadyError(f"no cluster runs here: {last}", hint="run: kit deploy", host=self._head.host)
        message = f"the head's launcher did not start: {last}"
        return NotReadyError(message, hint="kit ps; then: kit deploy", host=self._head.host)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the door was not opened")
        return self._process


class LogFile(Door):
    """The log of a run, read from the disk of the head's VM. It is used if the head's container is down."""

    def __init__(self, head: Login, path: str) -> None:
        super().__init__(head, "")
        self._process = subprocess.Popen(
            [*openssh_argv(head), as_root(["cat", "--", path])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def send(self, value: Mapping[str, Any]) -> None:
        """Do nothing: a file takes no requests."""


def _last(said: str) -> str:
    return said.splitlines()[-1] if said else ""


def _object(line: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RuntimeError("the process was started without this pipe")
    return pipe
