"""Follows a run to its end and prints its output, over as many connections as necessary."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from kit.errors import EngineDownError, KitError, LoginRefusedError, NoNodeError, NotReadyError, UnreachableError
from kit.events import Note, OutputLine, Reporter, Silent, Stream, UnfinishedLine, Warned
from kit.model import names
from kit.model.answer import answer_of
from kit.model.values import replace
from kit.plan.run.banners import Banners
from kit.plan.run.elasticevents import elastic_event
from kit.plan.run.logevents import hang_report, lost_host, next_attempt, restarted, roles_of
from kit.remote.machine.interrupts import Interrupts, stoppable
from kit.remote.run.door import Door
from kit.remote.run.feed import Feed
from kit.remote.run.lines import LONG, output_line, text_so_far
from kit.remote.run.log import LogEntry, RunLog

BEAT_S = 5.0
# How long kit tries to connect again. The run continues meanwhile.
AGAIN_S = 90.0
AGAIN_EVERY_S = 2.0
# Longer after a refused login, from a locked agent for example: sshd's PerSourcePenalties and fail2ban count refused
# logins. With their defaults, four refused logins in this time block no address.
REFUSED_EVERY_S = 25.0
# Time for the head to report the end of a stopped run, in addition to the grace of the ranks.
STOP_S = 40.0
GRACE_S = 5.0
# How soon `hold` notices that it is over.
HOLD_TICK_S = 0.1
# After more Ctrl-C than this, kit exits without waiting.
PATIENCE = 2


class Manner(Struct, frozen=True, kw_only=True):
    """How to follow a run.

    `tagged` lines start with their rank. `rank` selects one rank. `since` (seconds since 1970) skips older lines.
    `follow` waits for more output. `operator`: Ctrl-C ends the run, not only the output. `needed`: the run also ends
    without kit, as its policy says.
    """

    tagged: bool = False
    rank: int | None = None
    since: float = 0.0
    follow: bool = True
    operator: bool = False
    needed: bool = False
    by: str = ""


class Follower(Struct):
    """Prints one run. `ending` is end.json, or None until it is known.

    `before` is how often Ctrl-C came before this started.
    """

    run_id: str
    door: Door
    reporter: Reporter
    manner: Manner
    ending: Mapping[str, Any] | None = None
    interrupted: int = 0
    before: int = 0
    # The number of lines that other ranks printed after the first failure. They are consequences and are not shown.
    folded: int = 0
    # The time of the first entry, by the head's clock.
    began: float = 0.0
    # Sends kit's standard input to rank 0, or None.
    feed: Feed | None = None
    # Whether `go_on` comes later, for lines that are unfinished now.
    continues: bool = False
    # The number of ranks, as the log says it. Who begins later in the log gives this and `roles`.
    np: object = None
    # The roles of ranks in a run with a parameter server: `worker 0`, `server 1`, `scheduler`.
    roles: Mapping[str, str] = field(default_factory=dict)
    _failed: str = ""
    # The ranks that have started since the attempt, the reset or torchrun's restart.
    _started: set[str] = field(default_factory=set)
    # Whether to return as soon as a rank is up.
    _only_until_up: bool = False
    _log: RunLog = field(default_factory=RunLog)
    _base: int = 0
    _stop_sent: float | None = None
    _stops: int = 0
    _broken: KitError | None = None
    _banners: Banners = field(default_factory=Banners)
    # The time of the latest record with a time.
    _reached: float = 0.0
    # What `hold` has read, for `follow`.
    _held: list[LogEntry] = field(default_factory=list)

    @property
    def position(self) -> int:
        """Return the byte of the log up to which this has read."""
        return self._base + self._log.taken

    def follow(self, offset: int = 0) -> Mapping[str, Any] | None:
        """Print until the run or its log ends, or Ctrl-C. The door must be open, with the log requested.

        Return the ending, or None. Raises UnreachableError or NotReadyError if the head is lost.
        """
        self._base = offset
        with Interrupts(self.before, suspends=self.manner.needed) as interrupts:
            try:
                while not self._stream(interrupts):
                    if not self._again(interrupts):
                        self.ending = {"lost": True}
                        break
            finally:
                self.interrupted = self.before + interrupts.count
                if self.ending is not None:
                    # Close while Ctrl-C is still caught, because kit has not reported the ending yet.
                    self.door.close(ended=True)
        if self.ending is not None or not self.continues:
            self.finish()
        return self.ending

    def finish(self) -> None:
        """Print what is left: lines that did not end."""
        for entry in self._log.end():
            self._print(entry)
        if held := self._banners.end():
            lines = tuple(line.encode(errors="surrogateescape") for line in held)
            self._lines(LogEntry(time=0.0, rank="", kind="mpirun", lines=lines))

    def go_on(self, door: Door, reporter: Reporter, manner: Manner) -> Mapping[str, Any] | None:
        """Follow further, through another door that shows the log from `position` on."""
        self.door, self.reporter, self.manner, self.continues = door, reporter, manner, False
        self._log.again()
        return self.follow(self._base)

    def wait_for_rank(self) -> bool:
        """Follow until a rank has started. Return False if the run ended before, or is to end. `follow` continues."""
        self._only_until_up = True
        try:
            return self.follow() is None and not self.interrupted
        finally:
            self._only_until_up = False

    def hold(self, over: threading.Event) -> None:
        """Connect again whenever the connection breaks, until `over` or the run's end. Print nothing.

        It is for a thread, while the run's terminal has the screen. `follow` comes when this has returned. It prints
        what came meanwhile, and reports a connection that this could not make.
        """
        reporter, self.reporter = self.reporter, Silent()
        try:
            with Interrupts() as none:
                while not over.is_set():
                    # What the head sends waits in the pipe: kit keeps no more of it than fits there.
                    if not self.door.hung_up(HOLD_TICK_S):
                        continue
                    if self._ends_in_rest() or self._over() or not self._again(none, over):
                        return
                    self.door.keep_showing(BEAT_S)
        except (KitError, OSError, ValueError):
            return
        finally:
            self.reporter = reporter

    def _ends_in_rest(self) -> bool:
        """Keep what a connection sent before it ended. Return whether the run's end is in it."""
        while (data := self.door.read(0.0)) is not None:
            self._held += self._log.feed(data)
        return any(_is_end(entry) for entry in self._held)

    def _stream(self, interrupts: Interrupts) -> bool:
        """Read one connection to its end. Return False if it broke, True if nothing more comes."""
        held, self._held = self._held, []
        for entry in held:
            if self._take(entry):
                return True
        if self.manner.operator:
            # The supervisor ends a run whose operator is lost.
            self.door.keep_showing(BEAT_S)
        while not self._enough(interrupts):
            self._suspend(interrupts)
            data = self.door.read(1.0, also=interrupts.fd)
            if data is None:
                return self._over()
            if not data:
                interrupts.drain()
            for entry in self._log.feed(data):
                if self._take(entry):
                    return True
            self._show_unfinished()
        return True

    def _enough(self, interrupts: Interrupts) -> bool:
        """Return whether to stop reading. For an operator, Ctrl-C first asks the run to end, then waits for it."""
        if not self.manner.operator:
            return interrupts.count > 0
        times = self.before + interrupts.count
        if times > self._stops:
            self._stops = times
            self._stop(times)
        waited = time.monotonic() - self._stop_sent if self._stop_sent is not None else 0.0
        return times > PATIENCE or waited > STOP_S

    def _suspend(self, interrupts: Interrupts) -> None:
        """After Ctrl-Z, warn and stop kit until the person continues it. The head sees only that nobody is there."""
        if interrupts.suspended:
            # In `ssh -t HOST kit run …`, Ctrl-Z stops nothing.
            if stoppable():
                text = f"run {self.run_id} ends if kit is suspended for a minute"
                self.reporter.report(Warned(text=text, hint="go on with it: fg, or bg"))
            interrupts.suspend()

    def _over(self) -> bool:
        errors, code = self.door.over()
        if code == 0 and not self.manner.follow:
            return True
        self._broken = self.door.broken(errors, code)
        return False

    def _take(self, entry: LogEntry) -> bool:
        """Handle one entry. Return True if it was the last one."""
        self.began = self.began or entry.time
        if _is_end(entry):
            self.ending = entry.fields
            lost = entry.fields.get("lost_bytes")
            if isinstance(lost, int) and lost > 0:
                text = f"{lost} bytes of the run's output are lost because the disk of the head was full"
                self.reporter.report(Warned(text=text, hint=f"kit ssh HEAD -- df -h {names.ROOT}"))
            if entry.fields.get("stdin_cut") is True:
                self.reporter.report(self._cut_input())
            return True
        self._print(entry)
        return self._only_until_up and entry.kind == "up"

    def _cut_input(self) -> Warned:
        whose = "your" if self.manner.operator else "its"
        text = f"rank 0 got only a part of {whose} standard input, because the disk of the head was full"
        hint = f"free space there (kit ssh {self.door.host} -- df -h {names.ROOT}), or give long input as a file"
        return Warned(text=text, hint=f"{hint} that the hosts have")

    def _stop(self, times: int) -> None:
        grace = GRACE_S if times == 1 else 0.0
        self._stop_sent = self._stop_sent or time.monotonic()
        self.door.send({"stop": {"why": "Ctrl-C", "grace": grace, "by": self.manner.by}})
        if times == 1:
            text = f"stopping run {self.run_id}; its ranks have {grace:.0f} s; press Ctrl-C again to end them at once"
            self.reporter.report(Note(text=text))

    def _again(self, interrupts: Interrupts, over: threading.Event | None = None) -> bool:
        """Connect again and continue the log where it stopped. Return False if the node of its supervisor is gone.

        Raises the latest error if that took too long, after Ctrl-C, or if it is `over`.
        """
        error = self._broken or UnreachableError("the connection to the head broke")
        state = "the run continues" if isinstance(error, UnreachableError) else "the run may continue"
        warning = f"{error}; {state}, connecting again"
        self.reporter.report(_waits(error) if isinstance(error, EngineDownError) else Warned(text=warning))
        end = time.monotonic() + AGAIN_S
        while time.monotonic() < end and not interrupts.count and not (over and over.is_set()):
            self._suspend(interrupts)
            door = self.door.another()
            try:
                door.open(patient=False)
                request = {
                    "op": "attach",
                    "id": self.run_id,
                    "offset": self._base + self._log.taken,
                    "follow": self.manner.follow,
                    "operator": self.manner.operator,
                }
                answer = door.ask(request)
            except (UnreachableError, EngineDownError) as again:
                door.close()
                # A client whose engine stops may end as a broken connection does: only the next one knows the cause.
                if isinstance(again, EngineDownError) and not isinstance(error, EngineDownError):
                    self.reporter.report(_waits(again))
                error = again
                _pause(REFUSED_EVERY_S if isinstance(again, LoginRefusedError) else AGAIN_EVERY_S, interrupts, over)
                continue
            except NoNodeError:
                # Somebody killed it, or replaces it: under Swarm, the new one takes a while.
                door.close()
                return False
            except KitError:
                door.close()
                raise
            if "attached" not in answer:
                door.close()
                raise NotReadyError(f"the head no longer has run {self.run_id}", hint="list the runs: kit runs")
            self.door.close()
            self.door = door
            self._log.again()
            if self.feed is not None and self.feed.cut():
                text = "rank 0 sees the end of its standard input where the connection broke"
                self.reporter.report(Warned(text=text, hint="give long input as a file that the hosts have"))
            return True
        raise error

    def _print(self, entry: LogEntry) -> None:
        match entry.kind:
            case "mpirun" if self.manner.operator:
                self._lines(replace(entry, lines=self._without_banners(entry.lines)))
            case "out" | "err" | "mpirun":
                self._lines(entry)
            case "up":
                if entry.rank in self._started or entry.rank == self._failed:
                    # What failed before the restart is past. The record of an end may come after another rank's start.
                    self._forget()
                self._started.add(entry.rank)
            case "end":
                if not self._failed and len(entry.words) >= 3 and entry.words[1:3] != ("0", "0"):
                    self._failed = entry.rank
            case "event":
                with answer_of(self.door.host, f"an event in the log of run {self.run_id}"):
                    self._event(entry.fields)

    def _forget(self) -> None:
        """Forget the first failure: the ranks begin again."""
        self._failed = ""
        self._started.clear()

    def _lines(self, entry: LogEntry) -> None:
        self._reached = entry.time or self._reached
        if not self._wanted(entry):
            return
        # Only for an operator: a log that a user requests is printed in full.
        if self._is_aftermath(entry):
            self.folded += len(entry.lines)
            return
        stream, source = self._origin(entry)
        for line in entry.lines:
            self.reporter.report(output_line(line, stream=stream, source=source))

    def _without_banners(self, lines: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Return mpirun's lines without banners about an end that kit reports itself. The run's log has all lines."""
        shown = self._banners.feed(line.decode(errors="surrogateescape") for line in lines)
        return tuple(line.encode(errors="surrogateescape") for line in shown)

    def _show_unfinished(self) -> None:
        """Report how far unfinished lines are: bars and prompts. A very long line waits for its end.

        A slow rank may write a line in two parts. In a file or pipe, no other rank's line may come in between.
        """
        alone = self.np == 1 or self.manner.rank is not None
        for entry in self._log.unfinished():
            if self._wanted(entry) and not self._is_aftermath(entry) and len(entry.lines[0]) < LONG:
                stream, source = self._origin(entry)
                text = text_so_far(entry.lines[0])
                live = alone or entry.bar
                self.reporter.report(UnfinishedLine(text=text, stream=stream, source=source, live=live))

    def _wanted(self, entry: LogEntry) -> bool:
        is_old = (entry.time or self._reached) < self.manner.since
        return not is_old and self.manner.rank in (None, int(entry.rank) if entry.rank else -1)

    def _is_aftermath(self, entry: LogEntry) -> bool:
        return bool(self.manner.operator and self._failed and entry.kind != "out" and entry.rank != self._failed)

    def _origin(self, entry: LogEntry) -> tuple[Stream, str]:
        """Return the stream that shows an entry, and the name of its rank if lines are tagged."""
        source = self.roles.get(entry.rank, entry.rank) if self.manner.tagged else ""
        return "stdout" if entry.kind == "out" else "stderr", source

    def _event(self, fields: Mapping[str, Any]) -> None:
        match fields.get("event"):
            case "attempt":
                self._forget()
                self.roles = roles_of(fields)
                self.np = fields.get("np")
            case "lost":
                self.reporter.report(Warned(text=lost_host(fields)))
            case "again":
                self.reporter.report(Warned(text=next_attempt(fields)))
            case "restart":
                self.reporter.report(Warned(text=restarted(fields)))
            case "reset" | "short" | "refused" | "over":
                event = elastic_event(fields)
                if fields.get("event") == "reset":
                    # What failed before is past.
                    self._forget()
                self.reporter.report(event)
            case "hang":
                for text in hang_report(fields):
                    self.reporter.report(OutputLine(text=text, stream="stderr"))
            case _:
                return


def _waits(error: EngineDownError) -> Warned:
    text = f"{error}; the run continues if the engine has live-restore; waiting up to {AGAIN_S:.0f} s for the engine"
    return Warned(text=text, hint=error.hint)


def _is_end(entry: LogEntry) -> bool:
    return entry.kind == "event" and entry.fields.get("event") == "ended"


def _pause(seconds: float, interrupts: Interrupts, over: threading.Event | None) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if interrupts.count or interrupts.suspended or (over and over.is_set()):
            return
        time.sleep(min(left, 0.5))
