"""Prints the output of a command on many hosts: that of one byte for byte, that of several as lines or folded."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal

from kit.cli.screen.terminal import Terminal
from kit.events import Stream

# At a terminal, kit waits this long for the end of a command that prints, to print equal output once.
PATIENCE_S = 2.0
# With more output than this, it does not wait; and with this much, not even with `fold`.
MOST_HELD, MOST_FOLDED = 1 << 24, 1 << 28
# A longer line is printed in parts.
LONGEST_LINE = 1 << 16
_TICK_S = 0.2

Manner = Literal["verbatim", "lines", "fold"]


class HostsOutput:
    """Gets the output of all hosts, from many threads.

    One host's output is passed on byte for byte. That of several is printed line by line, as `host: line`. With `fold`,
    or for a short command at a terminal, it is kept until the end, unless it is too much: `held` then has it, and the
    caller prints equal output once.
    """

    def __init__(self, terminal: Terminal, *, fold: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._terminal = terminal
        self._fold = fold
        self._clock = clock
        self._manner: Manner = "lines"
        self._lock = threading.Lock()
        self._chunks: dict[str, list[tuple[Stream, bytes]]] = {}
        self._size = 0
        self._first: dict[str, float] = {}
        self._lines: dict[tuple[str, Stream], bytes] = {}
        self._over = threading.Event()

    def begin(self, hosts: Sequence[str]) -> None:
        self._chunks = {host: [] for host in hosts}
        if len(hosts) == 1 and not self._fold:
            self._manner = "verbatim"
        elif self._fold or self._terminal.is_terminal(self._terminal.out):
            self._manner = "fold"
            if not self._fold:
                threading.Thread(target=self._watch, daemon=True).start()

    def write(self, host: str, stream: Stream, data: bytes) -> None:
        with self._lock:
            if self._manner == "verbatim":
                self._terminal.pass_on(data, stream)
            elif self._manner == "lines":
                self._print_lines(host, stream, data)
            else:
                self._first.setdefault(host, self._clock())
                self._chunks[host].append((stream, data))
                self._size += len(data)
        self.look()

    def end(self, host: str) -> None:
        """Print the rest of the host's last line."""
        with self._lock:
            self._first.pop(host, None)
            self._end_lines(host)

    def close(self) -> None:
        """Stop waiting for hosts."""
        self._over.set()

    @property
    def verbatim(self) -> bool:
        return self._manner == "verbatim"

    @property
    def folds(self) -> bool:
        """Return whether the output was kept, and must be printed now."""
        return self._manner == "fold"

    def held(self, host: str, stream: Stream) -> bytes:
        """Return what the host wrote, if it was kept."""
        return b"".join(data for one, data in self._chunks.get(host, ()) if one == stream)

    def look(self) -> None:
        """Print what was kept if the command of a host prints for too long, or prints too much."""
        with self._lock:
            if self._manner != "fold":
                return
            late = self._clock() - PATIENCE_S
            long = not self._fold and any(first < late for first in self._first.values())
            if self._size <= (MOST_FOLDED if self._fold else MOST_HELD) and not long:
                return
            self._print_held()

    def release(self) -> None:
        """Print what was kept, as lines."""
        with self._lock:
            if self._manner == "fold":
                self._print_held()
                for host, _ in list(self._lines):
                    self._end_lines(host)

    def _print_held(self) -> None:
        self._manner = "lines"
        chunks, self._chunks = self._chunks, {}
        for host, parts in chunks.items():
            for stream, data in parts:
                self._print_lines(host, stream, data)
            if host not in self._first:
                self._end_lines(host)

    def _watch(self) -> None:
        while not self._over.wait(_TICK_S) and self._manner == "fold":
            self.look()

    def _print_lines(self, host: str, stream: Stream, data: bytes) -> None:
        *lines, rest = (self._lines.pop((host, stream), b"") + data).split(b"\n")
        while len(rest) > LONGEST_LINE:
            lines.append(rest[:LONGEST_LINE])
            rest = rest[LONGEST_LINE:]
        if rest:
            self._lines[host, stream] = rest
        name = f"{host}: ".encode()
        if lines:
            self._terminal.pass_on(b"".join(name + line + b"\n" for line in lines), stream)

    def _end_lines(self, host: str) -> None:
        streams: tuple[Stream, ...] = ("stdout", "stderr")
        for stream in streams:
            rest = self._lines.pop((host, stream), b"")
            if rest:
                self._terminal.pass_on(f"{host}: ".encode() + rest + b"\n", stream)
