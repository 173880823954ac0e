"""The choice of a reporter for --progress: bars on a terminal, plain lines, or warnings alone."""

from __future__ import annotations

from kit.cli.screen.plain import Plain, Progress, Quiet
from kit.cli.screen.terminal import Terminal


def reporter(terminal: Terminal, progress: str, *, verbose: bool) -> Progress:
    """Return the reporter for `--progress`: auto, tty, plain or quiet."""
    if progress == "quiet":
        return Quiet(terminal)
    if progress == "tty" or (progress == "auto" and terminal.is_terminal(terminal.err)):
        from kit.cli.screen.bars import Bars  # noqa: PLC0415  (rich: only where there are bars)

        return Bars(terminal)
    return Plain(terminal, verbose=verbose)
