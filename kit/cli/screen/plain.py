"""Progress on stderr: plain lines, or warnings alone. Bars are in kit.cli.screen.bars.

The lines of a job go to stdout and stderr unchanged.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from kit.cli.screen.terminal import Terminal
from kit.events import Event, HostDone, HostFailed, HostStep, Note, OutputLine, Phase, Reporter, Warned
from kit.model.text import fold

_NO_DIGITS = str.maketrans("", "", "0123456789")


class Progress(Reporter, Protocol):
    """A reporter that owns a part of the screen until you close it. You may close it twice."""

    def close(self) -> None: ...


class Quiet:
    """Prints output, warnings and failed hosts, and nothing else."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal

    def report(self, event: Event) -> None:
        match event:
            case OutputLine():
                self.output(event)
            case Warned():
                self.warned(event)
            case HostFailed():
                self.failed(event)
            case _:
                pass

    def close(self) -> None:
        """Do nothing: it owns no part of the screen."""

    def output(self, event: OutputLine) -> None:
        text = f"{event.source} | {event.text}" if event.source else event.text
        if event.stream == "stdout":
            self.terminal.say(text)
        else:
            self.terminal.tell(text)

    def warned(self, event: Warned) -> None:
        word = self.terminal.paint("warning:", "yellow", self.terminal.err)
        self.terminal.tell(f"kit: {word} {event.text}" + (f"\n  → {event.hint}" if event.hint else ""))

    def failed(self, event: HostFailed) -> None:
        word = self.terminal.paint(f"{event.host}:", "red", self.terminal.err)
        self.terminal.tell(f"{word} {event.text}" + (f"\n  → {event.hint}" if event.hint else ""))


class Plain(Quiet):
    """Prints a line for each phase and each change of a host. A growing fraction gets a line at each quarter only."""

    def __init__(self, terminal: Terminal, *, verbose: bool = False) -> None:
        super().__init__(terminal)
        self._verbose = verbose
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._printed: dict[str, tuple[str, int]] = {}

    def report(self, event: Event) -> None:
        match event:
            case Note():
                self._line(event.text)
            case Phase():
                self._line(self.terminal.paint(phase_title(event), "bold", self.terminal.err))
            case HostStep():
                self._step(event)
            case HostDone():
                self._line(f"{event.host}: {self.terminal.paint(event.text, 'green', self.terminal.err)}")
            case _:
                super().report(event)

    def _step(self, event: HostStep) -> None:
        # A long step has a fraction, and the numbers in its text grow with it: print a new quarter, or other words.
        # Print the many short steps with --verbose only; a failure names the step that it was at.
        if event.fraction is None:
            if self._verbose and self._printed.get(event.host) != (event.text, -1):
                self._printed[event.host] = (event.text, -1)
                self._line(f"{event.host}: {event.text}")
            return
        quarter = int(min(max(event.fraction, 0.0), 1.0) * 4)
        with self._lock:
            news = (event.text.translate(_NO_DIGITS), quarter)
            if self._printed.get(event.host) == news:
                return
            self._printed[event.host] = news
        self._line(f"{event.host}: {event.text} {quarter * 25}%")

    def _line(self, text: str) -> None:
        self.terminal.tell(f"[{time.monotonic() - self._began:6.1f}s] {text}" if self._verbose else text)


def phase_title(event: Phase) -> str:
    """Return `ship: gpu[1-8]`, or the name alone for work on this machine."""
    return f"{event.name}: {fold(event.hosts)}" if event.hosts else event.name
