"""A result that kit prints again and again, until Ctrl-C."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from kit.errors import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.cli.session import Session

T = TypeVar("T")
PAUSE_S = 5.0


def watch(session: Session, kind: str, look: Callable[[], T], text: Callable[[T], str]) -> int:
    """Print what `look` returns until Ctrl-C: in place on a terminal, one after the other in a file or as JSON.

    Returns the exit code of an interrupted command.
    """
    lines = 0
    try:
        while True:
            value = look()
            if session.json:
                session.emit(kind, value)
            else:
                lines = session.terminal.redraw(f"{time.strftime('%H:%M:%S')}  {text(value)}", lines)
            time.sleep(PAUSE_S)
    except (KeyboardInterrupt, Interrupted):
        return Interrupted.exit_code
