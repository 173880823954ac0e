"""Bars on a terminal: a row for each busy host, and one line for all others. They disappear when the phase ends.

What stays on the screen: one line per phase, failed hosts, warnings, and the job's output.
"""

from __future__ import annotations

import threading
import time

from msgspec import Struct
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from kit.cli.screen.plain import Quiet, phase_title
from kit.cli.screen.terminal import Terminal
from kit.events import Event, HostDone, HostFailed, HostStep, Note, OutputLine, Phase, UnfinishedLine, Warned
from kit.model.text import hanging, one_line
from kit.model.values import replace

ROWS = 20


class _Row(Struct, frozen=True, kw_only=True):
    host: str
    text: str = "waiting"
    fraction: float | None = None
    state: str = "waiting"  # waiting, busy, done, failed


class _Frame(Struct, frozen=True, kw_only=True):
    """All that is drawn. It is replaced as a whole, so that the drawing thread needs no lock."""

    title: str
    rows: tuple[_Row, ...]


class Bars(Quiet):
    """Draws bars, from any thread. Call `close` before anything else writes to the terminal."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(terminal)
        self._console = Console(
            file=terminal.canvas(terminal.err),
            force_terminal=True,
            no_color=not terminal.colors(terminal.err),
            highlight=False,
            markup=False,
        )
        self._lock = threading.RLock()
        self._live: Live | None = None
        self._rows: dict[str, _Row] = {}
        self._title = ""
        self._began = time.monotonic()
        self._frame = _Frame(title="", rows=())
        self._spinner = Spinner("dots")
        self._aside = False

    def report(self, event: Event) -> None:
        with self._lock:
            # Nobody sees what is drawn on a terminal that is gone. An interrupt may also have come in the middle of
            # rich, which has lost count then.
            if not self.terminal.is_gone(self.terminal.err):
                self._show(event)
        self.terminal.notice()

    def _show(self, event: Event) -> None:
        match event:
            case Phase():
                self._finish()
                self._aside = False
                self._title, self._began = one_line(phase_title(event)), time.monotonic()
                self._rows = {host: _Row(host=host) for host in event.hosts}
                self._draw(start=True)
            case HostStep():
                self._set(_Row(host=event.host, text=event.text, fraction=event.fraction, state="busy"))
            case HostDone():
                self._set(_Row(host=event.host, text=event.text, state="done"))
            case HostFailed():
                self._set(_Row(host=event.host, text=event.text, state="failed"))
                if self.prints_failure:
                    self._above(event)
                else:
                    # To remove the bars and to draw them again takes 5 ms, which adds up with hundreds of hosts.
                    self.failed(event)
            case Note() | Warned():
                self._above(event)
            case OutputLine():
                # A job's lines and bars cannot share a screen: the next phase draws bars again.
                self._finish()
                self._aside = True
                self.output(event)
            case UnfinishedLine():
                self._finish()
                self._aside = True
                self.unfinished(event)

    def close(self) -> None:
        """Remove the bars from the screen; one line of the phase stays."""
        with self._lock:
            if not self.terminal.is_gone(self.terminal.err):
                self._finish()
        super().close()

    def _set(self, row: _Row) -> None:
        # rich escapes nothing.
        row = replace(row, host=one_line(row.host), text=one_line(row.text))
        if not self._title:
            self._title, self._began = row.host, time.monotonic()
        self._rows[row.host] = row
        self._draw(start=not self._aside)

    def _draw(self, *, start: bool) -> None:
        self._frame = _Frame(title=self._title, rows=tuple(self._rows.values()))
        if self._live is None and start:
            self._live = Live(
                get_renderable=self._render, console=self._console, transient=True, refresh_per_second=8,
                redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
            self._live.start()

    def _finish(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
            rows = self._rows.values()
            failed = sum(row.state == "failed" for row in rows)
            mark = self.terminal.paint("✗", "red", self.terminal.err) if failed else "✓"
            seconds = time.monotonic() - self._began
            self.terminal.tell(f"{mark} {self._title}  {seconds:.1f} s" + (f", {failed} failed" if failed else ""))
        self._title, self._rows = "", {}

    def _above(self, event: Note | Warned | HostFailed) -> None:
        """Print a line that stays: remove the bars, and draw them again below it."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()
        if isinstance(event, Note):
            self.terminal.tell(hanging(event.text))
        elif isinstance(event, Warned):
            self.warned(event)
        else:
            self.failed(event)
        if live is not None:
            self._draw(start=True)

    def _render(self) -> RenderableType:
        frame = self._frame
        shown, rest = choose(frame.rows)
        table = Table.grid(padding=(0, 1))
        for row in shown:
            bar = ProgressBar(total=1.0, completed=row.fraction, width=24) if row.fraction is not None else Text("")
            table.add_row(Text(row.host, style="bold"), Text(row.text, no_wrap=True, overflow="ellipsis"), bar)
        title = Table.grid(padding=(0, 1))
        title.add_row(self._spinner, Text(f"{frame.title}  {time.monotonic() - self._began:.0f} s"))
        return Group(title, table, *([Text(rest, style="dim")] if rest else []))


def choose(rows: tuple[_Row, ...], limit: int = ROWS) -> tuple[tuple[_Row, ...], str]:
    """Return the rows to draw, in the hosts' order, and one line about the others ('' if there are no others).

    If there is no room for all, busy hosts come first, then failed, waiting, done.
    """
    if len(rows) <= limit:
        return rows, ""
    order = {"busy": 0, "failed": 1, "waiting": 2, "done": 3}
    chosen = sorted(range(len(rows)), key=lambda i: (order[rows[i].state], i))[:limit]
    others = [row for i, row in enumerate(rows) if i not in set(chosen)]
    counts = [(state, sum(row.state == state for row in others)) for state in order]
    summary = ", ".join(f"{n} {state}" for state, n in counts if n)
    return tuple(rows[i] for i in sorted(chosen)), f"… and {len(others)} more: {summary}"
