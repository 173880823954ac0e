"""OpenSshTransport: commands on one VM by OpenSSH's own client, all over one connection that it shares and keeps.

The client's processes run beside each other, so many hosts cost as many cores as there are. Python's ssh has one.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import time
from collections.abc import Sequence
from typing import Literal

from kit.errors import Interrupted, SlowError, UnreachableError
from kit.model.host import Host, Login
from kit.model.values import replace
from kit.remote.ssh.attempts import Attempts
from kit.remote.ssh.login_errors import no_shell_error
from kit.remote.ssh.openssh import SSH_FAILED, control_argv, openssh_argv
from kit.remote.ssh.private import make_folder
from kit.remote.ssh.refusals import (
    broken_error,
    missing_key_error,
    no_connection_error,
)
from kit.remote.ssh.starting import starting
from kit.remote.ssh.talk import START_S, Ended, LateError, StoppedError, Talk
from kit.remote.ssh.transport import Completed, Live, LiveTransport, Output, fenced

# The request reaches a process of this machine.
_CONTROL_S = 10.0


class OpenSshTransport(LiveTransport):
    """One thread's way to one VM. The first command connects; `close` leaves a kept connection open for the next.

    `options` replace kit's own options of ssh.
    """

    def __init__(self, host: Host, login: Login, *, options: Sequence[str] = ()) -> None:
        self._host = host
        self._login = login
        self._options = options
        self._own_folder: str | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> Host:
        return self._host

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        output = Output(self._host.name)
        code = self._until_begun(fenced(argv), Live(out=output.add_out, err=output.add_err), stdin, timeout_s)
        return Completed(code=code, stdout=bytes(output.out), stderr=bytes(output.err))

    def stream(self, argv: Sequence[str], live: Live) -> int:
        try:
            return self._until_begun(fenced(argv), live, b"", math.inf)
        except StoppedError:
            raise Interrupted("interrupted before the command began", host=self._host.name) from None

    def close(self) -> None:
        """End what this transport started. A kept connection stays."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        folder, self._own_folder = self._own_folder, None
        if folder is not None:
            _control(replace(self._login, socket=f"{folder}/s"), "exit")
            import shutil  # noqa: PLC0415  (slow to import, and kept connections have no such folder)

            shutil.rmtree(folder, ignore_errors=True)

    def _until_begun(self, command: str, live: Live, stdin: bytes, timeout_s: float) -> int:
        """Connect, again if necessary, and run the command once. Return its exit code."""
        if self._login.key and not os.path.isfile(self._login.key):  # noqa: PTH113
            raise missing_key_error(self._login)
        attempts = Attempts(self._login)
        while True:
            login = self._shared_login()
            attempts.begin(login)
            ended = self._attempt(login, command, live, stdin, timeout_s)
            if ended.begun:
                return self._code(ended, login)
            text = ended.errors.decode(errors="replace").strip()
            before = ended.before.decode(errors="replace").strip()
            # ssh itself ends with 255 or by a signal. Any other code is of what ran at the login.
            if ended.code >= 0 and ended.code != SSH_FAILED:
                raise no_shell_error(self._login, before or text, ended.code)
            pause = attempts.pause_s(text)
            if pause is None:
                silent = ended.code == SSH_FAILED and not text
                raise no_shell_error(self._login, before, ended.code) if silent and before else attempts.error(text)
            time.sleep(pause)

    def _shared_login(self) -> Login:
        """Return the login with its socket: the kept one, or one of this transport's that ends with it."""
        if self._login.socket is not None:
            return self._login
        if self._own_folder is None:
            self._own_folder = make_folder()
        return replace(self._login, socket=f"{self._own_folder}/s")

    def _attempt(self, login: Login, command: str, live: Live, stdin: bytes, timeout_s: float) -> Ended:
        with starting(self._host.name):
            process = subprocess.Popen(
                [*openssh_argv(login, options=self._options, sharing="make"), command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                # Ctrl-C must not reach ssh: kit decides what ends.
                start_new_session=True,
            )
        self._process = process
        try:
            return Talk(process, live, stdin=stdin, timeout_s=timeout_s).run()
        except LateError as late:
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

    def _late(self, late: LateError, timeout_s: float) -> UnreachableError | SlowError:
        if not late.begun:
            return no_connection_error(self._login, f"no session within {START_S:.0f} s")
        if math.isinf(timeout_s):
            return SlowError("the command did not end after Ctrl-C", host=self._host.name)
        return SlowError(
            f"a command did not end within {timeout_s:.0f} s",
            hint="look at the host's load and its engine (docker info), then try again",
            host=self._host.name,
        )

    def _code(self, ended: Ended, login: Login) -> int:
        """ssh's 255 is the command's own exit code if the connection is still there."""
        if ended.code in (SSH_FAILED, -9, -15) and not self._is_alive(login):
            *_, last = ended.errors.decode(errors="replace").strip().splitlines() or ["it ended early"]
            raise broken_error(self._login, last)
        return ended.code

    def _is_alive(self, login: Login) -> bool:
        return _control(login, "check")


def _control(login: Login, request: Literal["check", "exit"]) -> bool:
    """Ask the process that has the connection, and return whether it agrees.

    It may be late, for example if the machine was suspended meanwhile. Without commands, it ends by itself.
    """
    argv = control_argv(login, request)
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_CONTROL_S, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
