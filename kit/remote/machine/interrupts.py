"""Ctrl-C while kit waits for a run or makes a lab: counted, instead of raised in the middle of something."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import FrameType, TracebackType


class Interrupts:
    """Count Ctrl-C, SIGTERM and a closed terminal within this context. `fd` is readable after one.

    A closed terminal counts only as the first. `before` is how many came before this context.
    An ignored signal stays ignored (nohup). Only the main thread gets signals, so other threads count none.
    With `suspends`, Ctrl-Z only sets `suspended`, so that kit can say something before it calls `suspend`.
    """

    NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self, before: int = 0, *, suspends: bool = False) -> None:
        self.count = 0
        self.suspended = False
        self._suspends = suspends
        self._earlier = before
        self.fd, self._write = os.pipe()
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Interrupts:
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write, False)
        if threading.current_thread() is threading.main_thread():
            for number in (*self.NUMBERS, *((signal.SIGTSTP,) if self._suspends else ())):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what getsignal returned
        os.close(self.fd)
        os.close(self._write)

    def drain(self) -> None:
        """Empty `fd` after it was readable."""
        try:
            os.read(self.fd, 64)
        except BlockingIOError:
            return

    def suspend(self) -> None:
        """Stop this process after Ctrl-Z, and return when it goes on."""
        self.suspended = False
        suspend()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        # Of a closed window or a reader that is gone, which may have ended by the same Ctrl-C: kit.cli.screen.terminal.
        if number == signal.SIGHUP and self._earlier + self.count:
            return
        if number == signal.SIGTSTP:
            self.suspended = True
        else:
            self.count += 1
        try:
            os.write(self._write, b"!")
        except BlockingIOError:
            return


def suspend() -> None:
    """Stop this process as Ctrl-Z does, and return when it goes on.

    The kernel does not stop it where no shell could continue it, as in `ssh -t HOST kit top`. SIGSTOP would.
    """
    before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    # It reaches this thread before the call returns.
    signal.raise_signal(signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, before)


def stoppable() -> bool:
    """Return whether Ctrl-Z stops this process: a shell of its session must be able to continue it.

    The kernel asks for a parent of the process group that is in the session and in another group. Return True if this
    system does not say who the parents are.
    """
    session, group = os.getsid(0), os.getpgrp()
    parent = os.getppid()
    try:
        # A wrapper, such as `timeout`, is in the group of its program. 0 is a process outside of this container.
        while parent and os.getpgid(parent) == group:
            # After the name of the program, which may have blanks: the state and the parent.
            status = Path(f"/proc/{parent}/stat").read_text(encoding="utf-8", errors="replace")
            parent = int(status.rpartition(")")[2].split()[1])
        return bool(parent) and os.getsid(parent) == session
    except (ProcessLookupError, PermissionError):
        return False
    except (OSError, ValueError, IndexError):
        return True
