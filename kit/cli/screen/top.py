"""kit top's screen: draws twice a second and after each key, until q or Ctrl-C, and leaves the terminal as it was."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleDimensions
from rich.live import Live
from rich.style import Style as RichStyle
from rich.text import Text

from kit.cli.screen.keys import Keys
from kit.model.values import replace
from kit.plan.watch.state import Choice, pressed
from kit.remote.machine.interrupts import suspend

if TYPE_CHECKING:
    from kit.cli.screen.terminal import Terminal
    from kit.cli.text.top import Page
    from kit.cli.text.top_cells import Line

TICK_S = 0.5
# Of a terminal that does not know its size: columns and lines.
USUAL = (80, 24)
_STYLES = {
    "red": RichStyle(color="red"),
    "green": RichStyle(color="green"),
    "yellow": RichStyle(color="yellow"),
    "bold": RichStyle(bold=True),
    "dim": RichStyle(dim=True),
    None: RichStyle.null(),
}

# Returns a screen of this size, (columns, lines).
Draw = Callable[[Choice, tuple[int, int]], "Page"]


def show(terminal: Terminal, draw: Draw) -> None:
    """Show what `draw` returns until the person quits. Raises KeyboardInterrupt after Ctrl-C, on a clean terminal."""
    console = Console(
        file=terminal.canvas(terminal.out),
        force_terminal=True,
        no_color=not terminal.colors(terminal.out),
        highlight=False,
        markup=False,
        emoji=False,
    )
    descriptor = terminal.descriptor
    if descriptor is None:
        raise RuntimeError("the caller checks that there is a terminal")
    choice = Choice()
    with _suspensions() as suspended:
        while not choice.over and not terminal.broken:
            choice = _until_suspended(console, descriptor, draw, choice, suspended)
            if suspended:
                suspended.clear()
                # Ctrl-Z: the shell gets its screen, and `fg` continues this.
                suspend()


def _until_suspended(console: Console, descriptor: int, draw: Draw, choice: Choice, suspended: list[int]) -> Choice:
    """Draw until the person quits or presses Ctrl-Z. Return the last choice."""
    with (
        Keys(descriptor) as keys,
        Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live,
    ):
        while not choice.over and not suspended:
            # rich would prefer the variable COLUMNS, which is wrong after the window has another size.
            columns, lines = os.get_terminal_size(console.file.fileno())
            # Some terminals have no size, such as the serial console of a VM.
            size = columns or USUAL[0], lines or USUAL[1]
            console.size = ConsoleDimensions(*size)
            page = draw(choice, size)
            live.update(as_text(page.lines), refresh=True)
            # End goes beyond the last row, and Up goes on from what is shown.
            choice = replace(choice, first=page.first)
            end = time.monotonic() + TICK_S
            while (left := end - time.monotonic()) > 0:
                heard = keys.read(left)
                for key in heard:
                    choice = pressed(choice, key)
                if keys.over:
                    return replace(choice, over=True)
                if heard or suspended:
                    break
    return choice


@contextmanager
def _suspensions() -> Iterator[list[int]]:
    """Yield a list that gets an entry when the person presses Ctrl-Z."""
    suspended: list[int] = []
    before = signal.signal(signal.SIGTSTP, lambda number, _frame: suspended.append(number))
    try:
        yield suspended
    finally:
        signal.signal(signal.SIGTSTP, before)


def as_text(lines: list[Line]) -> Text:
    text = Text(no_wrap=True, overflow="crop", end="")
    for number, line in enumerate(lines):
        if number:
            text.append("\n")
        for piece, style in line:
            text.append(piece, style=_STYLES[style])
    return text
