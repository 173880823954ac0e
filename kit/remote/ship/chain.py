"""The chain of a ship: which host takes layers from which, who answers them, and what happens when one fails."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from kit.errors import KitError, StepError
from kit.events import Reporter, Warned
from kit.model.answer import OddAnswer
from kit.remote.ship import faults
from kit.remote.ship.cargo import Cargo, There
from kit.remote.ship.faults import Words
from kit.remote.ship.lanes import Lane, in_order, living
from kit.remote.ship.porters import Porter

# How long a porter that ends by itself may take.
END_S = 10.0
# How many answers to questions of one host run at the same time.
_ANSWERS = 16


class Chain:
    """The hosts, in the order in which they pass layers on. The first one has them from `source`, or this machine.

    `knows_first`: this machine answers the first question of a host before it comes.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        source: Lane | None,
        there: There | None,
        words: Words,
        reporter: Reporter,
        *,
        knows_first: bool,
    ) -> None:
        self._lanes, self._source, self._there = lanes, source, there
        self._words, self._reporter = words, reporter
        self._knows_first = knows_first
        self._cargo: Cargo | None = None
        self._order: list[Lane] = []

    def carries(self, cargo: Cargo) -> None:
        """Take note of what comes, as soon as that is known."""
        self._cargo = cargo

    @property
    def layers(self) -> frozenset[str]:
        """The digests of the layers that come."""
        return frozenset(self._cargo.order["layers"] if self._cargo else ())

    @property
    def all_received(self) -> bool:
        """Whether every host has all of its layers."""
        return all(lane.received for lane in self._order if not lane.failed)

    def line_up(self) -> None:
        """Order each host to take layers from the one before it."""
        self._order = in_order(self._lanes)
        before = self._source
        for lane in self._order:
            if lane.need:
                self._attach(lane, before)
                before = lane

    def _attach(self, lane: Lane, upstream: Lane | None) -> None:
        lane.upstream = upstream
        lane.turn += 1
        assert lane.porter is not None  # noqa: S101
        wanted = set(lane.need or ())
        if upstream is None:
            if self._cargo and self._cargo.spool:
                self._cargo.spool.provide({layer for layer in wanted if not lane.received})
            self._follow_me(lane, lane.porter)
            return
        if upstream is self._source and upstream.porter:
            upstream.porter.order(op="fill", want=sorted(wanted))
        lane.porter.order(op="follow", turn=lane.turn, address=upstream.target.address, port=upstream.port)

    def _follow_me(self, lane: Lane, porter: Porter) -> None:
        """Order the lane to take layers from this machine.

        If nothing of them is there, this machine knows the first question. It answers that of code at once: this saves
        the round trip that the turn at the head costs.
        """
        need = dict(lane.need or {})
        has_spool = self._cargo is not None and self._cargo.spool is not None
        # A question that came too early is no reason to end the ship to the other hosts.
        has_asked = lane.turn > 1 or lane.serial > 0
        if not (self._knows_first and has_spool) or has_asked or any(need.values()):
            porter.order(op="follow", turn=lane.turn)
            return
        porter.order(op="follow", turn=lane.turn, answered=need)
        self.answer(lane, need, 1)

    def answer(self, lane: Lane, need: dict[str, int], serial: int) -> None:
        """Send layers to the lane, whose upstream is this machine, until it has all or asks again.

        Raises OddAnswer if the lane asks for something that is not in this ship, or too often.
        """
        if not lane.begun or serial <= lane.serial or not self.layers >= need.keys():
            raise OddAnswer("it asks for layers of something else")
        lane.answers = [thread for thread in lane.answers if thread.is_alive()]
        # An answer ends soon after the next question.
        if len(lane.answers) >= _ANSWERS:
            raise OddAnswer("it asks too often")
        lane.serial = serial
        spool, porter = self._cargo.spool if self._cargo else None, lane.porter
        if spool is None or porter is None:
            return

        def put(data: bytes) -> None:
            if lane.serial != serial:
                raise BrokenPipeError
            porter.send(data, serial)

        lane.answers.append(threading.Thread(target=spool.answer, args=(need, put), daemon=True))
        lane.answers[-1].start()

    def drop(self, lane: Lane, error: KitError, *, stays: bool = False) -> None:
        """Give the lane up. The hosts behind it take layers from the one before it.

        `stays`: its porter keeps the turn of this ship.
        """
        lane.failed = error
        if lane.porter and not stays:
            lane.gone = True
            if is_full(error):
                # Remove what came so far, which fills its disk.
                lane.porter.end(keep=False)
                lane.porter.wait(END_S)
            lane.porter.kill()
        if lane is self._source and self._is_needed(lane):
            name, renewal = (self._there.name, self._there.renewal) if self._there else ("", "")
            raise faults.not_given(lane.host, name, error, self._words, renewal=renewal)
        for behind in self._order:
            if behind.upstream is lane and not behind.over and not behind.received:
                self._attach(behind, living(lane.upstream))

    def _is_needed(self, source: Lane) -> bool:
        """Return whether a host still needs layers that only the source has."""
        waiting = [lane for lane in self._lanes if not (lane.over or lane.received) and lane.need != {}]
        return any(lane.upstream is source or not self._order for lane in waiting)

    def pass_by(self, lane: Lane, why: str) -> None:
        """Attach the lane to the one before its upstream, which lives, but which it cannot reach."""
        upstream = lane.upstream
        if upstream is None or (upstream is self._source):
            source = f"{upstream.host} ({upstream.target.address})" if upstream else None
            self.drop(lane, faults.lost(lane.host, source, why, self._words))
            return
        text = f"{lane.host} {self._words.not_taken} {upstream.host} ({upstream.target.address}): {why}"
        hint = "kit uses another way, but MPI needs this one: open TCP between the VMs (firewall, security group)"
        self._reporter.report(Warned(text=text, hint=hint))
        self._attach(lane, living(upstream.upstream))


def is_full(error: KitError | None) -> bool:
    """Return whether what came so far fills the host's disk."""
    return isinstance(error, StepError) and "space" in error.message
