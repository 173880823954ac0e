"""Ctrl-C while kit waits for a run or makes a lab: counted, instead of raised in the middle of something."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType


class Interrupts:
    """Count Ctrl-C, SIGTERM and a closed terminal, which counts once, within this context. `fd` is readable after one.

    An ignored signal stays ignored (nohup). Only the main thread gets signals, so other threads count none.
    """

    NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.count = 0
        self._hung_up = False
        self.fd, self._write = os.pipe()
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Interrupts:
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write, False)
        if threading.current_thread() is threading.main_thread():
            for number in self.NUMBERS:
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

    def _note(self, number: int, _frame: FrameType | None) -> None:
        # For one closed window, the kernel, the shell and kit.cli.screen.terminal may each send a signal.
        if number == signal.SIGHUP:
            if self._hung_up:
                return
            self._hung_up = True
        self.count += 1
        try:
            os.write(self._write, b"!")
        except BlockingIOError:
            return
