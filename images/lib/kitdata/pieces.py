"""What one host does with pieces: reads them from the source, takes them from others, writes them, passes them on."""

import contextlib
import hashlib
import queue
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from kitdata import disk, manifest, reading, tls, wire
from kitdata.passing import Bucket, Buffer, Item, Sender, Way
from kitdata.plan import Piece
from kitdata.source import Entry, Source, SourceError

# Pieces that this host reads at once, and those that wait to be checked and written.
READERS, WRITERS, WAITING = 4, 2, 3
# Pieces that were read here and that are not yet written, and on their way: so that reading and passing on go together.
AHEAD = 8
# How long a piece waits for its plan, which comes from the lead.
PLAN_S = 15.0

Report = Callable[[int, List[Any]], None]


class Round:
    """One plan: its list of files, its pieces, and what of it is here."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.entries: List[Entry] = []
        self.pieces: List[Piece] = []
        self.ready = False


class Setting(NamedTuple):
    """What the lead says at the beginning. `connect` opens a connection to a member, with the number of it there."""

    me: int
    hosts: int
    limit: int
    source: Source
    connect: Callable[[int, int], Any]


class Pieces:
    """The pieces of one staging on one host. `guarded` runs a function in a thread, and reports what it raises."""

    def __init__(self, folder: disk.Folder, report: Report, guarded: Callable[..., None]) -> None:
        self._disk = folder
        self._report = report
        self._guarded = guarded
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._closed = False
        self._tasks: queue.Queue[Any] = queue.Queue()
        self._writes: queue.Queue[Any] = queue.Queue(WAITING)
        self._room = threading.Semaphore(AHEAD)
        self._senders: Dict[int, Sender] = {}
        self._incoming: Dict[Any, int] = {}
        self._gone: List[int] = []
        # Pieces that are being written now, or read from the disk.
        self._busy = 0
        self._setting: Optional[Setting] = None
        self._reader: Optional[reading.Reader] = None
        self.round = Round(0)
        # Bytes that came to this host, and bytes that it read from the source.
        self.came, self.read = 0, 0

    def begin(self, setting: Setting) -> None:
        """Start the threads. Must come before everything else."""
        self._setting = setting
        self._send_bucket = Bucket(setting.limit)
        rules = reading.Rules(Bucket(setting.limit), setting.source.parallel, self._count_read, lambda: self._closed)
        self._reader = reading.Reader(setting.source, rules)
        for work, count in ((self._read_tasks, READERS), (self._write_pieces, WRITERS)):
            for _ in range(count):
                self._guarded(work)

    def close(self) -> None:
        """End all threads soon, and all connections for pieces."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            senders = list(self._senders.values())
        for sender in senders:
            sender.close()
        for _ in range(READERS):
            self._tasks.put(None)
        if self._reader is not None:
            self._reader.close()
        # A writer may wait for room in a queue that nobody empties any more.
        threading.Thread(target=self._end_writers, daemon=True).start()

    def _end_writers(self) -> None:
        for _ in range(WRITERS):
            self._writes.put(None)

    def begin_round(self, number: int) -> None:
        """Another list of files follows. Pieces of an earlier plan no longer matter, and none is in use."""
        with self._changed:
            self.round = Round(number)
            self._changed.wait_for(lambda: not self._busy)

    def ready(self) -> None:
        """The plan of the round is complete."""
        with self._changed:
            self.round.ready = True
            self._changed.notify_all()

    def carry_out(self, tasks: List[Any]) -> None:
        """Read pieces, or send those that are here: [number, whether to read it, way] each."""
        for piece, read, route in tasks:
            if read:
                self._tasks.put((self.round, piece, route))
            else:
                self._pass(self.round, piece, route, None, self._over(self.round, piece))

    def lose(self, hosts: List[int]) -> None:
        """Hosts are out: end all connections with them."""
        with self._lock:
            self._gone += hosts
            senders = [self._senders[host] for host in hosts if host in self._senders]
            peers = [peer for peer, host in self._incoming.items() if host in hosts]
        for sender in senders:
            sender.close()
        for peer in peers:
            tls.hang_up(peer)

    def _over(self, round_: Round, piece: int) -> Callable[[], None]:
        def over() -> None:
            self._report(round_.number, ["over", piece])

        return over

    def _read_tasks(self) -> None:
        while True:
            task = self._tasks.get()
            if task is None:
                return
            self._read_piece(*task)

    def _read_piece(self, round_: Round, number: int, route: List[int]) -> None:
        """Read a piece, and let it be sent and written. The next one can be read meanwhile.

        It passes on when all of it is here. All hosts share the source, so its bytes come slowly, and a connection that
        waits for them would hold up what comes from other hosts at the full rate.
        """
        assert self._setting is not None
        assert self._reader is not None
        piece = round_.pieces[number]
        buffer = Buffer(piece.size, len(piece.parts))
        while not self._room.acquire(timeout=1.0):
            if self._closed:
                return
        try:
            self._reader.fill(round_.entries, piece, buffer)
        except (reading.Changed, SourceError) as error:
            self._room.release()
            self._report(round_.number, _unread(number, error))
            self._report(round_.number, ["over", number])
            return
        keep = self._lacks(piece)
        ended = _All(bool(route) + keep, self._room.release)
        if route:
            self._pass(round_, number, route, buffer, ended.one)
        self._report(round_.number, ["over", number])
        if keep:
            self._writes.put((round_, number, buffer, None, ended.one))

    def _lacks(self, piece: Piece) -> bool:
        """Return whether this host must keep a piece that it reads: also one that it had, and that was wrong."""
        assert self._setting is not None
        me = 1 << self._setting.me
        return bool(piece.need & me) or (bool(piece.have & me) and not self._disk.has(piece.parts))

    @contextlib.contextmanager
    def _using(self, round_: int) -> Iterator[Optional[Round]]:
        """Let no other round begin meanwhile, whose list has other numbers. None if one has begun."""
        with self._changed:
            current = self.round if self.round.number == round_ else None
            self._busy += 1
        try:
            yield current
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def is_no_md5(self, entry: Entry, number: int) -> bool:
        """Return whether the MD5 from which a whole file differs here is not an MD5 (Reader.is_no_md5)."""
        assert self._reader is not None
        sums = self._disk.sums([(number, part) for part in range(manifest.extents(entry.size))])
        try:
            return self._reader.is_no_md5(entry, number, sums)
        except (reading.Changed, SourceError):
            return False

    def _count_read(self, count: int) -> None:
        with self._lock:
            self.read += count

    def _pass(
        self, round_: Round, piece: int, route: List[int], buffer: Optional[Buffer], over: Callable[[], None]
    ) -> None:
        with self._lock:
            sender = self._senders.get(route[0])
            if sender is None and not self._closed and route[0] not in self._gone:
                sender = Sender(route[0], self._link(), self._load, self._report)
                self._senders[route[0]] = sender
        if sender is None:
            self._report(round_.number, ["unsent", piece, route[0], False])
            over()
        else:
            sender.put(Item(round_.number, piece, route, buffer, over))

    def _link(self) -> Way:
        assert self._setting is not None
        return Way(self._setting.connect, self._send_bucket)

    def _load(self, round_: int, number: int) -> Optional[Buffer]:
        """Return a piece from this host's disk; None if it is not what it was, which the lead hears."""
        with self._using(round_) as current:
            if current is None:
                return None
            parts = current.pieces[number].parts
            wrong = []
            chunks = []
            sums = self._disk.sums(parts)
            for part, expected in zip(parts, sums):
                try:
                    data = self._disk.extent(*part)
                except OSError:
                    data = b""
                if hashlib.sha256(data).digest() != expected:
                    wrong.append(part)
                chunks.append(data)
            if wrong:
                self._forget(round_, number, wrong)
                return None
        data = b"".join(chunks)
        buffer = Buffer(len(data), len(sums), data)
        buffer.finish(b"".join(sums))
        return buffer

    def _forget(self, round_: int, number: int, wrong: List[Tuple[int, int]]) -> None:
        """Take extents of a piece as not here. A disk that fails meanwhile ends this host's part."""
        try:
            self._disk.forget(wrong)
        except OSError as error:
            self._report(0, ["failed", "disk", "its disk failed: %s" % (error.strerror or "unknown error")])
            return
        self._report(round_, ["rotten", number, wrong[0][0]])

    def receive(self, peer: Any, sender: int, serial: int) -> None:
        """Take pieces from another member until it closes the connection."""
        with self._lock:
            if sender in self._gone:
                return
            self._incoming[peer] = sender
        try:
            while True:
                peer.settimeout(None)
                header = wire.Header(wire.receive(peer, wire.MOST_HELLO), self._setting.hosts if self._setting else 0)
                peer.settimeout(tls.STALL_S)
                self._take(peer, header)
        except Exception:
            # Whatever it was, the lead must know, so that what was on its way comes again.
            self._report(self.round.number, ["broken", sender, serial])
        finally:
            with self._lock:
                self._incoming.pop(peer, None)

    def _take(self, peer: Any, header: wire.Header) -> None:
        round_ = self._expected(header.round)
        buffer = Buffer(header.size, header.sums)
        piece = round_.pieces[header.piece] if round_ is not None and header.piece < len(round_.pieces) else None
        if piece is None or (piece.size, len(piece.parts)) != (header.size, header.sums):
            if header.round >= self.round.number:
                raise wire.Broken("it sent a piece that is not in the plan")
            round_ = None
        if round_ is not None and header.route:
            self._pass(round_, header.piece, header.route, buffer, _nothing)
        try:
            view = memoryview(buffer.data)
            for at in range(0, header.size, wire.CHUNK):
                end = min(at + wire.CHUNK, header.size)
                wire.fill(peer, view[at:end])
                buffer.filled(end)
            sums = bytearray(header.sum_bytes)
            wire.fill(peer, memoryview(sums))
        except BaseException:
            buffer.abort()
            raise
        buffer.finish(bytes(sums))
        if round_ is not None:
            self._writes.put((round_, header.piece, buffer, sums, _nothing))

    def _expected(self, number: int) -> Optional[Round]:
        """Return the round with its plan, which may arrive later than the first piece; None for an earlier one."""
        end = time.monotonic() + PLAN_S
        with self._changed:
            while number > self.round.number or (number == self.round.number and not self.round.ready):
                left = end - time.monotonic()
                if self._closed or left <= 0:
                    raise wire.Broken("it sent a piece before its plan")
                self._changed.wait(left)
            return self.round if number == self.round.number else None

    def _write_pieces(self) -> None:
        while True:
            job = self._writes.get()
            if job is None:
                return
            round_, number, buffer, sums, over = job
            try:
                self._write(round_, number, buffer, sums)
            finally:
                over()
            for sender in list(self._senders.values()):
                sender.trim()

    def _write(self, round_: Round, number: int, buffer: Buffer, sums: Optional[bytes]) -> None:
        """Check a piece, write it and report it. `sums` is None where this host has just made them itself."""
        piece = round_.pieces[number]
        if round_ is not self.round:
            return
        view = memoryview(buffer.data)
        size = manifest.SUM_BYTES
        digests = [buffer.sums[at : at + size] for at in range(0, len(buffer.sums), size)]
        if sums is not None:
            at = 0
            for (file, part), expected in zip(piece.parts, digests):
                length = manifest.extent(round_.entries[file].size, part)[1]
                if hashlib.sha256(view[at : at + length]).digest() != expected:
                    buffer.abort()
                    self._report(round_.number, ["wrong", number, file])
                    return
                at += length
        with self._using(round_.number) as current:
            if current is None:
                return
            if not self._disk.has(piece.parts):
                self._disk.write(piece.parts, view, digests)
                with self._lock:
                    self.came += piece.size
        buffer.stored = True
        self._report(round_.number, ["has", number])


class _All:
    """Calls `over` once, after as many calls of `one` as are expected."""

    def __init__(self, count: int, over: Callable[[], None]) -> None:
        self._count = count
        self._over = over
        self._lock = threading.Lock()

    def one(self) -> None:
        with self._lock:
            self._count -= 1
            last = self._count == 0
        if last:
            self._over()


def _unread(number: int, error: Exception) -> List[Any]:
    """Return the report of a piece that could not be read."""
    if isinstance(error, reading.Changed):
        return ["changed", number, error.number, list(error.entry) if error.entry is not None else None]
    assert isinstance(error, SourceError)
    return ["unread", number, error.kind, error.text]


def _nothing() -> None:
    pass
