"""Runs commands beside a look. kit.remote.scripts puts this before observe.py.

The module `subprocess` takes as long to import as the rest of that program needs.
"""

import os


class Command:
    """A command that runs beside this program. `errors`: its output includes its errors."""

    def __init__(self, *argv: str, errors: bool = False) -> None:
        self.out, end = os.pipe()
        if os.fork() == 0:
            try:
                os.dup2(end, 1)
                os.dup2(end if errors else os.open(os.devnull, os.O_WRONLY), 2)
                os.execvp(argv[0], argv)  # noqa: S606  (an argv, no shell)
            finally:
                os._exit(127)
        os.close(end)

    def text(self) -> str:
        """Return what it prints until it ends. Commands that may hang run under `timeout`."""
        data = b""
        while True:
            piece = os.read(self.out, 65536)
            if not piece:
                return data.decode("utf-8", "replace")
            data += piece
