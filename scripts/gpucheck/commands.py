"""Runs commands within the time that is left, and ends all that they started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# As much as kit reads of any answer.
MOST_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Done:
    """What a command printed and its exit code: 127 if it is missing, 124 if it did not end in time."""

    code: int
    text: str
    errors: str = ""

    @property
    def last(self) -> str:
        """Return the last line that says something, of the errors if there are some."""
        lines = [line for line in (self.errors or self.text).splitlines() if line.strip()]
        return lines[-1].strip()[:300] if lines else "exit code %d" % self.code


class Clock:
    """The time of the whole check."""

    def __init__(self, limit_s: float) -> None:
        self._end = time.monotonic() + limit_s

    def left(self, most: float) -> float:
        """Return the seconds that a command may take: `most`, or what is left of all."""
        return max(0.0, min(most, self._end - time.monotonic()))


class Running:
    """A command in its own process group, so that nothing stays behind."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | None = None) -> None:
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115  (wait closes them)
        self._process: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                list(argv),
                env=dict(env) if env is not None else None,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=self._out,
                stderr=self._err,
                start_new_session=True,
            )

    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wrote(self, line: str) -> bool:
        """Return whether it has printed this line."""
        return ("\n%s\n" % line).encode() in b"\n" + os.pread(self._out.fileno(), 65536, 0)

    def wait(self, seconds: float) -> Done:
        """Wait for its end, end it after this time, and return what it printed."""
        code = 127
        if self._process is not None:
            try:
                code = self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = 124
            # What it left behind, too.
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        texts = []
        for file in (self._out, self._err):
            file.seek(0)
            texts.append(file.read(MOST_BYTES).decode("utf-8", "replace"))
            file.close()
        if code == 124:
            texts[1] += "\nit did not end within %.0f s" % seconds
        return Done(code, *texts)


def run(argv: Sequence[str], seconds: float, *, env: Mapping[str, str] | None = None) -> Done:
    """Run a command to its end, for this many seconds at most."""
    return Running(argv, env=env).wait(seconds)
