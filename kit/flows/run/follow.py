"""Follows a run to its end, over as many connections as that takes, and tells what it says."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kit.errors import KitError, LoginRefusedError, NotReadyError, UnreachableError
from kit.events import Note, OutputLine, Reporter, Stream, Warned
from kit.model import names
from kit.remote.machine.interrupts import Interrupts
from kit.remote.run.door import Door
from kit.remote.run.log import Entry, RunLog

BEAT_S = 5.0
# How long a connection that broke is tried anew. The run goes on meanwhile.
AGAIN_S = 90.0
AGAIN_EVERY_S = 2.0
# Seldom where the login itself was refused (an agent that is locked, say): sshd's PerSourcePenalties and fail2ban count
# refused logins, and four of them in that time shut nobody out as both are set by default.
REFUSED_EVERY_S = 25.0
# What the head has, beyond the ranks' own grace, to say that a stopped run has ended.
STOP_S = 40.0
GRACE_S = 5.0
# Ctrl-C as often as that, and kit goes without waiting for anybody.
PATIENCE = 2


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How a run is followed.

    `tagged` lines name their rank, `rank` chooses one, `since` (seconds since 1970) leaves out what is older, `follow`
    waits for what comes. `operator`: Ctrl-C ends the run, and not the looking alone.
    """

    tagged: bool = False
    rank: int | None = None
    since: float = 0.0
    follow: bool = True
    operator: bool = False
    by: str = ""


@dataclass
class Follower:
    """`ending` is how the run ended (end.json), None as long as it is not known.

    `before`: how often Ctrl-C came before this began.
    """

    run_id: str
    door: Door
    reporter: Reporter
    manner: Manner
    ending: Mapping[str, Any] | None = None
    interrupted: int = 0
    before: int = 0
    # Lines of other ranks after the first failure: its aftermath, which says nothing new.
    folded: int = 0
    _failed: str = ""
    _log: RunLog = field(default_factory=RunLog)
    _base: int = 0
    _asked: float | None = None
    _heeded: int = 0
    _broken: KitError | None = None
    # What ranks are to a parameter server, in its runs: `worker 0`, `server 1`, `scheduler`.
    _roles: Mapping[str, str] = field(default_factory=dict)

    def follow(self, offset: int = 0) -> Mapping[str, Any] | None:
        """Until the run has ended, or its log, or the person has enough. The door is open and the log is coming.

        Raises UnreachableError or NotReadyError where the head cannot be had any more.
        """
        self._base = offset
        with Interrupts() as interrupts:
            try:
                while not self._stream(interrupts):
                    self._again(interrupts)
            finally:
                self.interrupted = self.before + interrupts.count
                if self.ending is not None:
                    # As long as Ctrl-C is counted: how the run ended has yet to be told.
                    self.door.close(ended=True)
        for entry in self._log.end():
            self._tell(entry)
        return self.ending

    def _stream(self, interrupts: Interrupts) -> bool:
        """One connection to its end. True when there is nothing more to come; False when it broke."""
        if self.manner.operator:
            # The supervisor ends a run that has lost its operator.
            self.door.keep_showing(BEAT_S)
        while not self._enough(interrupts):
            data = self.door.read(1.0, also=interrupts.fd)
            if data is None:
                return self._over()
            if not data:
                interrupts.drain()
            for entry in self._log.feed(data):
                if self._take(entry):
                    return True
        return True

    def _enough(self, interrupts: Interrupts) -> bool:
        """Whether to look no longer. Ctrl-C of an operator asks the run to end first, and waits for how that went."""
        if not self.manner.operator:
            return interrupts.count > 0
        times = self.before + interrupts.count
        if times > self._heeded:
            self._heeded = times
            self._stop(times)
        waited = time.monotonic() - self._asked if self._asked is not None else 0.0
        return times > PATIENCE or waited > STOP_S

    def _over(self) -> bool:
        said, code = self.door.over()
        if code == 0 and not self.manner.follow:
            return True
        self._broken = self.door.broken(said, code)
        return False

    def _take(self, entry: Entry) -> bool:
        """True when this was the last."""
        if entry.kind == "event" and entry.fields.get("event") == "ended":
            self.ending = entry.fields
            if lost := entry.fields.get("lost_bytes"):
                text = f"{lost} bytes that the run printed are lost: the disk of the head was full"
                self.reporter.report(Warned(text=text, hint=f"kit ssh HEAD -- df -h {names.ROOT}"))
            return True
        self._tell(entry)
        return False

    def _stop(self, times: int) -> None:
        grace = GRACE_S if times == 1 else 0.0
        self._asked = self._asked or time.monotonic()
        self.door.send({"stop": {"why": "Ctrl-C", "grace": grace, "by": self.manner.by}})
        if times == 1:
            text = f"stopping run {self.run_id}; its ranks have {grace:.0f} s, Ctrl-C again ends them at once"
            self.reporter.report(Note(text=text))

    def _again(self, interrupts: Interrupts) -> None:
        """Connect anew and go on where the log was left."""
        error = self._broken or UnreachableError("the connection to the head broke")
        hope = "the run goes on" if isinstance(error, UnreachableError) else "the run may go on"
        self.reporter.report(Warned(text=f"{error}; {hope}, connecting again"))
        end = time.monotonic() + AGAIN_S
        while time.monotonic() < end and not interrupts.count:
            door = self.door.another()
            try:
                door.open()
                request = {
                    "op": "attach",
                    "id": self.run_id,
                    "offset": self._base + self._log.taken,
                    "operator": self.manner.operator,
                }
                answer = door.ask(request)
            except UnreachableError as again:
                door.close()
                error = again
                _pause(REFUSED_EVERY_S if isinstance(again, LoginRefusedError) else AGAIN_EVERY_S, interrupts)
                continue
            except KitError:
                door.close()
                raise
            if "attached" not in answer:
                door.close()
                raise NotReadyError(f"the head does not know the run {self.run_id} any more", hint="kit runs")
            self.door.close()
            self.door = door
            self._log.again()
            return
        raise error

    def _tell(self, entry: Entry) -> None:
        match entry.kind:
            case "out" | "err" | "mpirun":
                self._lines(entry)
            case "end":
                if not self._failed and len(entry.words) >= 3 and entry.words[1:3] != ("0", "0"):
                    self._failed = entry.rank
            case "event":
                self._event(entry.fields)

    def _lines(self, entry: Entry) -> None:
        if entry.time and entry.time < self.manner.since:
            return
        if self.manner.rank is not None and entry.rank != str(self.manner.rank):
            return
        # Only while a person watches: a log that is asked for is told whole.
        if self.manner.operator and self._failed and entry.kind != "out" and entry.rank != self._failed:
            self.folded += len(entry.lines)
            return
        stream: Stream = "stdout" if entry.kind == "out" else "stderr"
        source = self._roles.get(entry.rank, entry.rank) if self.manner.tagged else ""
        for line in entry.lines:
            self.reporter.report(OutputLine(text=line.decode(errors="replace"), stream=stream, source=source))

    def _event(self, fields: Mapping[str, Any]) -> None:
        match fields.get("event"):
            case "attempt":
                self._roles = roles_of(fields)
            case "lost":
                self.reporter.report(Warned(text=f"{fields.get('host')} has gone silent: the run is being ended"))
            case "again":
                dropped = fields.get("dropped") or []
                without = f", without {', '.join(dropped)}" if dropped else ""
                text = f"attempt {fields.get('number')} begins in {fields.get('wait', 0):.0f} s{without}"
                self._failed = ""
                self.reporter.report(Warned(text=text))
            case "hang":
                for text in hang_report(fields):
                    self.reporter.report(OutputLine(text=text, stream="stderr"))
            case _:
                return


