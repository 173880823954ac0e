"""One host's part in a staging: it carries out the lead's orders and reports what comes of them.

The lead opens two connections, one for orders and one for reports. Other members open connections for pieces. Orders
are JSON objects with one key; kitdata.lead sends them. A report is a list: a word and its values.
"""

import contextlib
import itertools
import queue
import threading
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from kitdata import disk, manifest, plan, reading, tls, wire
from kitdata.pieces import Pieces, Round, Setting
from kitdata.plan import Piece
from kitdata.source import Entry, Source, SourceError, Version, arranged

# Reports go at least this often: the lead sees by them that this host lives.
BEAT_S = 0.5
# A lead that is silent for this long is gone. It sends something every two seconds.
SILENCE_S = 15.0
# A source with more files sends its list at once: to know its version takes all of the list in memory.
MOST_KNOWN = 1_000_000
# Parts of a list that wait to be sent. A source may list faster than they go out.
AHEAD = 8


class Joining(NamedTuple):
    """What a host gets as it joins: the id of the staging, the address to listen on, and the TLS of both ends."""

    id: str
    address: str
    server: Any
    client: Any


class Member:
    """`open_source` makes the source of a request. `ended` is called once, when the staging is over for this host."""

    def __init__(
        self,
        folder: str,
        joining: Joining,
        open_source: Callable[[Dict[str, Any]], Source],
        ended: Callable[[], None],
    ) -> None:
        self.id = joining.id
        self._disk = disk.Folder(folder)
        self._client = joining.client
        self._open_source = open_source
        self._ended = ended
        self._lock = threading.Lock()
        self._closed = False
        self._reports: queue.Queue[Any] = queue.Queue()
        self._ahead = threading.Semaphore(AHEAD)
        self._members: List[Dict[str, Any]] = []
        self._me = -1
        self._source: Optional[Source] = None
        # The list whose version the lead wanted, unless the source itself knew that.
        self._listed: Optional[Iterable[Entry]] = None
        self._pieces = Pieces(self._disk, self._report, self._start)
        self.led = threading.Event()
        self._listener = tls.Listener(joining.address, joining.server, self._handle)
        self.port = self._listener.port

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def free(self) -> int:
        """Free bytes where the data set is."""
        return self._disk.free()[0]

    def close(self) -> None:
        """End this host's part. What came stays. Every thread of it ends soon."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._listener.close()
        self._pieces.close()
        if self._source is not None:
            self._source.close()
        self._reports.put(None)
        self._ended()

    def _report(self, round_: int, report: List[Any]) -> None:
        self._reports.put((round_, report))

    # Connections

    def _handle(self, peer: Any, hello: Dict[str, Any]) -> None:
        if hello.get("id") != self.id:
            raise wire.Broken("it belongs to another staging")
        role = hello.get("role")
        if role == "reports":
            self._send_reports(peer)
        elif role == "orders":
            self._follow(peer)
        elif role == "pieces":
            self._pieces.receive(peer, wire.integer(hello.get("from")), wire.integer(hello.get("serial")))

    def _send_reports(self, peer: Any) -> None:
        with contextlib.suppress(OSError, ValueError):
            before = (-1, -1)
            ended = False
            while not ended:
                batch, ended = self._batch()
                at = (self._pieces.came, self._pieces.read)
                for frame in wire.frames(batch):
                    peer.sendall(frame)
                for _, report in batch:
                    if report[0] == "list":
                        self._ahead.release()
                if not batch or at != before:
                    wire.send(peer, {"round": 0, "reports": [["at", *at]]})
                before = at
        self.close()

    def _batch(self) -> Tuple[List[Tuple[int, List[Any]]], bool]:
        """Return (the reports that wait, with their rounds; whether they are the last ones)."""
        batch: List[Tuple[int, List[Any]]] = []
        with contextlib.suppress(queue.Empty):
            item = self._reports.get(timeout=BEAT_S)
            while item is not None:
                batch.append(item)
                item = self._reports.get_nowait()
            return batch, True
        return batch, False

    def _follow(self, peer: Any) -> None:
        """Carry out orders until the lead ends the staging, or is gone."""
        peer.settimeout(SILENCE_S)
        self.led.set()
        try:
            while not self._closed:
                for word, value in wire.receive(peer).items():
                    if word == "end":
                        return
                    self._carry_out(word, value)
        except (wire.Broken, OSError):
            # The lead is gone. What came stays for the next staging.
            pass
        finally:
            self.close()

    def _carry_out(self, word: str, value: Any) -> None:
        calls: Dict[str, Callable[[Any], None]] = {
            "begin": self._begin,
            "version": lambda _: self._start(self._version),
            "list": lambda _: self._start(self._list),
            "staged": lambda order: self._start(self._is_staged, order),
            "entries": self._entries,
            "pieces": self._plan,
            "tasks": self._pieces.carry_out,
            "lost": self._pieces.lose,
            "forget": self._forget,
            "check": lambda numbers: self._start(self._check, self._pieces.round, numbers),
            "finish": lambda order: self._start(self._finish, self._pieces.round, order),
        }
        if word in calls:
            self._guarded(calls[word], value)

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        threading.Thread(target=self._guarded, args=(work, *arguments), daemon=True).start()

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        """Report what ends this host's part. Secrets are in no report: of a bug it has only the kind."""
        try:
            work(*arguments)
        except SourceError as error:
            self._report(0, ["failed", error.kind, error.text])
        except OSError as error:
            self._report(0, ["failed", "disk", "its disk failed: %s" % (error.strerror or "unknown error")])
        except Exception as error:
            self._report(0, ["failed", "internal", "its stager failed with %s" % type(error).__name__])

    # Orders

    def _begin(self, value: Dict[str, Any]) -> None:
        self._members, self._me = value["members"], value["me"]
        self._source = self._open_source(value["source"])
        if self._closed:
            self._source.close()
        # While the source is listed: both take seconds for very many files.
        self._start(self._disk.look)
        limit = int(value["limit"])
        self._pieces.begin(Setting(self._me, len(self._members), limit, self._source, self._connect))

    def _connect(self, to: int, serial: int) -> Any:
        hello = {"id": self.id, "role": "pieces", "from": self._me, "serial": serial}
        return tls.connect(self._members[to]["address"], self._members[to]["port"], self._client, hello)

    def _version(self) -> None:
        """Report which version of the source this is, so that a list which all hosts have need not travel."""
        assert self._source is not None
        try:
            version = self._source.version(self._counted)
            if version is None:
                version = self._listed_version(self._source.entries())
        except SourceError as error:
            self._report(0, ["unlisted", error.kind, error.text])
            return
        self._report(0, ["version", *version] if version else ["unknown"])

    def _counted(self, files: int, size: int) -> None:
        self._report(0, ["counted", files, size])

    def _listed_version(self, listing: Iterator[Entry]) -> Optional[Version]:
        """Keep the list, and return its version; None if it has very many files."""
        entries: List[Entry] = []
        size = 0
        last = time.monotonic()
        for entry in listing:
            entries.append(entry)
            if len(entries) > MOST_KNOWN:
                self._listed = itertools.chain(entries, listing)
                return None
            size += entry.size
            if time.monotonic() - last > BEAT_S:
                self._counted(len(entries), size)
                last = time.monotonic()
        self._listed = arranged(entries)
        return manifest.version(self._listed)

    def _list(self) -> None:
        assert self._source is not None
        listed, self._listed = self._listed, None
        rows: List[Any] = []
        size = 0
        last = time.monotonic()
        try:
            for entry in self._source.entries() if listed is None else listed:
                rows.append(list(entry) if entry.md5 else list(entry[:3]))
                size += wire.weight(entry)
                if len(rows) >= wire.BATCH or size > wire.FULL or time.monotonic() - last > BEAT_S:
                    self._report_rows(rows)
                    if self._closed:
                        return
                    rows, size, last = [], 0, time.monotonic()
        except SourceError as error:
            self._report(0, ["unlisted", error.kind, error.text])
            return
        self._report_rows(rows)
        self._report(0, ["listed"])

    def _report_rows(self, rows: List[Any]) -> None:
        """Report a part of the list when few others wait. Nobody takes it from a member that is closed."""
        while not self._ahead.acquire(timeout=1.0):
            if self._closed:
                return
        self._report(0, ["list", rows])

    def _is_staged(self, value: Dict[str, Any]) -> None:
        self._report(0, ["staged", self._disk.is_staged(str(value["id"]), str(value["source"]))])

    def _entries(self, value: Dict[str, Any]) -> None:
        if self._pieces.round.number != value["round"]:
            self._pieces.begin_round(value["round"])
        round_ = self._pieces.round
        round_.entries += manifest.entries_of(value["columns"])
        if not value["more"]:
            self._start(self._compare, round_)

    def _compare(self, round_: Round) -> None:
        """Report what of the list is here, and the room that is left."""
        have = self._disk.expect(round_.entries)
        free, inodes = self._disk.free()
        parts = [[number, sorted(some)] for number, some in have.parts.items()]
        for at in range(0, len(parts), wire.BATCH):
            self._report(round_.number, ["parts", parts[at : at + wire.BATCH]])
        whole = wire.digits(have.whole, len(round_.entries))
        value = {"whole": whole, "free": free, "inodes": inodes, "gone": self._disk.gone()}
        self._report(round_.number, ["have", value])

    def _plan(self, value: Dict[str, Any]) -> None:
        round_ = self._pieces.round
        for runs, need, have in value["rows"]:
            pairs = plan.parts_of(runs)
            size = sum(manifest.extent(round_.entries[number].size, part)[1] for number, part in pairs)
            round_.pieces.append(Piece(pairs, size, need, have))
        if not value["more"]:
            self._pieces.ready()

    def _forget(self, numbers: List[int]) -> None:
        for number in numbers:
            count = manifest.extents(self._pieces.round.entries[number].size)
            self._disk.forget([(number, part) for part in range(count)])

    def _check(self, round_: Round, numbers: List[int]) -> None:
        """Compare whole files with what the source says of them now: size, time, and MD5 where it has one."""
        bad: List[Any] = []
        for number in numbers:
            entry = round_.entries[number]
            now = self._now(entry)
            if now is None or (now.size, now.mtime) != (entry.size, entry.mtime):
                bad.append([number, list(now) if now is not None else None])
            elif now.md5 and self._source is not None and self._source.compares:
                digest = reading.new_md5()
                for part in range(manifest.extents(entry.size)):
                    digest.update(self._disk.extent(number, part))
                if digest.hexdigest() != now.md5.lower() and not self._pieces.is_no_md5(entry, number):
                    bad.append([number, list(entry)])
        self._report(round_.number, ["checked", bad])

    def _now(self, entry: Entry) -> Optional[Entry]:
        """Return what the source says of a file; None if it is gone. A source that does not answer changes nothing."""
        assert self._source is not None
        try:
            return entry if entry.md5 else self._source.entry(entry.path)
        except SourceError as error:
            return None if error.kind in ("source-changed", "source-missing") else entry

    def _finish(self, round_: Round, value: Dict[str, Any]) -> None:
        numbers = range(len(round_.entries)) if value["mine"] is None else value["mine"]
        summary = dict(value["summary"])
        summary["files"] = len(numbers)
        summary["bytes"] = sum(round_.entries[number].size for number in numbers)
        try:
            self._disk.finish(numbers, summary)
        except disk.Incomplete as lacking:
            self._report(round_.number, ["unfinished", lacking.number])
            return
        self._report(round_.number, ["finished"])
