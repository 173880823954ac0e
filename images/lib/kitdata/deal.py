"""Decides which host reads which piece, and on which way a piece passes from host to host.

Pure: it gets what members report, and returns orders. A host is a number, and a set of hosts is a bit mask. A piece is
in flight from its order until every host on its way has it, or has reported why not. Then it is dealt again, if a
host still needs it. A piece that a living host has is never read from the source, unless that host is in doubt.

A host is in doubt for a piece that it read, sent or passed on, and that came to a later host with wrong bytes: nobody
can tell which of them was at fault. The others take that piece from a host that is less in doubt, or read it.
"""

import collections
from typing import Deque, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from kitdata.plan import Piece, bits

# The most pieces that one host may be reading or sending by order at the same time, and how many all hosts together
# begin with. The more there are, the longer it takes until the first one is complete and can pass on.
SLOTS, FIRST_SLOTS = 4, 8
# A host gets more at the same time where a piece is read in less than this time, and fewer where it takes longer.
QUICK_S, SLOW_S = 0.5, 2.0
# A host that gets the same piece wrong this often, or loses what it had this often, is out.
MOST_WRONG = 5
# Two hosts whose connection ends this often do not use it any more.
MOST_BROKEN = 10
# Pieces whose senders are all busy, and that `deal` looks past.
LOOK = 256


class Order(NamedTuple):
    """`host` reads the piece from the source, or sends what it has, to the first of `route`, which passes it on."""

    host: int
    piece: int
    read: bool
    route: Tuple[int, ...]


class _Flight:
    def __init__(self, order: Order, waiting: int) -> None:
        self.way = (order.host, *order.route)
        self.waiting = waiting
        # The place on the way of the last host to which the piece came with wrong bytes.
        self.wrong = 0
        # The connection on which a host has sent the piece.
        self.sent: Dict[int, int] = {}


