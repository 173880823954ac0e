"""The last line of each rank of a run, through the head's launcher, which sends what the ranks print."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from kit.errors import KitError
from kit.model.answer import answer_of
from kit.remote.run.door import Door
from kit.remote.run.log import LogEntry, RunLog

# How much of the log before now is read. A rank that printed nothing for longer has no line.
LAST = 1 << 18
AGAIN_S = 5.0
# What a screen can show of a line.
_SHOWN = 400


class LastLines:
    """Reads in a thread. `door` is open and sends the log of the run; `another` opens such a door again.

    After a reset of an elastic run, the log has the ranks' new numbers, and kit top has those of their start. Then no
    rank has a line, until a retry starts all ranks again. `renumbered` says that a reset came before what is read.
    """

    def __init__(self, door: Door, another: Callable[[], Door], *, renumbered: bool = False) -> None:
        self.ended = False
        self.error: KitError | None = None
        self._door, self._another = door, another
        self._lines: dict[int, str] = {}
        self._renumbered = renumbered
        self._lock = threading.Lock()
        self._closed = threading.Event()
        # Set when there is no more to read, or nothing can be read.
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> LastLines:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join(2.0)
        self._door.close(ended=True)

    def now(self) -> dict[int, str]:
        """Return the last line of each rank."""
        with self._lock:
            return dict(self._lines)

    def wait(self, within_s: float) -> bool:
        """Wait until all lines of a run that has ended are read, or until they cannot be. Return whether that came."""
        return self._over.wait(within_s)

    def _run(self) -> None:
        while not self._closed.is_set() and not self.ended:
            try:
                self._read()
            except KitError as error:
                self.error = error
            self._over.set()
            if self._closed.wait(0.0 if self.ended else AGAIN_S) or self.ended:
                return
            try:
                door = self._another()
            except KitError as error:
                self.error = error
                continue
            self._door.close()
            self._door, self.error = door, None

    def _read(self) -> None:
        """Read to the end of the run or of the connection."""
        log = RunLog()
        while not self._closed.is_set():
            data = self._door.read(0.5)
            if data is None:
                errors, code = self._door.over()
                if not self.ended:
                    raise self._door.broken(errors, code)
                return
            with answer_of(self._door.host, "the log of the run"):
                for entry in log.feed(data):
                    self._take(entry)
                for entry in log.unfinished():
                    self._take(entry)
            if self.ended:
                return

    def _take(self, entry: LogEntry) -> None:
        event = entry.fields.get("event") if entry.kind == "event" else None
        if event == "ended":
            self.ended = True
        if event in ("formed", "reset"):
            self._renumbered = event == "reset"
        if event == "reset":
            with self._lock:
                self._lines.clear()
        if entry.kind not in ("out", "err") or not entry.rank or self._renumbered:
            return
        lines = [line for line in entry.lines if line.strip()]
        if lines:
            with self._lock:
                self._lines[int(entry.rank)] = lines[-1][:_SHOWN].decode(errors="replace")
