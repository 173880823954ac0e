"""Progress for a person, on stderr: plain lines, or nothing but warnings. Bars are in kit.cli.screen.bars.

A job's own lines go to stdout and stderr as they are.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from kit.cli.screen.terminal import Terminal
from kit.cli.text.fold import fold
from kit.events import Event, HostDone, HostFailed, HostStep, Note, OutputLine, Phase, Reporter, Warned

_NO_DIGITS = str.maketrans("", "", "0123456789")


class Progress(Reporter, Protocol):
    """A reporter that owns a part of the screen until it is closed. Closing twice is fine."""

    def close(self) -> None: ...


class Quiet:
    """Output, warnings and failed hosts; nothing else."""

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
        """Nothing is held."""

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
    """A line for each phase, and for each change of a host; a growing fraction is told at each quarter only."""

    def __init__(self, terminal: Terminal, *, verbose: bool = False) -> None:
        super().__init__(terminal)
        self._verbose = verbose
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._told: dict[str, tuple[str, int]] = {}

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
        # A long step has a fraction, and the figures in its text grow with it: a new quarter or other words are news.
        # The many short steps are told only to who asked for more; a failure names the step that it was at.
        if event.fraction is None:
            if self._verbose and self._told.get(event.host) != (event.text, -1):
                self._told[event.host] = (event.text, -1)
                self._line(f"{event.host}: {event.text}")
            return
        quarter = int(min(max(event.fraction, 0.0), 1.0) * 4)
        with self._lock:
            news = (event.text.translate(_NO_DIGITS), quarter)
            if self._told.get(event.host) == news:
                return
            self._told[event.host] = news
        self._line(f"{event.host}: {event.text} {quarter * 25}%")

    def _line(self, text: str) -> None:
        self.terminal.tell(f"[{time.monotonic() - self._began:6.1f}s] {text}" if self._verbose else text)


def phase_title(event: Phase) -> str:
    """`ship: gpu[1-8]`, or the name alone for work on this machine."""
    return f"{event.name}: {fold(event.hosts)}" if event.hosts else event.name