class Dealer:
    """Deals the pieces of one plan to hosts 0…count-1. `readers` is the set of those that can read the source."""

    def __init__(self, pieces: Sequence[Piece], count: int, living: int, readers: int, slots: int = 0) -> None:
        self._need = [piece.need & living for piece in pieces]
        self._have = [piece.have & living for piece in pieces]
        self._living = living
        self._readers = readers & living
        self._slots = self._least = slots or max(1, min(SLOTS, FIRST_SLOTS // count))
        self._ring = list(range(count))
        self._busy: List[Set[int]] = [set() for _ in range(count)]
        self._flights: Dict[int, _Flight] = {}
        self._skipped: Set[int] = set()
        self._left = 0
        self._sends: Deque[int] = collections.deque()
        # By the one host that must read it itself; None for pieces that any reader may read.
        self._reads: Dict[Optional[int], Deque[int]] = {}
        self._bad: Set[Tuple[int, int]] = set()
        self._broken: Dict[Tuple[int, int], int] = {}
        self._dead: Set[Tuple[int, int, int]] = set()
        self._wrong: Dict[Tuple[int, int], int] = {}
        # By piece: how often each host was in doubt.
        self._doubts: Dict[int, Dict[int, int]] = {}
        # Hosts that the caller must take for lost, and why.
        self.out: Dict[int, str] = {}
        for piece, need in enumerate(self._need):
            if need:
                self._left += 1
                self._queue(piece)

    @property
    def left(self) -> int:
        """How many pieces some living host still needs, without those that were skipped."""
        return self._left

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return not self._flights and not any(self._busy)

    @property
    def stuck(self) -> bool:
        """Whether pieces are left that nobody can deliver. Ask after `deal`, and after the hosts in `out` are lost."""
        return self._left > 0 and self.idle and not self.out

    @property
    def readers(self) -> int:
        return self._readers

    def deal(self) -> List[Order]:
        """Return the next orders. Nothing is ordered twice."""
        orders = self._deal()
        if self.stuck and not orders and self._doubts:
            self._trust()
            orders = self._deal()
        if self.stuck and not orders:
            self._give_up()
        return orders

    def _deal(self) -> List[Order]:
        return [*self._deal_sends(), *self._deal_reads()]

    def _trust(self) -> None:
        """Doubt nobody: without the hosts in doubt nothing goes on."""
        pieces, self._doubts = list(self._doubts), {}
        for piece in pieces:
            if self._wanted(piece):
                self._queue(piece, first=True)

    def _give_up(self) -> None:
        """Take hosts for out that need what others have, or could read, and that none of these can reach."""
        for piece, need in enumerate(self._need):
            if need and piece not in self._skipped and (self._have[piece] or self._readers):
                for host in bits(need):
                    self._exclude(host, "no host that could send it what it needs can reach it")

    def _deal_sends(self) -> List[Order]:
        orders, kept = [], []
        for _ in range(min(len(self._sends), LOOK)):
            piece = self._sends.popleft()
            if not self._wanted(piece):
                continue
            if not self._givers(piece):
                self._queue(piece)
                continue
            order = self._send(piece)
            if order is None:
                kept.append(piece)
            else:
                orders.append(self._fly(order))
        self._sends.extendleft(reversed(kept))
        return orders

    def _send(self, piece: int) -> Optional[Order]:
        best: Optional[Order] = None
        for host in bits(self._givers(piece)):
            if len(self._busy[host]) >= self._slots:
                continue
            route = self._way(host, piece)
            if route and (best is None or len(self._busy[host]) < len(self._busy[best.host])):
                best = Order(host, piece, False, route)
        return best

    def _deal_reads(self) -> List[Order]:
        orders: List[Order] = []
        hosts = bits(self._readers)
        while hosts:
            # The host with the least to do. A slow one reads less.
            host = min(hosts, key=lambda one: (len(self._busy[one]), one))
            piece = self._next_read(host) if len(self._busy[host]) < self._slots else None
            if piece is None:
                hosts.remove(host)
                continue
            orders.append(self._fly(Order(host, piece, True, self._reading_way(host, piece))))
        return orders

    def _next_read(self, host: int) -> Optional[int]:
        for owner in (host, None):
            queue = self._reads.get(owner, ())
            for _ in range(len(queue)):
                piece = self._reads[owner].popleft()
                if not self._wanted(piece):
                    continue
                if self._givers(piece) or self._owner(piece) != owner:
                    self._queue(piece)
                    continue
                if self._need[piece] >> host & 1 or self._reading_way(host, piece):
                    return piece
                # It can reach no host that needs the piece, or is in doubt. Another reader may.
                self._reads[owner].append(piece)
        return None

    def _wanted(self, piece: int) -> bool:
        return bool(self._need[piece]) and piece not in self._flights and piece not in self._skipped

    def _givers(self, piece: int) -> int:
        """Return the hosts that may send the piece: those least in doubt, or none if one less in doubt can read it."""
        have, doubts = self._have[piece], self._doubts.get(piece)
        if not doubts:
            return have
        givers, doubt = _least_doubted(have, doubts)
        readers, least = _least_doubted(self._readers, doubts)
        return 0 if readers and least < doubt else givers

    def _way(self, host: int, piece: int) -> Tuple[int, ...]:
        """Return the way of a piece from a host. It goes on from no host in doubt, which would put others in doubt."""
        need, doubts = self._need[piece] & ~(1 << host), self._doubts.get(piece, {})
        if host in doubts:
            return self._route(host, need)[:1]
        doubted = sum(1 << other for other in doubts)
        return self._route(host, need & ~doubted) or self._route(host, need & doubted)[:1]

    def _reading_way(self, host: int, piece: int) -> Tuple[int, ...]:
        """Return the way of a piece that the host reads: none where another reader is less in doubt."""
        doubts = self._doubts.get(piece)
        if doubts and not _least_doubted(self._readers, doubts)[0] >> host & 1:
            return ()
        return self._way(host, piece)

    def _owner(self, piece: int) -> Optional[int]:
        """Return the one host that needs the piece if it can read it itself."""
        need = self._need[piece]
        return need.bit_length() - 1 if not need & (need - 1) and need & self._readers else None

    def _queue(self, piece: int, first: bool = False) -> None:
        reads = self._reads.setdefault(self._owner(piece), collections.deque())
        queue = self._sends if self._givers(piece) else reads
        if first:
            queue.appendleft(piece)
        else:
            queue.append(piece)

    def _route(self, origin: int, need: int) -> Tuple[int, ...]:
        """Return the way around the ring of members, without steps that are known not to work."""
        route: List[int] = []
        at = origin
        todo = [host for host in (*self._ring[origin + 1 :], *self._ring[:origin]) if need >> host & 1]
        while todo:
            host = next((host for host in todo if (at, host) not in self._bad), None)
            if host is None:
                break
            route.append(host)
            todo.remove(host)
            at = host
        return tuple(route)

    def _fly(self, order: Order) -> Order:
        waiting = sum(1 << host for host in order.route)
        if order.read:
            waiting |= self._need[order.piece] & (1 << order.host)
        self._flights[order.piece] = _Flight(order, waiting)
        self._busy[order.host].add(order.piece)
        return order

    def took(self, seconds: float) -> None:
        """A host has read a piece in this time."""
        if seconds < QUICK_S:
            self._slots = min(SLOTS, self._slots + 1)
        elif seconds > SLOW_S:
            self._slots = max(self._least, self._slots - 1)

    def over(self, host: int, piece: int) -> None:
        """The host has carried out its order, with whatever result: it has room for another."""
        self._busy[host].discard(piece)

    def arrived(self, host: int, piece: int) -> None:
        """The host has the piece, and its bytes are right."""
        bit = 1 << host
        if not self._living & bit:
            return
        before = self._need[piece]
        self._have[piece] |= bit
        self._need[piece] = before & ~bit
        if before and not self._need[piece] and piece not in self._skipped:
            self._left -= 1
        self._settled(piece, bit)

    def wrong(self, host: int, piece: int) -> None:
        """The piece came to the host with wrong bytes."""
        flight = self._flights.get(piece)
        if flight is not None and host in flight.way[1:]:
            flight.wrong = max(flight.wrong, flight.way.index(host))
        self._count(host, piece, "a piece came with wrong bytes %d times" % MOST_WRONG)
        self._settled(piece, 1 << host)

    def rotten(self, host: int, piece: int, name: str) -> None:
        """The host does not have what it said that it has. `name` is that of a file whose bytes are wrong."""
        bit = 1 << host
        if not self._living & bit or not self._have[piece] & bit:
            return
        self._have[piece] &= ~bit
        if not self._need[piece] and piece not in self._skipped:
            self._left += 1
        self._need[piece] |= bit
        self._count(host, piece, "what its disk returns of %s is not what it wrote" % name)
        self._cut(piece, host)
        if piece not in self._flights:
            self._queue(piece, first=True)

    def _count(self, host: int, piece: int, text: str) -> None:
        count = self._wrong[host, piece] = self._wrong.get((host, piece), 0) + 1
        if count >= MOST_WRONG:
            self._exclude(host, text)

    def unread(self, host: int, piece: int, lost: bool) -> None:
        """The host could not read the piece. `lost`: the source does not answer it, so it gets no other one to read."""
        if lost:
            self._readers &= ~(1 << host)
            self._spread(host)
        self._cut(piece, host)

    def _spread(self, host: int) -> None:
        for piece in self._reads.pop(host, ()):
            self._queue(piece)

    def skip(self, piece: int) -> None:
        """Give the piece up: a file of it has changed."""
        if piece not in self._skipped:
            self._skipped.add(piece)
            if self._need[piece]:
                self._left -= 1

    def sent(self, host: int, piece: int, to: int, connection: int) -> None:
        """The host has put all of the piece on a connection to `to`."""
        flight = self._flights.get(piece)
        if flight is not None and host in flight.way:
            flight.sent[host] = connection
            if (host, to, connection) in self._dead:
                self._cut(piece, to)

    def unsent(self, host: int, piece: int, to: int, reached: bool) -> None:
        """The host could not send the piece to `to`. `reached`: only the piece was the matter, not the connection."""
        if not reached:
            self._avoid(host, to)
        flight = self._flights.get(piece)
        # A report of an earlier flight says nothing of this one.
        if flight is not None and _follows(flight.way, host, to):
            self._cut(piece, to)

    def broken(self, host: int, to: int, connection: int) -> None:
        """A connection ended. What was sent on it may not have arrived."""
        self._dead.add((host, to, connection))
        count = self._broken[host, to] = self._broken.get((host, to), 0) + 1
        if count >= MOST_BROKEN:
            self._avoid(host, to)
        for piece, flight in list(self._flights.items()):
            if flight.sent.get(host) == connection and _follows(flight.way, host, to):
                self._cut(piece, to)

    def _exclude(self, host: int, text: str) -> None:
        if self._living >> host & 1:
            self.out.setdefault(host, text)

    def _avoid(self, host: int, to: int) -> None:
        # Where one of them is lost, that is why.
        if not (self._living >> host & self._living >> to & 1):
            return
        self._bad.add((host, to))
        others = [other for other in bits(self._living) if other != to]
        if all((other, to) in self._bad for other in others):
            # The lead's own host is where the reports meet, so it is another one that is out.
            self._exclude(to or host, "the other hosts cannot reach it")

    def lost(self, host: int) -> None:
        """The host is out. The others close the ring around it."""
        bit = 1 << host
        if not self._living & bit:
            return
        self._living &= ~bit
        self._readers &= ~bit
        self.out.pop(host, None)
        self._busy[host].clear()
        for piece, need in enumerate(self._need):
            self._have[piece] &= ~bit
            if need & bit:
                self._need[piece] = need & ~bit
                if need == bit and piece not in self._skipped:
                    self._left -= 1
        for piece in list(self._flights):
            self._cut(piece, host)
        self._spread(host)

    def _cut(self, piece: int, host: int) -> None:
        """The piece gets to neither this host nor those behind it, by this flight."""
        flight = self._flights.get(piece)
        if flight is not None and host in flight.way:
            behind = flight.way[flight.way.index(host) :]
            self._settled(piece, sum(1 << other for other in behind))

    def _settled(self, piece: int, hosts: int) -> None:
        """Wait no more for these hosts. The flight ends with the last one."""
        flight = self._flights.get(piece)
        if flight is None:
            return
        flight.waiting &= ~hosts
        if not flight.waiting:
            del self._flights[piece]
            for host in flight.way[: flight.wrong]:
                # Also one that says that it got wrong bytes: it may have altered them.
                doubts = self._doubts.setdefault(piece, {})
                doubts[host] = doubts.get(host, 0) + 1
            if self._wanted(piece):
                self._queue(piece, first=True)


def _least_doubted(hosts: int, doubts: Dict[int, int]) -> Tuple[int, int]:
    """Return those of the hosts that are least in doubt, and how much they are."""
    least = min((doubts.get(host, 0) for host in bits(hosts)), default=0)
    return sum(1 << host for host in bits(hosts) if doubts.get(host, 0) == least), least


def _follows(way: Sequence[int], host: int, to: int) -> bool:
    return any(pair == (host, to) for pair in zip(way, way[1:]))
