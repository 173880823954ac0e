"""What a run prints: records for its log, and the facts that the supervisor decides on."""

import re
import time
from collections import deque
from typing import Deque, Dict, List, Optional, Set, Tuple

from kitrun import frames
from kitrun.decide import RankEnd
from kitrun.origin import origin

# The bytes that kit keeps of each rank's stream, and the lines that it shows of the first failure. Open MPI needs 50
# lines to report that MPI_Init failed, and names the reason in the first of them.
TAIL = 8192
LAST_LINES = 60
# NCCL writes this to standard output, also where a program writes why it ended to standard error.
WARNING = b" NCCL WARN "
WARNINGS = 10
# mpirun and its child both set the child's process group, and the second one prints this. It is harmless.
HARMLESS = b"plm:rsh: Warning: setpgid"
# How a rank ended, as kit-rank reports it: HOST CODE SIGNAL OOM.
END = re.compile(r"(\S+) (\d{1,3}) (\d{1,3}) ([01])")


def now_ms() -> int:
    return int(time.time() * 1000)


class Output:
    """Reads mpirun's two streams. Each method returns bytes for the run's log."""

    def __init__(self) -> None:
        # rank -> host
        self.up: Dict[int, str] = {}
        self.ended: Dict[int, RankEnd] = {}
        # The first rank that failed before anybody stopped the run.
        self.first: Optional[RankEnd] = None
        # The ranks that have started since torchrun last started all of them again.
        self._started: Set[int] = set()
        # For each time that it did: the first rank that had failed, or None if its record comes late.
        self.restarts: List[Optional[RankEnd]] = []
        # The last lines of mpirun itself.
        self.words: Deque[str] = deque(maxlen=LAST_LINES)
        # When a rank last wrote anything (monotonic).
        self.spoke = time.monotonic()
        # Nobody has stopped the run yet: what fails now is a failure, and not a consequence.
        self.undisturbed = True
        # The order in which ranks wrote their last lines of standard error.
        self.wrote: Dict[int, int] = {}
        self._tails: Dict[Tuple[bytes, str], bytes] = {}
        self._errors = 0
        self._splitter = frames.Splitter()
        self._plain = b""

    def standard(self, data: bytes) -> bytes:
        """Take standard output, on which mpirun and programs without kit-rank write."""
        lines, newline, self._plain = (self._plain + data).rpartition(b"\n")
        return mpirun_record(lines + newline) if newline else b""

    def errors(self, data: bytes) -> bytes:
        """Take standard error, on which kit-rank sends its records."""
        return b"".join(self._entry(*piece) for piece in self._splitter.feed(data))

    def end(self) -> bytes:
        """Return what is left when both streams have ended."""
        rest = mpirun_record(self._plain) if self._plain else b""
        return rest + b"".join(self._entry(*piece) for piece in self._splitter.end())

    def complain(self, words: str) -> bytes:
        """Take a line as if mpirun had printed it."""
        self.words.append(words)
        return mpirun_record((words + "\n").encode())

    def _entry(self, rank: Optional[bytes], kind: str, more: str, body: bytes) -> bytes:
        if rank is None:
            if HARMLESS in body:
                body = b"".join(line for line in body.splitlines(True) if HARMLESS not in line)
                if not body:
                    return b""
            self.words.extend(body.decode("utf-8", "replace").splitlines())
            return mpirun_record(body)
        if kind in "oe":
            self.spoke = time.monotonic()
            self._keep_tail((rank, kind), body)
            if kind == "e":
                self._errors += 1
                self.wrote[int(rank)] = self._errors
        elif kind == "l":
            self.spoke = time.monotonic()
            return b""
        elif kind == "u":
            self._rank_up(int(rank), body.decode("utf-8", "replace").partition(" ")[0])
        elif kind == "x":
            self._rank_ended(int(rank), body.decode("utf-8", "replace"))
        return frames.record(now_ms(), rank, kind, body, more)

    def _keep_tail(self, key: Tuple[bytes, str], body: bytes) -> None:
        """Keep the end of what a rank wrote, and of an unfinished bar only its last state."""
        lines, newline, last = (self._tails.get(key, b"") + body).rpartition(b"\n")
        self._tails[key] = (lines + newline + frames.state(last))[-TAIL:]

    def _rank_up(self, rank: int, host: str) -> None:
        if rank in self._started:
            # torchrun starts ranks again when all have ended. Their ends are no failures of the run any more.
            first = self.first
            self.restarts.append(first and origin(first, self.up, self.ended, self.wrote, self.last_lines))
            self._forget()
        # What a rank with this number wrote before a restart explains no later failure.
        for kind in "oe":
            self._tails.pop((str(rank).encode(), kind), None)
        self.up[rank] = host
        # A record of its earlier end may come late from another host, after the first rank has started again.
        if self.ended.pop(rank, None) is not None and self.first is not None and self.first.rank == rank:
            self.first = None
        self._started.add(rank)

    def _forget(self) -> None:
        """Forget how ranks have ended: the run goes on without these ends."""
        self.first = None
        self.ended.clear()
        self._started.clear()

    def _rank_ended(self, rank: int, report: str) -> None:
        match = END.fullmatch(report)
        # A rank that runs without kit-rank may write anything.
        if match is None:
            return
        host, code, sign, oom = match.groups()
        end = RankEnd(rank, host, int(code), int(sign), oom == "1")
        self.ended[rank] = end
        if (end.code or end.signal) and self.first is None and self.undisturbed:
            self.first = end

    def last_lines(self, rank: int) -> List[str]:
        """Return the end of what a rank wrote: its standard error, or its standard output if that is empty.

        NCCL's warnings on standard output come before the lines of standard error: they say why NCCL failed.
        """
        written = self._tail_lines(rank, "o")
        errors = [shown(line) for line in self._tail_lines(rank, "e")]
        if any(line.strip() for line in errors):
            warnings = [shown(line) for line in written if WARNING in line][-WARNINGS:]
            return warnings + errors[len(warnings) - LAST_LINES :]
        lines = [shown(line) for line in written]
        return lines[-LAST_LINES:] if any(line.strip() for line in lines) else []

    def _tail_lines(self, rank: int, kind: str) -> List[bytes]:
        tail = self._tails.get((str(rank).encode(), kind), b"").split(b"\n")
        return tail if tail[-1] else tail[:-1]


def shown(line: bytes) -> str:
    return frames.shown(line).decode("utf-8", "replace")


def mpirun_record(body: bytes) -> bytes:
    return frames.record(now_ms(), b"-", "m", body)
