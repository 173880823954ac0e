"""Reads pieces from the source, again while it may come back, and at the rate that a staging may use."""

import hashlib
import time
from typing import Callable, List, NamedTuple, Optional, Sequence

from kitdata import manifest
from kitdata.passing import Bucket, Buffer
from kitdata.plan import Piece
from kitdata.source import Entry, Source, SourceError, shown

# For how many seconds a source that does not answer gets another try, and the waits between tries.
PATIENCE_S = 30.0
FIRST_WAIT_S, MOST_WAIT_S = 0.25, 8.0


class Changed(Exception):
    """A file is not what the list says. `entry` is what the source says now; None if the file is gone."""

    def __init__(self, number: int, entry: Optional[Entry]) -> None:
        super().__init__()
        self.number = number
        self.entry = entry


class Reader(NamedTuple):
    """Reads from one source. `counted` gets the number of bytes of each read. `stopped` ends all tries."""

    source: Source
    bucket: Bucket
    counted: Callable[[int], None]
    stopped: Callable[[], bool]
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def piece(self, entries: Sequence[Entry], piece: Piece) -> Buffer:
        """Return a whole piece with its checksums. Raises Changed and SourceError."""
        chunks: List[bytes] = []
        sums: List[bytes] = []
        for number, part in piece.parts:
            entry = entries[number]
            offset, length = manifest.extent(entry.size, part)
            data = self._extent(entries[number], number, offset, length)
            if entry.md5 and length == entry.size and _md5(data) != entry.md5.lower():
                raise Changed(number, self._now(entry))
            chunks.append(data)
            sums.append(hashlib.sha256(data).digest())
        buffer = Buffer(piece.size, len(sums), chunks[0] if len(chunks) == 1 else b"".join(chunks))
        buffer.finish(b"".join(sums))
        return buffer

    def _extent(self, entry: Entry, number: int, offset: int, length: int) -> bytes:
        if not length:
            return b""
        if not self.bucket.rate:
            return self._read(entry, number, offset, length)
        chunks = []
        for at in range(0, length, self.bucket.unit):
            count = min(self.bucket.unit, length - at)
            self.bucket.take(count)
            chunks.append(self._read(entry, number, offset + at, count))
        return b"".join(chunks)

    def _read(self, entry: Entry, number: int, offset: int, length: int) -> bytes:
        end, wait = self.clock() + PATIENCE_S, FIRST_WAIT_S
        while True:
            try:
                data = self.source.read(entry, offset, length)
                if len(data) != length:
                    raise SourceError("source-changed", "%s is shorter than it was" % shown(entry.path))
                self.counted(length)
                return data
            except SourceError as error:
                if error.kind in ("source-changed", "source-missing"):
                    raise Changed(number, self._now(entry)) from None
                if error.kind != "source-lost" or self.stopped() or self.clock() + wait > end:
                    raise
            self.sleep(wait)
            wait = min(2 * wait, MOST_WAIT_S)

    def _now(self, entry: Entry) -> Optional[Entry]:
        try:
            return self.source.entry(entry.path)
        except SourceError as error:
            if error.kind in ("source-changed", "source-missing"):
                return None
            raise


def _md5(data: bytes) -> str:
    # Not for security: object stores list it. A FIPS build of Python has none, unless it is asked so.
    return new_md5(data).hexdigest()


def new_md5(data: bytes = b"") -> "hashlib._Hash":
    try:
        return hashlib.md5(data, usedforsecurity=False)  # type: ignore[call-arg,unused-ignore]
    except TypeError:
        return hashlib.md5(data)  # noqa: S324  (Python before 3.9)
