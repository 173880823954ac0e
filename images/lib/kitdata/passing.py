"""Passes pieces on to other hosts, also while they still come in, and never makes the sender of a piece wait.

A receiver that waited for the host behind it would be part of a ring of hosts that wait for each other. So a piece that
cannot be sent at once waits in a queue, and its bytes may be dropped from memory once they are on the disk.
"""

import collections
import contextlib
import threading
import time
from typing import Any, Callable, Deque, List, NamedTuple, Optional, Sequence, Union

from kitdata import tls, wire

# Pieces of one queue that keep their bytes in memory.
KEEP = 3
TRIES = 3


class Bucket:
    """Lets `rate` bytes a second through, with bursts of a tenth of a second; all at once with rate 0."""

    def __init__(
        self, rate: int, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.rate = rate
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        # The time at which all that was let through is paid for.
        self._paid = 0.0

    @property
    def unit(self) -> int:
        """The number of bytes to take at once, so that the link is used evenly."""
        return min(wire.CHUNK, max(4096, self.rate // 10)) if self.rate else wire.CHUNK

    def take(self, count: int) -> None:
        """Wait until `count` bytes may go."""
        if not self.rate:
            return
        with self._lock:
            now = self._clock()
            self._paid = max(self._paid, now - 0.1) + count / self.rate
            wait = self._paid - now
        if wait > 0:
            self._sleep(wait)


class Buffer:
    """The bytes of one piece, which may still be coming."""

    def __init__(self, size: int, parts: int, data: Optional[bytes] = None) -> None:
        self.size = size
        # How many checksums it has.
        self.parts = parts
        self.data: Union[bytes, bytearray] = bytearray(size) if data is None else data
        self.sums = b""
        # On the disk, and right.
        self.stored = False
        self._filled = 0
        self._whole = False
        self._watchers: List[Callable[[], None]] = []
        self.broken = False
        self._changed = threading.Condition()

    def put(self, at: int, data: Union[bytes, memoryview]) -> None:
        """These bytes are here, and so are all before them."""
        assert isinstance(self.data, bytearray)
        self.data[at : at + len(data)] = data
        self.filled(at + len(data))

    def filled(self, count: int) -> None:
        """The first `count` bytes are here."""
        with self._changed:
            first = not self._filled
            self._filled = count
            self._changed.notify_all()
        if first:
            self._tell()

    def finish(self, sums: bytes) -> None:
        """All bytes are here, and so are their checksums."""
        with self._changed:
            self.sums = sums
            self._filled, self._whole = self.size, True
            self._changed.notify_all()
        self._tell()

    def abort(self) -> None:
        """No more bytes come, or they are wrong."""
        with self._changed:
            self.broken = True
            self._changed.notify_all()
        self._tell()

    def _tell(self) -> None:
        for watcher in list(self._watchers):
            watcher()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call this at the first bytes, and when all are here or none will come."""
        self._watchers.append(watcher)

    @property
    def begun(self) -> bool:
        return self._filled > 0

    @property
    def ended(self) -> bool:
        """All bytes are here, or none will come."""
        return self._whole or self.broken

    def wait(self, at: int, most: int) -> memoryview:
        """Return some bytes from `at` on; none at the end. Raises Aborted."""
        with self._changed:
            while self._filled <= at and not self._whole and not self.broken:
                self._changed.wait()
            if not self._whole and self.broken:
                raise Aborted
            return memoryview(self.data)[at : min(self._filled, at + most)]


class Aborted(Exception):
    """The piece did not come."""


class Item:
    """A piece that waits to be sent. Without a buffer, its bytes are on the disk."""

    def __init__(
        self, round_: int, piece: int, route: Sequence[int], buffer: Optional[Buffer], over: Callable[[], None]
    ) -> None:
        self.round = round_
        self.piece = piece
        self.route = tuple(route)
        self.buffer = buffer
        # Called once, with whatever result.
        self.over = over


class Way(NamedTuple):
    """How pieces go out: `connect` opens a connection to a host, with its number, and the bucket has the rate."""

    connect: Callable[[int, int], Any]
    bucket: Bucket


class Sender:
    """Sends pieces to one other host, one after the other. `load` returns a piece from the disk, or None.

    `report` gets what the lead must know: ["sent", piece, to, connection] and ["unsent", piece, to, reached].
    """

    def __init__(
        self,
        to: int,
        way: Way,
        load: Callable[[int, int], Optional[Buffer]],
        report: Callable[[int, List[Any]], None],
    ) -> None:
        self._to = to
        self._connect, self._bucket = way
        self._load = load
        self._report = report
        self._items: Deque[Item] = collections.deque()
        self._changed = threading.Condition()
        self._closed = False
        # The host could not be reached, so the lead sends nothing to it through this one any more.
        self._dead = False
        self._peer: Any = None
        self._serial = 0
        threading.Thread(target=self._run, daemon=True).start()

    def put(self, item: Item) -> None:
        with self._changed:
            closed = self._closed
            if not closed:
                self._items.append(item)
                self._changed.notify_all()
        if item.buffer is not None:
            item.buffer.watch(self._wake)
            # It may have begun before this one watched.
            self._wake()
        if closed:
            self._report(item.round, ["unsent", item.piece, self._to, False])
            item.over()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _next(self) -> Optional[Item]:
        """Return the next piece to send: one that is complete, else one that has begun to come. None: wait.

        A piece whose source is slow must not hold up those that are here.
        """
        begun = None
        for item in self._items:
            if self._closed or item.buffer is None or item.buffer.ended:
                return item
            if begun is None and item.buffer.begun:
                begun = item
        return begun

    def trim(self) -> None:
        """Drop bytes from memory that are on the disk, of pieces that must wait."""
        with self._changed:
            for place, item in enumerate(self._items):
                if place >= KEEP and item.buffer is not None and item.buffer.stored:
                    item.buffer = None

    def close(self) -> None:
        """Send nothing more. What still waits is reported as not sent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            peer = self._peer
        if peer is not None:
            tls.hang_up(peer)

    def _run(self) -> None:
        while True:
            with self._changed:
                item = self._next()
                while item is None and not (self._closed and not self._items):
                    self._changed.wait()
                    item = self._next()
                if item is None:
                    break
                self._items.remove(item)
            try:
                self._pass(item)
            finally:
                item.over()
        self._drop()

    def _pass(self, item: Item) -> None:
        buffer = item.buffer or (None if self._closed else self._load(item.round, item.piece))
        reached = True
        if buffer is not None and not buffer.broken:
            for attempt in range(TRIES):
                if self._closed or self._dead:
                    reached = False
                    break
                try:
                    self._send(item, buffer)
                    self._report(item.round, ["sent", item.piece, self._to, self._serial])
                    return
                except Aborted:
                    # The frame cannot be completed, so its connection must end.
                    self._drop()
                    break
                except (OSError, ValueError, wire.Broken):
                    self._drop()
                    reached = False
                    if attempt + 1 < TRIES:
                        time.sleep(0.2)
            if not reached:
                self._dead = True
        self._report(item.round, ["unsent", item.piece, self._to, reached])

    def _send(self, item: Item, buffer: Buffer) -> None:
        if self._peer is None:
            self._serial += 1
            peer = self._connect(self._to, self._serial)
            with self._changed:
                self._peer = peer
                if self._closed:
                    tls.hang_up(peer)
        peer = self._peer
        chunk = buffer.wait(0, self._bucket.unit)
        wire.send(
            peer,
            {
                "round": item.round,
                "piece": item.piece,
                "size": buffer.size,
                "sums": buffer.parts,
                "route": item.route[1:],
            },
        )
        at = 0
        while chunk:
            self._bucket.take(len(chunk))
            peer.sendall(chunk)
            at += len(chunk)
            # At the end this waits for the checksums.
            chunk = buffer.wait(at, self._bucket.unit)
        peer.sendall(buffer.sums)

    def _drop(self) -> None:
        with self._changed:
            peer, self._peer = self._peer, None
        if peer is not None:
            with contextlib.suppress(OSError):
                peer.close()
