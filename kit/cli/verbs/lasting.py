"""Verbs that last until Ctrl-C: it is how they end, and no failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kit.cli.session import Session


def until_interrupted(
    session: Session, kind: str, work: Callable[[Callable[[Any], None]], None], text: Callable[[Any], str]
) -> int:
    """Do the work, and print what it opens. Ctrl-C is no failure after that."""
    opened = False

    def ready(value: Any) -> None:
        nonlocal opened
        session.show(kind, value, text)
        if not session.json and not session.args.quiet:
            session.terminal.tell("Ctrl-C closes it")
        opened = True

    try:
        work(ready)
    except KeyboardInterrupt:
        if not opened:
            raise
    return 0
