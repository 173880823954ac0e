"""Carries out one plan: turns what members report into calls of the Dealer, and its orders into orders to members."""

import time
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from kitdata import plan, wire
from kitdata.crew import Calls, Crew, Failed
from kitdata.deal import Dealer
from kitdata.events import Events
from kitdata.plan import Plan
from kitdata.source import Entry, shown

# Pieces in one frame. Each has at most plan.MOST_PARTS extents.
BATCH = 100
# Where nobody seems to have a piece, a report of a host that has it may still be on its way.
STUCK_S = 2.0


class Dealing:
    """One plan. `label` is what people call the source."""

    def __init__(self, crew: Crew, events: Events, entries: Sequence[Entry], step: Plan, label: str) -> None:
        self._crew = crew
        self._events = events
        self._entries = entries
        self._step = step
        self._label = label
        self._tried: Optional[Failed] = None
        # When a host was ordered to read a piece.
        self._began: Dict[Tuple[int, int], float] = {}
        self._stuck_since = time.monotonic()
        # Files that changed meanwhile, with what the source says of them now.
        self._changed: Dict[int, Optional[Entry]] = {}
        # All reads that were ordered, as (host, piece): what a host says of one may come after it was ordered again.
        self._ordered: Set[Tuple[int, int]] = set()
        # The pieces of each file, so that no more of a changed file is read.
        self._of_file: Dict[int, List[int]] = {}
        readers = sum(1 << member for member in crew.readers)
        self._dealer = Dealer(step.pieces, len(crew.hosts), crew.living, readers)

    def run(self) -> Dict[int, Optional[Entry]]:
        """Bring all pieces to all living hosts that need them. Return the files that changed meanwhile.

        Raises Failed.
        """
        for number, piece in enumerate(self._step.pieces):
            for file, _ in piece.parts:
                self._of_file.setdefault(file, []).append(number)
        rows = [[plan.runs(piece.parts), piece.need, piece.have] for piece in self._step.pieces]
        for at in range(0, len(rows), BATCH):
            self._crew.everybody({"pieces": {"rows": rows[at : at + BATCH], "more": at + BATCH < len(rows)}})
        self._crew.scope = self._crew.scope._replace(pieces=len(rows))
        self._crew.on_lost = self._dealer.lost
        try:
            self._crew.pump(self._step_on, self._calls())
        finally:
            self._crew.on_lost = lambda _: None
        return self._changed

    def _calls(self) -> Calls:
        dealer = self._dealer
        return {
            "changed": self._change,
            "wrong": self._wrong,
            "unread": self._unread,
            "has": lambda member, values: dealer.arrived(member, values[0]),
            "over": self._over,
            "rotten": self._rotten,
            "sent": lambda member, values: dealer.sent(member, *values),
            "unsent": lambda member, values: dealer.unsent(member, *values),
            "broken": lambda member, values: dealer.broken(values[0], member, values[1]),
        }

    def _step_on(self) -> bool:
        """Send the next orders. Return whether nothing is left to bring."""
        for member, text in list(self._dealer.out.items()):
            self._crew.lose(member, Failed("hosts-lost", text))
        tasks: Dict[int, List[Any]] = {}
        for order in self._dealer.deal():
            if order.read:
                self._ordered.add((order.host, order.piece))
                self._began[order.host, order.piece] = time.monotonic()
            tasks.setdefault(order.host, []).append([order.piece, order.read, order.route])
        for member, orders in tasks.items():
            self._crew.send(member, {"tasks": orders})
        if not self._dealer.stuck:
            self._stuck_since = time.monotonic()
        elif time.monotonic() - self._stuck_since > STUCK_S:
            raise self._tried or Failed("source-lost", "no host is left that can read %s" % self._label)
        return not self._dealer.left

    def _over(self, member: int, values: List[Any]) -> None:
        began = self._began.pop((member, values[0]), None)
        if began is not None:
            self._dealer.took(time.monotonic() - began)
        self._dealer.over(member, values[0])

    def _reads(self, member: int, piece: int) -> None:
        """Raise wire.Broken unless the member was ordered to read the piece."""
        if (member, piece) not in self._ordered:
            raise wire.Broken("that it read what it had no order to read")

    def _change(self, member: int, values: List[Any]) -> None:
        piece, file, newest = values
        self._reads(member, piece)
        if not any(number == file for number, _ in self._step.pieces[piece].parts):
            raise wire.Broken("a change of a file that it did not read")
        self._changed[file] = newest
        for piece in self._of_file[file]:
            self._dealer.skip(piece)

    def _wrong(self, member: int, values: List[Any]) -> None:
        piece, file = values
        self._events.add({"wrong": {"host": self._crew.hosts[member], "file": shown(self._entries[file].path)}})
        self._dealer.wrong(member, piece)

    def _rotten(self, member: int, values: List[Any]) -> None:
        piece, file = values
        self._dealer.rotten(member, piece, shown(self._entries[file].path))

    def _unread(self, member: int, values: List[Any]) -> None:
        piece, kind, text = values
        self._reads(member, piece)
        error = Failed(kind, text, self._crew.hosts[member])
        if kind != "source-lost":
            raise error
        # Another host may still reach the source.
        self._tried = error
        self._dealer.unread(member, piece, True)