def _pause(seconds: float, interrupts: Interrupts) -> None:
    end = time.monotonic() + seconds
    while not interrupts.count and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 0.5))


# How lines of the first rank are headed, tagged or not, in a run with a parameter server or without.
FIRST_RANK = ("", "0", "worker 0")


def roles_of(fields: Mapping[str, Any]) -> dict[str, str]:
    """By rank, from the event of an attempt: the workers first, then those that the event names."""
    behind = [str(role) for role in fields.get("roles", ())]
    if not behind:
        return {}
    np = int(fields.get("np", 0))
    names = [f"worker {number}" for number in range(np)]
    for role in behind:
        names.append(f"server {len(names) - np}" if role == "server" else role)
    return {str(rank): name for rank, name in enumerate(names)}


def hang_report(fields: Mapping[str, Any]) -> list[str]:
    """What each rank was doing when a limit was reached, for a person."""
    lines = [f"── {fields.get('why')}; what each rank was doing"]
    for rank in fields.get("ranks", ()):
        what = _doing(rank)
        last = f"; last line: {rank['last']}" if rank.get("last") else ""
        role = f" ({rank['role']})" if rank.get("role") else ""
        lines.append(f"rank {rank.get('rank')}{role} on {rank.get('host')}: {what}{last}")
        lines += [f"  {line}" for line in str(rank.get("stack", "")).splitlines() if line.strip()]
    lines.append("──")
    return lines


def _doing(rank: Mapping[str, Any]) -> str:
    if rank.get("ended"):
        return "has ended"
    if rank.get("waiting"):
        return "has not started"
    if "pid" not in rank:
        return "not known: its node did not answer"
    words = {"R": "computes", "S": "waits", "D": "waits for a disk or device", "T": "is stopped", "Z": "has ended"}
    wchan = rank.get("wchan") or ""
    where = f" in {wchan}" if wchan not in ("", "0") else ""
    return f"{words.get(rank.get('state', ''), 'runs')}{where} (pid {rank['pid']}: {rank.get('command', '')})"
