"""Fetches files of one host over one connection, and stores each when it is whole and its digest is right."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct, field

from kit.errors import StepError
from kit.model.answer import MOST, OddAnswer, answer_of, decode
from kit.model.results import Pulled, Wanted
from kit.remote.results import far
from kit.remote.results.far import TIMES
from kit.remote.results.store import RefusedError, Store
from kit.remote.ssh.transport import Completed, Live, LiveTransport

_HEAD = struct.Struct(">cI")
_CHUNK = 1 << 20
_EVERY_S = 0.2

# The longest frame. The reader sends a quarter of that.
_MOST_FRAME = 1 << 20
_MOST_NOTE = 4096
_MOST_ERRORS = 1 << 16
# A file may have grown after it was listed: to twice its size, and by this many bytes.
_GROWTH = 1 << 30
# What a host says of a file that does not exist: text of Linux.
_GONE = "No such file or directory"


class Header(Struct, frozen=True, kw_only=True):
    """What comes before the bytes of a file: the first byte that comes, its size, time and mode. Or an error."""

    at: int = 0
    size: int = 0
    time: int = 0
    mode: int = 0o644
    error: str | None = None


class _Trailer(Struct, frozen=True, kw_only=True):
    """What comes after the bytes of a file."""

    sha256: str = ""
    changed: bool = False
    error: str | None = None


# Stores a whole file: its part, and what is wanted.
Keep = Callable[[Path, Wanted, Header], None]
Progress = Callable[[int, int], None]


class _File(Struct):
    """A file that arrives. `digest` covers all bytes in the part."""

    wanted: Wanted
    part: Path
    header: Header
    stream: BinaryIO
    # The bytes that are here.
    at: int
    digest: Any = field(default_factory=hashlib.sha256)


class Fetch:
    """Takes the frames that the reader sends for these files, in their order. Raises HomeError and StepError."""

    def __init__(
        self, store: Store, host: str, files: Sequence[Wanted], keep: Keep, progress: Progress, *, prefix: str = ""
    ) -> None:
        self._store, self._host, self._keep, self._progress = store, host, keep, progress
        self._files, self._prefix = files, prefix
        self._total = sum(wanted.entry.size for wanted in files)
        self._done = 0
        self._at = 0
        self._rest = b""
        self._file: _File | None = None
        self._reported = 0.0
        self.fetched = 0
        self.size = 0
        self.changed: list[str] = []
        self.skipped: dict[str, str] = {}
        self.failed: dict[str, str] = {}

    @property
    def request(self) -> bytes:
        """What the reader reads: each path, how much of it is here and of which version, and the most that comes."""
        rows = []
        for wanted in self._files:
            part = self._part(wanted)
            at = part.stat().st_size if part.exists() else 0
            path = wanted.entry.path.removeprefix(self._prefix)
            rows.append([far.encoded(path), at, wanted.entry.time, _most(wanted)])
        return json.dumps(rows).encode()

    @property
    def complete(self) -> bool:
        return self._at == len(self._files)

    def _part(self, wanted: Wanted) -> Path:
        entry = wanted.entry
        return self._store.part(self._host, entry.path, entry.size, entry.time)

    def take(self, data: bytes) -> None:
        """Take bytes of frames as they come. Raises AnswerError."""
        with answer_of(self._host, "the files that it sends"):
            self._rest += data
            at = 0
            while len(self._rest) - at >= _HEAD.size:
                kind, length = _HEAD.unpack_from(self._rest, at)
                if length > _MOST_FRAME:
                    raise OddAnswer("a frame of an impossible length", self._rest[at : at + _HEAD.size])
                end = at + _HEAD.size + length
                if len(self._rest) < end:
                    break
                self._frame(kind, self._rest[at + _HEAD.size : end])
                at = end
            self._rest = self._rest[at:]

    def _frame(self, kind: bytes, payload: bytes) -> None:
        try:
            if kind == b"D" and self._file is not None:
                self._write(self._file, payload)
            elif kind == b"H" and self._file is None and not self.complete:
                self._begin(decode(payload, Header, most=_MOST_NOTE))
            elif kind == b"E" and self._file is not None:
                self._end(decode(payload, _Trailer, most=_MOST_NOTE))
            else:
                raise OddAnswer("it sent something that kit does not expect", kind + payload)
        except OSError as error:
            raise self._store.failed(error) from error

    def _begin(self, header: Header) -> None:
        wanted = self._files[self._at]
        if header.error is not None:
            self._skip(wanted, header.error)
            self._count(wanted.entry.size)
            return
        part = self._part(wanted)
        here = part.stat().st_size if part.exists() else 0
        if header.at not in (0, here) or not header.at <= header.size <= MOST:
            raise OddAnswer(f"the file begins at byte {header.at} of {header.size}")
        if not TIMES[0] <= header.time <= TIMES[1]:
            raise OddAnswer("the time of a file is out of range")
        if not 0 <= header.mode <= 0o777:
            raise OddAnswer("the permissions of a file are out of range")
        if header.size > _most(wanted):
            raise OddAnswer("a file is larger than kit asked for")
        stream = part.open("r+b" if header.at else "wb")
        file = _File(wanted=wanted, part=part, header=header, stream=stream, at=header.at)
        self._file = file
        left = header.at
        while left and (data := stream.read(min(_CHUNK, left))):
            file.digest.update(data)
            left -= len(data)
        stream.truncate(header.at)
        self._count(header.at)

    def _write(self, file: _File, payload: bytes) -> None:
        file.at += len(payload)
        if file.at > file.header.size:
            raise OddAnswer("it sent more bytes than the file has")
        file.stream.write(payload)
        file.digest.update(payload)
        self.size += len(payload)
        self._count(len(payload))

    def _skip(self, wanted: Wanted, why: str) -> None:
        # A run that lives may have removed the file after kit listed it. Then there is nothing to bring.
        reasons = self.skipped if why == _GONE else self.failed
        reasons[wanted.entry.path] = why[:_MOST_NOTE]
        self._at += 1

    def _end(self, trailer: _Trailer) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        file.stream.close()
        path = file.wanted.entry.path
        if trailer.error is not None:
            self._skip(file.wanted, trailer.error)
            return
        self._at += 1
        if trailer.sha256 != file.digest.hexdigest():
            file.part.unlink()
            raise StepError(f"{path} did not arrive whole", hint="run the same again", host=self._host)
        try:
            self._keep(file.part, file.wanted, file.header)
        except RefusedError as error:
            self.failed[path] = error.message
            return
        if trailer.changed:
            self.changed.append(path)
        self.fetched += 1

    def _count(self, size: int) -> None:
        self._done += size
        now = time.monotonic()
        if now - self._reported > _EVERY_S:
            self._reported = now
            self._progress(self._done, self._total)

    def close(self) -> None:
        """Keep the part of a file that did not arrive whole. The next pull continues it."""
        if self._file is not None:
            self._file.stream.close()


def _most(wanted: Wanted) -> int:
    return 2 * wanted.entry.size + _GROWTH


def fetch(
    transport: LiveTransport,
    top: str,
    below: str,
    files: Sequence[Wanted],
    store: Store,
    *,
    keep: Keep,
    progress: Progress,
    command: far.Command = far.argv,
    prefix: str = "",
) -> Pulled:
    """Fetch these files of TOP/BELOW. `command` runs the reader. The paths begin with `prefix`, which is not there.

    Raises UnreachableError or StepError. What has arrived stays, and the next fetch continues there.
    """
    host = transport.host.name
    receiver = Fetch(store, host, files, keep, progress, prefix=prefix)
    errors = bytearray()

    def complain(data: bytes) -> None:
        errors.extend(data)
        del errors[:-_MOST_ERRORS]

    live = Live(out=receiver.take, err=complain, stdin=lambda: io.BytesIO(receiver.request))
    try:
        code = transport.stream(command("send", top, below), live)
    finally:
        receiver.close()
    if code != 0 or not receiver.complete:
        done = Completed(code=code, stdout=b"", stderr=bytes(errors))
        raise far.failed(done, transport, "its files could not be read")
    return Pulled(
        host=host,
        files=receiver.fetched,
        size=receiver.size,
        changed=tuple(receiver.changed),
        skipped=receiver.skipped,
        failed=receiver.failed,
    )
