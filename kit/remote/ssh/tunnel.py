"""Tunnel: one connection to a VM that forwards ports to this machine's loopback while a command runs there.

It is a separate connection. So nothing is left of it when kit ends, even if kit is killed: then the command's
standard input ends, and the command with it. ssh would wait for forwarded connections, so a guard ends ssh.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence
from types import TracebackType

from kit.errors import KitError, StepError
from kit.model.host import Host, Login
from kit.model.values import replace
from kit.remote.ssh.multiplexed import OpenSshTransport
from kit.remote.ssh.openssh import FORWARDING, LOOPBACK, control_argv, forward_argv
from kit.remote.ssh.private import make_folder
from kit.remote.ssh.starting import starting
from kit.remote.ssh.transport import Lasting, Live

# OpenSSH's words for a connection that the far side did not make.
_REFUSED = re.compile(r"channel [0-9]+: open failed: (?P<why>.*)")
# The request reaches a process of this machine.
_ASK_S = 15.0
# How long the command has to end by itself when the tunnel closes, and its thread after that.
_END_S = 8.0
# How long a wait in the main thread is, at most.
_LOOK_S = 1.0
# The longest line that is passed on, in bytes.
_MOST_LINE = 1 << 16
# Waits until its input ends, which only kit has, then becomes the command of its arguments. `read` needs no process.
_GUARD = ("sh", "-c", 'read -r end; exec "$@"', "sh")


class Tunnel:
    """Runs `argv` on the VM as root, with an input that lasts as long as the tunnel.

    `line` gets each line that the command prints, and `refused` gets why a connection to a forwarded port failed. Both
    are called in another thread.
    """

    def __init__(
        self,
        host: Host,
        login: Login,
        argv: Sequence[str],
        *,
        line: Callable[[str], None],
        refused: Callable[[str], None],
    ) -> None:
        self._host = host
        self._argv = argv
        self._line = line
        self._refused = refused
        self._folder = make_folder()
        self._login = replace(login, socket=f"{self._folder}/s")
        self._transport = OpenSshTransport(host, self._login, options=FORWARDING)
        self._stdin = Lasting()
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._begun = False
        self._ended = False
        self._code = 0
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Tunnel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Connect, and return when the command begins. Raises UnreachableError."""
        with starting(self._host.name):
            self._guard = subprocess.Popen(
                [*_GUARD, *control_argv(self._login, "exit")],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Ctrl-C, or the end of the terminal, must not end it before kit.
                start_new_session=True,
            )
        self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: self._begun or self._ended)
        self._raise()

    def forward(self, local: int, address: str, port: int, *, free: str = "") -> None:
        """Listen on this port of this machine's loopback, for `port` of an address as the VM knows it.

        Raises StepError if ssh cannot listen. `free` are the words that choose a free port, if they are not `0:PORT`.
        """
        argv = forward_argv(self._login, local, address, port)
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_S, check=False)
        except subprocess.TimeoutExpired:
            raise StepError(
                f"ssh did not answer within {_ASK_S:.0f} s that it listens on {LOOPBACK}:{local}",
                hint="run the same again",
            ) from None
        if done.returncode != 0:
            self._raise()
            *_, last = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit {done.returncode}"]
            raise StepError(
                f"ssh cannot listen on {LOOPBACK}:{local}: {last}",
                hint=f"choose another port of this machine: {free or f'0:{port}'} takes a free one",
            )

    def wait_for(self, done: Callable[[], bool], *, timeout_s: float) -> bool:
        """Wait until `done()` is true; kit looks after each line. Return False if the command ended, or after the time.

        Raises UnreachableError if the connection breaks.
        """
        with self._changed:
            self._changed.wait_for(lambda: done() or self._ended, timeout_s)
            if done():
                return True
        self._raise()
        return False

    @property
    def ended(self) -> bool:
        """Whether the command has ended."""
        return self._ended

    def wait(self) -> int:
        """Wait until the command ends, and return its exit code. Raises UnreachableError if the connection breaks."""
        with self._changed:
            # Python notices a Ctrl-C that comes just before it waits only when the wait ends.
            while not self._changed.wait_for(lambda: self._ended, _LOOK_S):
                pass
        self._raise()
        return self._code

    def close(self, *, patient: bool = False) -> None:
        """End the connection. `patient`: first let the command end by itself, for some seconds."""
        self._stdin.close()
        if self._thread.is_alive():
            if patient:
                self._thread.join(_END_S)
            self._stop.set()
            # The thread notices it, and nobody waits for its error.
            self._transport.close()
            self._thread.join(_END_S)
        self._dismiss()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _dismiss(self) -> None:
        """End the guard: ssh has ended."""
        guard, self._guard = self._guard, None
        if guard is None or guard.stdin is None:
            return
        guard.kill()
        guard.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            guard.wait(_END_S)

    def _run(self) -> None:
        live = Live(
            out=_Lines(self._take),
            err=_Lines(self._error_line),
            stdin=lambda: self._stdin,
            begin=self._begin,
            stop=self._stop,
        )
        try:
            self._code = self._transport.stream(self._argv, live)
        except BaseException as error:  # the thread that waits raises it
            self._error = error
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _begin(self) -> bool:
        with self._changed:
            self._begun = True
            self._changed.notify_all()
        return True

    def _error_line(self, line: str) -> None:
        match = _REFUSED.search(line)
        if match:
            self._refused(match["why"])
        else:
            self._take(line)

    def _take(self, line: str) -> None:
        with self._changed:
            self._line(line)
            self._changed.notify_all()

    def _raise(self) -> None:
        error = self._error
        if isinstance(error, KitError):
            error.host = error.host or self._host.name
        if error is not None:
            raise error


class _Lines:
    """Splits output into lines, and passes each on. A longer line is cut."""

    def __init__(self, sink: Callable[[str], None]) -> None:
        self._sink = sink
        self._rest = b""

    def __call__(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[:_MOST_LINE]
        for line in lines:
            self._sink(line[:_MOST_LINE].decode(errors="replace").rstrip("\r"))
