"""Progress on stderr: plain lines, or warnings alone. Bars are in kit.cli.screen.bars.

The lines of a job go to stdout and stderr unchanged.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from kit.cli.screen.terminal import Terminal
from kit.events import Event, HostDone, HostFailed, HostStep, Note, OutputLine, Phase, Reporter, UnfinishedLine, Warned
from kit.model.text import fold, hanging, one_line

_NO_DIGITS = str.maketrans("", "", "0123456789")
# With more hosts, a line for each is too much to read: equal lines are printed once, with the hosts folded.
MANY_HOSTS = 16
# While kit works, it prints this many failed hosts. The error at the end has all of them, folded.
_LIVE_FAILURES = 8


class Progress(Reporter, Protocol):
    """A reporter that owns a part of the screen until you close it. You may close it twice."""

    def close(self) -> None: ...


class Quiet:
    """Prints output, warnings and failed hosts, and nothing else."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self._failures = 0

    def report(self, event: Event) -> None:
        match event:
            case OutputLine():
                self.output(event)
            case UnfinishedLine():
                self.unfinished(event)
            case Warned():
                self.warned(event)
            case HostFailed():
                self.failed(event)
            case _:
                pass

    def close(self) -> None:
        """End a line of the job that is still unfinished."""
        self.terminal.settle()

    def output(self, event: OutputLine) -> None:
        tag = _tag(event) if event.source else ""
        self.terminal.output(event.text, event.stream, tag=tag, source=event.source, raw=event.raw)

    def unfinished(self, event: UnfinishedLine) -> None:
        stream = self.terminal.out if event.stream == "stdout" else self.terminal.err
        if event.live or stream.isatty():
            self.terminal.show_unfinished(stream, event.text, event.source, tag=_tag(event))

    def warned(self, event: Warned) -> None:
        word = self.terminal.paint("warning:", "yellow", self.terminal.err)
        self.terminal.tell(
            f"kit: {word} {hanging(event.text)}" + (f"\n  → {hanging(event.hint)}" if event.hint else "")
        )

    @property
    def prints_failure(self) -> bool:
        """Whether the next failed host gets a line."""
        return self._failures <= _LIVE_FAILURES

    def failed(self, event: HostFailed) -> None:
        self._failures += 1
        if self._failures > _LIVE_FAILURES:
            if self._failures == _LIVE_FAILURES + 1:
                self.terminal.tell("more hosts fail; kit names all of them at the end")
            return
        word = self.terminal.paint(f"{one_line(event.host)}:", "red", self.terminal.err)
        self.terminal.tell(f"{word} {hanging(event.text)}" + (f"\n  → {hanging(event.hint)}" if event.hint else ""))


class Plain(Quiet):
    """Prints a line for each phase and each change of a host. A growing fraction gets a line at each quarter only.

    A phase of many hosts gets a line at each quarter of the whole, and one for the hosts that end alike.
    """

    def __init__(self, terminal: Terminal, *, verbose: bool = False) -> None:
        super().__init__(terminal)
        self._verbose = verbose
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._printed: dict[str, tuple[str, int]] = {}
        self._crowd: _Crowd | None = None

    def report(self, event: Event) -> None:
        match event:
            case Note():
                self._line(event.text)
            case Phase():
                self.close()
                self._line(self.terminal.paint(phase_title(event), "bold", self.terminal.err))
                if len(event.hosts) > MANY_HOSTS and not self._verbose:
                    self._crowd = _Crowd(event)
            case HostStep() | HostDone() if (crowd := self._crowd) is not None and event.host in crowd.hosts:
                with self._lock:
                    line = crowd.progress(event)
                if line:
                    self._line(line)
            case HostStep():
                self._step(event)
            case HostDone():
                self._done(event.host, event.text)
            case _:
                super().report(event)

    def close(self) -> None:
        """Print the hosts of the last phase, if it had many."""
        crowd, self._crowd = self._crowd, None
        if crowd is not None:
            for text, hosts in crowd.done.items():
                self._done(fold(hosts), text)
        super().close()

    def _done(self, hosts: str, text: str) -> None:
        self._line(f"{hosts}: {self.terminal.paint(text, 'green', self.terminal.err)}")

    def _step(self, event: HostStep) -> None:
        # A long step has a fraction, and the numbers in its text grow with it: print a new quarter, or other words.
        # Print the many short steps with --verbose only; a failure names the step that it was at.
        if event.fraction is None:
            if self._verbose and self._printed.get(event.host) != (event.text, -1):
                self._printed[event.host] = (event.text, -1)
                self._line(f"{event.host}: {event.text}")
            return
        quarter = _quarter(event.fraction)
        with self._lock:
            news = (event.text.translate(_NO_DIGITS), quarter)
            if self._printed.get(event.host) == news:
                return
            self._printed[event.host] = news
        self._line(f"{event.host}: {event.text} {quarter * 25}%")

    def _line(self, text: str) -> None:
        text = hanging(text)
        self.terminal.tell(f"[{time.monotonic() - self._began:6.1f}s] {text}" if self._verbose else text)


class _Crowd:
    """A phase of many hosts: how far all of them are together, and which ended with which text."""

    def __init__(self, phase: Phase) -> None:
        self.hosts = dict.fromkeys(phase.hosts, 0.0)
        self.done: dict[str, list[str]] = {}
        self._name = phase.name
        self._quarter = 0

    def progress(self, event: HostStep | HostDone) -> str:
        """Take an event. Return the line for a new quarter of the phase, or ''."""
        if isinstance(event, HostDone):
            self.done.setdefault(event.text, []).append(event.host)
            self.hosts[event.host] = 1.0
        elif event.fraction is not None:
            self.hosts[event.host] = min(event.fraction, 1.0)
        quarter = _quarter(sum(self.hosts.values()) / len(self.hosts))
        if quarter <= self._quarter:
            return ""
        self._quarter = quarter
        count = sum(map(len, self.done.values()))
        return f"{self._name}: {quarter * 25}%, {count} of {len(self.hosts)} hosts done"


def _quarter(fraction: float) -> int:
    return int(min(max(fraction, 0.0), 1.0) * 4)


def _tag(event: OutputLine | UnfinishedLine) -> str:
    return f"{one_line(event.source)} | " if event.source else ""


def phase_title(event: Phase) -> str:
    """Return `ship: gpu[1-8]`, or the name alone for work on this machine."""
    return f"{event.name}: {fold(event.hosts)}" if event.hosts else event.name
