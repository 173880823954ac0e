"""OpenSshTransport: commands on one VM by OpenSSH's own client, all over one connection that it shares and keeps.

The client's processes run beside each other, so many hosts cost as many cores as there are. Python's ssh has one.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import IO

from kit.errors import SlowError, StepError, UnreachableError
from kit.model.host import Host, Login
from kit.remote.ssh.attempts import Attempts
from kit.remote.ssh.openssh import SSH_FAILED, control_argv, openssh_argv
from kit.remote.ssh.refusals import (
    broken_error,
    missing_key_error,
    no_connection_error,
    no_session,
)
from kit.remote.ssh.transport import BEGUN, Completed, Transport, fenced

# From the start of ssh to the start of the command. sshd's own limit for a login is 120 s.
START_S = 60.0
CHUNK = 1 << 16
# After the end of ssh, a master that was left behind by an old version may still hold standard error.
_DRAIN_S = 0.2


class OpenSshTransport(Transport):
    """One thread's way to one VM. The first command connects; `close` leaves a kept connection open for the next."""

    def __init__(self, host: Host, login: Login) -> None:
        self._host = host
        self._login = login
        self._own_folder: str | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> Host:
        return self._host

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        if self._login.key and not os.path.isfile(self._login.key):  # noqa: PTH113
            raise missing_key_error(self._login)
        command = fenced(argv)
        attempts = Attempts()
        while True:
            login = self._shared_login()
            attempts.begin(login)
            ended = self._attempt(login, command, stdin, timeout_s)
            if ended.begun:
                return self._completed(ended, login)
            text = ended.stderr.decode(errors="replace").strip()
            pause = attempts.pause_s(text)
            if pause is None:
                raise no_session(self._login, text)
            time.sleep(pause)

    def close(self) -> None:
        """End what this transport started. A kept connection stays."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        folder, self._own_folder = self._own_folder, None
        if folder is not None:
            login = replace(self._login, socket=f"{folder}/s")
            subprocess.run(
                control_argv(login, "exit"), stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False
            )
            shutil.rmtree(folder, ignore_errors=True)

    def _shared_login(self) -> Login:
        """Return the login with its socket: the kept one, or one of this transport's that ends with it."""
        if self._login.socket is not None:
            return self._login
        if self._own_folder is None:
            self._own_folder = tempfile.mkdtemp(prefix="kit-", dir="/tmp")
        return replace(self._login, socket=f"{self._own_folder}/s")

    def _attempt(self, login: Login, command: str, stdin: bytes, timeout_s: float) -> _Ended:
        try:
            process = subprocess.Popen(
                [*openssh_argv(login, sharing="make"), command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                # Ctrl-C must not reach ssh: kit decides what ends.
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise StepError(
                "this machine has no ssh client", hint="install OpenSSH: apt-get install openssh-client"
            ) from error
        self._process = process
        try:
            return _Talk(process, stdin, timeout_s).run()
        except _Late as late:
            raise self._late(late, timeout_s) from None
        finally:
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            if process.poll() is None:
                process.kill()
            process.wait()
            self._process = None

    def _late(self, late: _Late, timeout_s: float) -> UnreachableError | SlowError:
        if not late.begun:
            return no_connection_error(self._login, f"no session within {START_S:.0f} s")
        return SlowError(
            f"a command did not end within {timeout_s:.0f} s",
            hint="look at the host's load and its engine (docker info), then try again",
            host=self._host.name,
        )

    def _completed(self, ended: _Ended, login: Login) -> Completed:
        """ssh's 255 is the command's own exit code if the connection is still there."""
        if ended.code in (SSH_FAILED, -9, -15) and not self._is_alive(login):
            raise broken_error(self._login, ended.stderr.decode(errors="replace").strip() or "it ended early")
        return Completed(code=ended.code, stdout=ended.stdout, stderr=ended.stderr)

    def _is_alive(self, login: Login) -> bool:
        argv = control_argv(login, "check")
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ended:
    """How one process of ssh ended, and whether the command began. `stderr` is ssh's own if it did not."""

    begun: bool
    code: int
    stdout: bytes
    stderr: bytes


class _Late(Exception):
    def __init__(self, *, begun: bool) -> None:
        super().__init__()
        self.begun = begun


class _Talk:
    """Feeds one process of ssh and reads all that it writes, until it ends or its time is over."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, timeout_s: float) -> None:
        self._process = process
        # The first line lets the command begin. It is sent after the session answered: a connection that is dead
        # can never run the command later, behind the back of another attempt.
        self._pending = memoryview(b"\n" + stdin)
        self._timeout_s = timeout_s
        self._out, self._err = bytearray(), bytearray()
        self._begun = False
        self._deadline = time.monotonic() + START_S
        self._selector = selectors.DefaultSelector()

    def run(self) -> _Ended:
        with self._selector:
            for pipe in (self._process.stdout, self._process.stderr):
                self._selector.register(_pipe(pipe), selectors.EVENT_READ)
            os.set_blocking(_pipe(self._process.stdin).fileno(), False)
            self._pump()
        code = self._process.wait()
        return _Ended(begun=self._begun, code=code, stdout=bytes(self._out), stderr=bytes(self._err))

    def _pump(self) -> None:
        while self._reads():
            now = time.monotonic()
            ended = self._process.poll() is not None
            if not ended and now > self._deadline:
                raise _Late(begun=self._begun)
            ready = self._selector.select(_DRAIN_S if ended else min(self._deadline - now, 1.0))
            for key, _ in ready:
                pipe = key.fileobj
                if pipe is self._process.stdin:
                    self._feed()
                else:
                    self._read(pipe)  # type: ignore[arg-type]  # the pipes that were registered
            if ended and not ready:
                return

    def _reads(self) -> bool:
        return any(key.fileobj is not self._process.stdin for key in self._selector.get_map().values())

    def _read(self, pipe: IO[bytes]) -> None:
        data = os.read(pipe.fileno(), CHUNK)
        if not data:
            self._selector.unregister(pipe)
            return
        (self._out if pipe is self._process.stdout else self._err).extend(data)
        if not self._begun and pipe is self._process.stderr and BEGUN in self._err:
            # What a login's own files and ssh wrote before is not the command's.
            self._err = self._err[self._err.index(BEGUN) + len(BEGUN) :]
            self._begun = True
            self._deadline = time.monotonic() + self._timeout_s
            self._selector.register(_pipe(self._process.stdin), selectors.EVENT_WRITE)

    def _feed(self) -> None:
        stdin = _pipe(self._process.stdin)
        try:
            self._pending = self._pending[os.write(stdin.fileno(), self._pending[:CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:
            # A command may end without reading its input.
            self._pending = self._pending[:0]
        if not self._pending:
            self._selector.unregister(stdin)
            with contextlib.suppress(OSError):
                stdin.close()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RuntimeError("the process was started without this pipe")
    return pipe
