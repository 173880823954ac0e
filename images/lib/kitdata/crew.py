"""The members of one staging as the lead sees them: who lives, what they report, who is out.

Everything that members report comes into one queue, and one thread decides. A member that reports what cannot be is
out.
"""

import queue
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from kitdata import reports, wire
from kitdata.events import Events
from kitdata.links import Link
from kitdata.plan import bits

PROGRESS_S = 0.5
# In the queue of reports: the staging must stop. Its number is that of no member.
_STOP = (-1, 0, ["stop"])

# What to do with a report: gets the member and the values of the report, as kitdata.reports returns them. It may raise
# wire.Broken for one that this member cannot send.
Calls = Dict[str, Callable[[int, List[Any]], Any]]


class Failed(Exception):
    """Why a staging ends. `kind` is one of those that kit knows; `text` is one line without secrets."""

    def __init__(self, kind: str, text: str, host: Optional[str] = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text
        self.host = host


class Crew:
    """All members of a staging. The first one is on the lead's own host."""

    def __init__(self, request: Dict[str, Any], id_: str, client: Any, events: Events) -> None:
        self.hosts = [str(member["host"]) for member in request["members"]]
        # The living, as a set of hosts.
        self.living = (1 << len(self.hosts)) - 1
        self.lost: Dict[int, Failed] = {}
        # Reports of another round are late, and are dropped.
        self.round = 0
        # What the numbers in reports count.
        self.scope = reports.Scope(len(self.hosts))
        # Bytes that must come to each member; None before the plan.
        self.need: Optional[Sequence[int]] = None
        # Gets each member that is lost.
        self.on_lost: Callable[[int], None] = _nothing
        self._readers: Optional[List[str]] = request["source"].get("readers")
        if request["source"]["kind"] == "feed":
            # The operator's connection ends at the lead.
            self._readers = self.hosts[:1]
        self._events = events
        self._reports: queue.Queue[Any] = queue.Queue()
        # For each member: bytes that came, and bytes that it read from the source.
        self._at = [[0, 0] for _ in self.hosts]
        self._last = 0.0
        self._links = [
            Link(number, member, client, id_, self._take) for number, member in enumerate(request["members"])
        ]

    @property
    def members(self) -> List[int]:
        """The numbers of the living members."""
        return bits(self.living)

    @property
    def readers(self) -> List[int]:
        """The living members that can read the source."""
        return [member for member in self.members if self._readers is None or self.hosts[member] in self._readers]

    @property
    def read(self) -> int:
        """Bytes that were read from the source so far."""
        return sum(at[1] for at in self._at)

    def lives(self, member: int) -> bool:
        return bool(self.living >> member & 1)

    def all(self, done: Set[int]) -> bool:
        """Return whether these are all of the living."""
        return not self.living & ~sum(1 << member for member in done)

    def send(self, member: int, order: Dict[str, Any]) -> None:
        self._links[member].send(order)

    def everybody(self, order: Dict[str, Any]) -> None:
        """Send an order to all living members."""
        frame = wire.packed(order)
        for member in self.members:
            self._links[member].send_packed(frame)

    def stop(self) -> None:
        """Let `pump` raise Failed. Any thread may call this."""
        self._reports.put(_STOP)

    def end(self) -> None:
        """Let all members go."""
        for link in self._links:
            link.send({"end": 1})
            link.close_soon()

    def _take(self, member: int, round_: int, report: List[Any]) -> None:
        self._reports.put((member, round_, report))

    def pump(self, done: Callable[[], bool], calls: Calls) -> None:
        """Take reports until `done`. Raises Failed if the staging was stopped, or no member is left."""
        while not done():
            try:
                self._handle(self._reports.get(timeout=PROGRESS_S), calls)
                # What has come meanwhile belongs to the same step: `done` may be expensive.
                for _ in range(self._reports.qsize()):
                    self._handle(self._reports.get(), calls)
            except queue.Empty:
                pass
            self._progress()

    def _handle(self, item: Tuple[int, int, List[Any]], calls: Calls) -> None:
        if item is _STOP:
            raise Failed("stopped", "the staging was stopped")
        member, round_, report = item
        if not self.lives(member):
            return
        try:
            word = reports.word_of(report)
            if word in ("at", "gone", "failed"):
                self._heard(member, *reports.checked(report, self.scope))
            elif word in calls and round_ in (0, self.round):
                calls[word](member, reports.checked(report, self.scope)[1])
        except wire.Broken as error:
            self.lose(member, Failed("hosts-lost", "it reports what cannot be: %s" % error))

    def _heard(self, member: int, word: str, values: List[Any]) -> None:
        """Take a report that may come at any time."""
        if word == "at":
            self._at[member] = values
        elif word == "gone":
            self.lose(member, Failed("hosts-lost", values[0]))
        else:
            self.lose(member, Failed(values[0], values[1]))

    def _progress(self) -> None:
        now = time.monotonic()
        if self.need is None or now - self._last < PROGRESS_S:
            return
        self._last = now
        at = {self.hosts[member]: min(self._at[member][0], self.need[member]) for member in self.members}
        self._events.add({"progress": {"at": at, "read": self.read}})

    def lose(self, member: int, error: Failed) -> None:
        """A host is out. The others go on; raises Failed if nobody is left."""
        if not self.lives(member):
            return
        self.living &= ~(1 << member)
        self.lost[member] = error
        self._links[member].close()
        self._events.add({"lost": {"host": self.hosts[member], "text": error.text}})
        if not self.living:
            kinds = {one.kind for one in self.lost.values()}
            kind = kinds.pop() if len(kinds) == 1 else "hosts-lost"
            raise Failed(kind, "%s: %s" % (self.hosts[member], error.text), self.hosts[member])
        self.everybody({"lost": [member]})
        self.on_lost(member)


def _nothing(_: int) -> None:
    pass
