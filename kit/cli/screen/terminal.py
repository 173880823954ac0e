"""The two streams that kit writes to, and what they can show: colour, bars, whole lines, a reader that went away."""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TextIO

Style = Literal["red", "green", "yellow", "bold", "dim"]

_CODES: Mapping[str, str] = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}


@dataclass(kw_only=True)
class Terminal:
    """Writes whole lines, flushed, from any thread. `environ` is asked for NO_COLOR and TERM only.

    When the reader of a stream is gone (`kit … | head`), `broken` is set and the main thread is interrupted once, so
    that what runs is ended instead of going on unseen.
    """

    out: TextIO
    err: TextIO
    inp: TextIO | None = None
    environ: Mapping[str, str]
    no_color: bool = False
    broken: bool = field(default=False, init=False)
    quietly: bool = field(default=True, init=False)  # a pipe's reader may leave; a full disk is worth a word
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        for stream in (self.out, self.err):
            # A file name or a job's output may hold what this locale cannot write: show it escaped, do not fail.
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(errors="backslashreplace")

    def is_terminal(self, stream: TextIO) -> bool:
        return stream.isatty() and self.environ.get("TERM") != "dumb"

    def colours(self, stream: TextIO) -> bool:
        return not self.no_color and not self.environ.get("NO_COLOR") and self.is_terminal(stream)

    def paint(self, text: str, style: Style, stream: TextIO) -> str:
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self.colours(stream) else text

    def say(self, text: str) -> None:
        """A result: one or more lines on stdout."""
        self._write(self.out, text)

    def tell(self, text: str) -> None:
        """For the person who waits: one or more lines on stderr."""
        self._write(self.err, text)

    @property
    def interactive(self) -> bool:
        """Whether a person can be asked something."""
        return self.inp is not None and self.inp.isatty() and self.err.isatty()

    def agrees(self, question: str) -> bool:
        """Ask; anything but yes is no. Where nobody can answer, nobody is asked, and it is a yes."""
        if self.inp is None or not self.interactive:
            return True
        self.err.write(f"{question} [y/N] ")
        self.err.flush()
        return self.inp.readline().strip().lower() in ("y", "yes")

    def read(self) -> str:
        """All that comes on standard input."""
        return "" if self.inp is None else self.inp.read()

    def _write(self, stream: TextIO, text: str) -> None:
        with self._lock:
            if self.broken:
                return
            try:
                stream.write(f"{text}\n")
                stream.flush()
            except (OSError, ValueError) as error:  # gone, full or closed
                self.broken = True
                self.quietly = isinstance(error, BrokenPipeError)
        if self.broken:
            _interrupt()


def _interrupt() -> None:
    import _thread  # noqa: PLC0415  (the one way to reach the main thread from any other)

    # A shell's background job ignores SIGINT; kit.cli.main takes SIGTERM for the same.
    for number in (signal.SIGINT, signal.SIGTERM):
        if callable(signal.getsignal(number)):
            _thread.interrupt_main(number)
            return
