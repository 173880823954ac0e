"""Reads pieces from the source: again while the source may come back, in parts that take less than a second, many small
files at once, and at the rate that a staging may use.
"""

import concurrent.futures
import hashlib
import time
from typing import Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from kitdata import manifest
from kitdata.passing import Bucket, Buffer
from kitdata.plan import Piece
from kitdata.source import Entry, Source, SourceError, shown

# For how many seconds a source that does not answer gets another try, and the waits between tries.
PATIENCE_S = 30.0
FIRST_WAIT_S, MOST_WAIT_S = 0.25, 8.0
# One read of a large file: as many bytes as come in about this time.
FIRST_UNIT, LEAST_UNIT = 1 << 20, 1 << 18
QUICK_S, SLOW_S = 0.2, 0.8


Data = Union[bytes, memoryview]


class Changed(Exception):
    """A file is not what the list says. `entry` is what the source says now; None if the file is gone."""

    def __init__(self, number: int, entry: Optional[Entry]) -> None:
        super().__init__()
        self.number = number
        self.entry = entry


class Rules(NamedTuple):
    """How to read. `parallel`: small files at once. `counted` gets the bytes of each read, `stopped` ends all tries."""

    bucket: Bucket
    parallel: int
    counted: Callable[[int], None]
    stopped: Callable[[], bool]
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


class Reader:
    """Reads from one source, for several threads at once."""

    def __init__(self, source: Source, rules: Rules) -> None:
        self._source = source
        self._rules = rules
        self._unit = FIRST_UNIT
        self._pool = concurrent.futures.ThreadPoolExecutor(rules.parallel) if rules.parallel > 1 else None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def fill(self, entries: Sequence[Entry], piece: Piece, buffer: Buffer) -> None:
        """Put the bytes of a piece into the buffer as they come. Raises Changed and SourceError, and aborts it then."""
        try:
            sums = []
            at = 0
            for number, digest, chunks in self._extents(entries, piece):
                entry = entries[number]
                sha, md5 = hashlib.sha256(), new_md5()
                whole = bool(entry.md5) and manifest.extents(entry.size) == 1
                for chunk in chunks:
                    buffer.put(at, chunk)
                    at += len(chunk)
                    if digest is None:
                        sha.update(chunk)
                        if whole:
                            md5.update(chunk)
                if digest is None and whole:
                    self._compare(entry, number, md5.hexdigest(), [sha.digest()])
                sums.append(digest or sha.digest())
            buffer.finish(b"".join(sums))
        except BaseException:
            buffer.abort()
            raise

    def _extents(self, entries: Sequence[Entry], piece: Piece) -> Iterator[Tuple[int, Optional[bytes], Iterator[Data]]]:
        """Yield (number of file, SHA-256 if it is known, the bytes) of each extent, in the order of the piece."""
        together = self._together(entries, piece)
        if together is not None:
            at = 0
            for number, _ in piece.parts:
                end = at + entries[number].size
                yield number, None, iter((together[at:end],))
                at = end
            return
        if self._pool is None or len(piece.parts) == 1:
            for number, part in piece.parts:
                yield number, None, self._chunks(entries[number], number, part)
            return
        jobs = [self._pool.submit(self._small, entries[number], number, part) for number, part in piece.parts]
        try:
            for (number, _), job in zip(piece.parts, jobs):
                digest, chunks = job.result()
                yield number, digest, iter(chunks)
        finally:
            for job in jobs:
                job.cancel()

    def _together(self, entries: Sequence[Entry], piece: Piece) -> Optional[memoryview]:
        """Return the bytes of a piece of whole files where the source gives them at once, or None.

        If it fails, each file is read alone: that says which one is the cause, and tries again.
        """
        files = [entries[number] for number, _ in piece.parts]
        if len(files) == 1 or any(manifest.extents(file.size) > 1 for file in files):
            return None
        try:
            data = self._source.files(files)
        except SourceError:
            return None
        if data is None or len(data) != piece.size:
            return None
        self._rules.bucket.take(len(data))
        self._rules.counted(len(data))
        return memoryview(data)

    def _small(self, entry: Entry, number: int, part: int) -> Tuple[bytes, List[bytes]]:
        chunks = list(self._chunks(entry, number, part))
        data = b"".join(chunks)
        digest = hashlib.sha256(data).digest()
        if entry.md5 and len(data) == entry.size:
            self._compare(entry, number, new_md5(data).hexdigest(), [digest])
        return digest, chunks

    def _compare(self, entry: Entry, number: int, md5: str, sums: Sequence[bytes]) -> None:
        """Raise Changed if a whole file differs from the MD5 of its source, unless that is not an MD5."""
        if self._source.compares and md5 != entry.md5.lower():
            now = self._now(entry)
            if now is None or not manifest.same(now, entry) or not self.is_no_md5(entry, number, sums):
                raise Changed(number, now)

    def is_no_md5(self, entry: Entry, number: int, sums: Sequence[bytes]) -> bool:
        """Return whether the MD5 from which this file differs is not an MD5 but an ETag.

        `sums` are the SHA-256 of its extents. If the source sends the same bytes again, they are right, and this host
        compares no other MD5 of this source either. Raises Changed and SourceError.
        """
        if not self._source.etags:
            return False
        for part, digest in enumerate(sums):
            again = hashlib.sha256()
            for chunk in self._chunks(entry, number, part):
                again.update(chunk)
            if again.digest() != digest:
                return False
        self._source.compares = False
        return True

    def _chunks(self, entry: Entry, number: int, part: int) -> Iterator[bytes]:
        offset, length = manifest.extent(entry.size, part)
        bucket = self._rules.bucket
        end = offset + length
        while offset < end:
            count = min(end - offset, bucket.unit if bucket.rate else self._unit)
            bucket.take(count)
            start = self._rules.clock()
            yield self._read(entry, number, offset, count)
            self._adapt(count, self._rules.clock() - start)
            offset += count

    def _adapt(self, count: int, seconds: float) -> None:
        """Read more at once where that is quick, so that the time of a request matters less; or else less."""
        if seconds < QUICK_S and count == self._unit:
            self._unit = min(2 * self._unit, manifest.EXTENT)
        elif seconds > SLOW_S:
            self._unit = max(min(self._unit, count) // 2, LEAST_UNIT)

    def _read(self, entry: Entry, number: int, offset: int, length: int) -> bytes:
        end, wait = self._rules.clock() + PATIENCE_S, FIRST_WAIT_S
        while True:
            try:
                data = self._source.read(entry, offset, length)
                if len(data) != length:
                    raise SourceError("source-changed", "%s is shorter than it was" % shown(entry.path))
                self._rules.counted(length)
                return data
            except SourceError as error:
                if error.kind in ("source-changed", "source-missing"):
                    raise Changed(number, self._now(entry)) from None
                if error.kind != "source-lost" or self._rules.stopped() or self._rules.clock() + wait > end:
                    raise
            self._rules.sleep(wait)
            wait = min(2 * wait, MOST_WAIT_S)

    def _now(self, entry: Entry) -> Optional[Entry]:
        try:
            return self._source.entry(entry.path)
        except SourceError as error:
            if error.kind in ("source-changed", "source-missing"):
                return None
            raise


def new_md5(data: bytes = b"") -> "hashlib._Hash":
    """Return an MD5, which object stores list. It is not for security, and a FIPS build of Python must know that."""
    try:
        return hashlib.md5(data, usedforsecurity=False)  # type: ignore[call-arg,unused-ignore]
    except TypeError:
        return hashlib.md5(data)  # noqa: S324  (Python before 3.9)
