"""Leads one ship from its turn to its end: connects to each host, gives its porter orders, and follows its reports.

kit.remote.ship.chain decides which host takes layers from which.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeAlias

from kit.errors import KitError, UnreachableError
from kit.events import Note, Reporter, Warned
from kit.model.answer import OddAnswer
from kit.model.secret import Secret
from kit.remote.ship import faults
from kit.remote.ship.cargo import Cargo, ImageThere, There, image_cargo
from kit.remote.ship.certificate import certificate
from kit.remote.ship.chain import END_S, Chain, is_full
from kit.remote.ship.faults import IMAGE
from kit.remote.ship.lanes import Lane, Target
from kit.remote.ship.porters import Porter
from kit.remote.ship.progress import Progress
from kit.remote.ship.reports import Report
from kit.remote.ship.result import Shipped, went
from kit.remote.ship.turn import Turn
from kit.remote.ssh import open_files
from kit.remote.ssh.openssh import SSH_FAILED

# A porter reports something every two seconds.
SILENCE_S = 15.0
START_S = 90.0
# How many reports wait for this machine.
_WAITING = 1024

# A lane with its report; or without a lane, why this machine's engine gives no layers.
_Heard: TypeAlias = "tuple[Lane | None, Report | OddAnswer | KitError | None]"


class Ship:
    """One ship of an image or code. `run` brings it to the targets; `close` ends its porters."""

    def __init__(
        self,
        owner: str,
        targets: Sequence[Target],
        reporter: Reporter,
        *,
        there: There | None = None,
        source: Target | None = None,
        cargo: Cargo | None = None,
        turn: Turn | None = None,
    ) -> None:
        # Without a source, this machine has the image.
        self._there = there
        self._owner = owner
        self._reporter = reporter
        # A host that reports faster than kit reads has to wait.
        self._heard: queue.Queue[_Heard] = queue.Queue(_WAITING)
        self._lanes = [Lane(target) for target in targets]
        self._source = Lane(source) if source else None
        # The lane where a ship of code takes its turn.
        self._turn = turn
        self._head = next((lane for lane in self._all() if turn and lane.host == turn.head), None)
        self._cargo = cargo
        self._words = cargo.words if cargo else there.words if there else IMAGE
        self._begun = 0.0
        self._wire_s = 0.0
        self._progress = Progress(reporter, self._words)
        self._chain = Chain(self._lanes, self._source, there, self._words, reporter, knows_first=turn is not None)

    @cached_property
    def _certificate(self) -> tuple[str, Secret]:
        """Made when it is first needed: while porters start."""
        return certificate()

    @property
    def cargo(self) -> Cargo:
        """What comes. An image is looked at first."""
        if self._cargo is None:
            there = self._there
            if self._source and there:
                self._cargo = self._look_at_source(self._source, there)
            elif isinstance(there, ImageThere):
                # It imports a web server, which code does not need.
                from kit.remote.ship.spool import Spool  # noqa: PLC0415

                spool = Spool(there.origin, lambda error: self._heard.put((None, error)))
                self._cargo = image_cargo(there.image, spool)
            else:
                raise TypeError("a ship without cargo")
        return self._cargo

    def run(self) -> Shipped:
        self._begun = time.monotonic()
        open_files.allow(len(self._all()))
        if self._head is not None and not self._enter(self._head):
            return self._shipped()
        self._chain.carries(self.cargo)
        self._progress.begin(self.cargo.sizes)
        self._connect(bulk=self.cargo.bulk)
        if self._turn and self._head and self._head.waited:
            self._turn.renew()
        for lane in self._all():
            if not lane.failed:
                self._begin(lane, bulk=self.cargo.bulk)
        if self._until_in_turn(lambda: all(lane.need is not None or lane.failed for lane in self._all())):
            # From here on, no host waits for another ship.
            self._chain.line_up()
            self._until(lambda: all(lane.over for lane in self._lanes))
        return self._shipped()

    def _enter(self, head: Lane) -> bool:
        """Wait for this ship's turn at the head. Return whether it has come, and no error of the head.

        Two ships that each hold a host of the other would wait for each other. So each one takes its turn before it
        takes another host, even the source, and keeps its turn while it waits for any.
        """
        # What another host has is unknown until then.
        cargo = self._cargo
        self._progress.begin(cargo.sizes if cargo else ())
        self._connect(bulk=cargo.bulk if cargo else True)
        self._take_turn(head)
        return head is self._source or self._until_in_turn(lambda: head.entered)

    def _take_turn(self, head: Lane) -> None:
        if head.porter and self._turn:
            head.porter.order(op="enter", store=self._turn.store)

    def _until_in_turn(self, reached: Callable[[], bool]) -> bool:
        """Wait, and return whether it was reached before this ship lost its turn. Without the head, no run starts."""
        head = self._head
        self._until(lambda: (head is not None and head.gone) or reached())
        if head is None or not head.gone:
            return True
        head.failed = head.failed or faults.ended(head.target.login, head.porter, self._words)
        return False

    def _connect(self, *, bulk: bool) -> None:
        for lane in self._all():
            if lane.porter is None:
                if lane is not self._source:
                    self._progress.say(lane, "connecting")
                lane.porter = self._porter(lane, bulk=bulk)

    def _begin(self, lane: Lane, *, bulk: bool) -> None:
        """Give a lane's porter its first order for this cargo. Start the porter, unless it is there."""
        if lane.porter is None:
            lane.porter = self._porter(lane, bulk=bulk)
        lane.begun = True
        public, key = self._certificate
        lane.porter.order(
            op="begin",
            **{**self.cargo.order, **(self._there.question if self._there and lane is self._source else {})},
            **(self._turn.order(time.time()) if self._turn else {}),
            owner=self._owner,
            # A single host passes nothing on, so it does not listen.
            listen=lane.target.address if len(self._all()) > 1 else None,
            source=lane is self._source,
            certificate=public,
            key=key.reveal().decode(),
        )

    def _shipped(self) -> Shipped:
        done = [lane for lane in self._lanes if lane.done and not lane.failed]
        have = [*done, *([self._source] if self._source else [])]
        if self._head in have and self._head.porter:
            self._head.porter.order(op="confirm", hosts=sorted(other.host for other in have))
        sent = sum(lane.porter.sent for lane in self._all() if lane.porter)
        text = went(self._words, self._source, done, sent, self._wire_s)
        if text:
            self._reporter.report(Note(text=text))
        return Shipped(
            failures={lane.host: lane.failed for lane in self._lanes if lane.failed},
            sent=sent,
            wire_s=self._wire_s,
            load_s={lane.host: lane.load_s for lane in done},
        )

    def close(self) -> None:
        """End every porter. What arrived on interrupted hosts stays there."""
        porters = [lane.porter for lane in self._all() if lane.porter]
        ending = [lane.porter for lane in self._all() if lane.porter and self._ends(lane)]
        for porter in ending:
            porter.end(keep=False)
        for porter in porters:
            if porter in ending:
                porter.wait(END_S)
            else:
                porter.kill()
        if self._cargo and self._cargo.spool:
            self._cargo.spool.close()

    def _ends(self, lane: Lane) -> bool:
        """Return whether nothing of this ship must stay there. A porter that keeps the turn is still to be ended."""
        in_turn = lane is self._head and lane.entered and not lane.gone
        is_idle = in_turn and (not lane.begun or is_full(lane.failed))
        return lane.done or is_idle or (lane is self._source and self._cargo is not None)

    def _all(self) -> list[Lane]:
        return [*([self._source] if self._source else []), *self._lanes]

    def _porter(self, lane: Lane, *, bulk: bool = True) -> Porter:
        return Porter(lane.target.login, lambda _, report: self._heard.put((lane, report)), bulk=bulk)

    def _look_at_source(self, source: Lane, there: There) -> Cargo:
        """Return what another host has as cargo."""
        source.porter = source.porter or self._porter(source)
        source.porter.order(op="inspect", **there.question)
        start = time.monotonic()
        # One that waits for another ship says so.
        while time.monotonic() < max(start, source.porter.last_heard) + START_S:
            for lane, report in self._reports():
                cargo = self._answered(source, there, report) if lane is source else None
                if cargo:
                    return cargo
                if lane is not None and not isinstance(report, KitError):
                    self._take(lane, report)
            if self._head is not None and self._head.gone:
                raise self._head.failed or faults.ended(self._head.target.login, self._head.porter, self._words)
        why = UnreachableError("it does not answer", hint=self._words.again)
        raise faults.not_given(source.host, there.name, why, self._words, renewal=there.renewal)

    def _answered(self, source: Lane, there: There, report: object) -> Cargo | None:
        """Return the source's cargo, if the report has it. Give the source up if it has something else."""
        try:
            return there.cargo(report) if isinstance(report, Report) else None
        except OddAnswer as odd:
            self._chain.drop(source, faults.odd(source.host, odd))
            return None

    def _reports(self) -> Iterator[_Heard]:
        """Yield what has come by now. What comes meanwhile waits for the next call."""
        with suppress(queue.Empty):
            yield self._heard.get(timeout=0.5)
            for _ in range(self._heard.qsize()):
                yield self._heard.get_nowait()

    def _until(self, reached: Any) -> None:
        start = time.monotonic()
        while not reached():
            for lane, report in self._reports():
                if isinstance(report, KitError):
                    raise report
                if lane is not None:
                    self._take(lane, report)
            now = time.monotonic()
            self._progress.catch_up()
            for lane in self._all():
                porter = lane.porter
                is_asked = lane.begun or lane is self._head
                if porter is None or not is_asked or lane.failed or (lane.done and lane is not self._source):
                    continue
                patience = START_S if lane.need is None else SILENCE_S
                if now - max(porter.last_heard, start if lane.need is None else 0.0) > patience:
                    self._chain.drop(lane, faults.silent(lane.host, patience, self._words))

    def _take(self, lane: Lane, report: Report | OddAnswer | None) -> None:
        lane.gone = lane.gone or report is None
        if lane.failed:
            return
        if isinstance(report, OddAnswer):
            self._chain.drop(lane, faults.odd(lane.host, report))
            return
        # The source has the image, so it is done soon. It still gives layers to others.
        if lane.done and lane is not self._source and not (report and report.ask is not None):
            return
        if report is None:
            is_new = lane.need is None and not lane.entered
            if is_new and lane.porter and lane.porter.kept and lane.porter.exit_code == SSH_FAILED:
                # The kept connection was dead, and nothing began. Try once more with another one.
                lane.porter, lane.gone = self._porter(lane), False
                if lane is self._head:
                    self._take_turn(lane)
                elif lane.begun:
                    self._begin(lane, bulk=True)
                return
            self._chain.drop(lane, faults.ended(lane.target.login, lane.porter, self._words))
            return
        try:
            self._follow(lane, report)
        except OddAnswer as odd:
            self._chain.drop(lane, faults.odd(lane.host, odd))

    def _follow(self, lane: Lane, report: Report) -> None:  # noqa: C901, PLR0912  (one case a report)
        """Do what a report calls for. Raises OddAnswer for one that no porter sends now."""
        if report.ready is not None:
            if not lane.begun or lane.need is not None or not self._chain.layers >= report.ready.need.keys():
                raise OddAnswer("it needs layers of something else")
            lane.need, lane.port, lane.held = report.ready.need, report.ready.port, report.ready.held
        elif report.waits:
            lane.waited = True
            self._progress.say(lane, self._words.waiting)
        elif report.entered:
            lane.entered = True
        elif report.ask is not None:
            self._chain.answer(lane, report.ask, report.serial)
        elif report.at is not None:
            self._progress.arrived(lane, report.at)
        elif report.lost is not None:
            if report.turn == lane.turn and lane.turn:
                self._chain.pass_by(lane, report.lost)
        elif report.corrupt is not None:
            text = f"the layer {report.corrupt[:12]} came with wrong bytes; kit sends it again"
            self._reporter.report(Warned(text=f"{lane.host}: {text}"))
            # The engine refuses a layer only after it has come.
            lane.received = False
        elif report.received:
            lane.received = True
            if self._chain.all_received:
                self._wire_s = time.monotonic() - self._begun
            self._progress.say(lane, self._words.unpacking, 1.0)
        elif report.done:
            lane.done, lane.load_s = True, report.load_s
        elif report.failed is not None:
            error = faults.failed(lane.host, report.failed, report.kind, self._words)
            self._chain.drop(lane, error, stays=lane is self._head and lane.entered)
