"""Hands the terminal over to a command, and reads what a command writes to standard error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from kit.remote.ssh import open_files

# How much of what ssh wrote to standard error kit keeps.
_ERROR_BYTES = 1 << 18


def replace_process(argv: Sequence[str]) -> None:
    """Become this command: its terminal, its signals and its exit code are then its own."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(argv[0], list(argv))  # noqa: S606  (an argv, no shell)


def run_in_terminal(argv: Sequence[str]) -> int:
    """Run this command with kit's own terminal, and return its exit code. Ctrl-C is the command's, not kit's.

    Raises KeyboardInterrupt after the end of the command if the terminal was closed, or if kit must end.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    # The command starts with the signals' own meaning: a handler does not outlive the start of a program.
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGQUIT)}
    process = None
    try:
        process = subprocess.Popen(list(argv))
        code = process.wait()
        return code if code >= 0 else 128 - code
    finally:
        if process is not None and process.poll() is None:
            process.terminate()
            process.wait()
        for number, handler in before.items():
            signal.signal(number, handler)


def errors_of(process: subprocess.Popen[bytes]) -> str:
    """Return what a process writes to standard error until it ends.

    OpenSSH before 8.5 leaves a kept connection behind that holds the pipe open, so the pipe's end is no sign.
    """
    if process.stderr is None:
        return ""
    text = b""
    while True:
        ready = open_files.ready([process.stderr.fileno()], 0.1)
        data = os.read(process.stderr.fileno(), 1 << 16) if ready else b""
        # The end is what matters, and a host may go on printing.
        text = (text + data)[-_ERROR_BYTES:]
        if (ready and not data) or (not ready and process.poll() is not None):
            return text.decode(errors="replace").strip()
