"""Fetches files of one host over one connection, and stores each when it is whole and its digest is right."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from kit.errors import StepError
from kit.model.results import Pulled, Wanted
from kit.remote.results import far
from kit.remote.results.store import Store
from kit.remote.ssh.transport import Completed, Live, LiveTransport

_HEAD = struct.Struct(">cI")
_CHUNK = 1 << 20
_EVERY_S = 0.2

# Stores a whole file: its part, and what is wanted.
Keep = Callable[[Path, Wanted, Mapping[str, Any]], None]
Progress = Callable[[int, int], None]


@dataclass
class _File:
    """A file that arrives. `digest` covers all bytes in the part."""

    wanted: Wanted
    part: Path
    header: Mapping[str, Any]
    stream: BinaryIO
    digest: Any = field(default_factory=hashlib.sha256)


class Fetch:
    """Takes the frames that reader.py sends for these files, in their order. Raises HomeError and StepError."""

    def __init__(self, store: Store, host: str, files: Sequence[Wanted], keep: Keep, progress: Progress) -> None:
        self._store, self._host, self._keep, self._progress = store, host, keep, progress
        self._files = files
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

    @property
    def request(self) -> bytes:
        """What reader.py reads: each path, how much of it is here, and of which version."""
        rows = []
        for wanted in self._files:
            part = self._part(wanted)
            at = part.stat().st_size if part.exists() else 0
            rows.append([far.encoded(wanted.entry.path), at, wanted.entry.time])
        return json.dumps(rows).encode()

    @property
    def complete(self) -> bool:
        return self._at == len(self._files)

    def _part(self, wanted: Wanted) -> Path:
        entry = wanted.entry
        return self._store.part(self._host, entry.path, entry.size, entry.time)

    def take(self, data: bytes) -> None:
        self._rest += data
        at = 0
        while len(self._rest) - at >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._rest, at)
            end = at + _HEAD.size + length
            if len(self._rest) < end:
                break
            self._frame(kind, self._rest[at + _HEAD.size : end])
            at = end
        self._rest = self._rest[at:]

    def _frame(self, kind: bytes, payload: bytes) -> None:
        try:
            if kind == b"D" and self._file is not None:
                self._file.stream.write(payload)
                self._file.digest.update(payload)
                self.size += len(payload)
                self._count(len(payload))
            elif kind == b"H" and self._file is None and not self.complete:
                self._begin(json.loads(payload))
            elif kind == b"E" and self._file is not None:
                self._end(json.loads(payload))
            else:
                raise StepError("it sent something that kit does not expect", host=self._host)
        except OSError as error:
            raise self._store.failed(error) from error

    def _begin(self, header: Mapping[str, Any]) -> None:
        wanted = self._files[self._at]
        if "error" in header:
            self.skipped[wanted.entry.path] = str(header["error"])
            self._at += 1
            self._count(wanted.entry.size)
            return
        part, here = self._part(wanted), int(header["at"])
        stream = part.open("r+b" if here else "wb")
        file = _File(wanted=wanted, part=part, header=header, stream=stream)
        left = here
        while left and (data := stream.read(min(_CHUNK, left))):
            file.digest.update(data)
            left -= len(data)
        stream.truncate(here)
        self._file = file
        self._count(here)

    def _end(self, trailer: Mapping[str, Any]) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        file.stream.close()
        path = file.wanted.entry.path
        self._at += 1
        if "error" in trailer:
            self.skipped[path] = str(trailer["error"])
            return
        if trailer["sha256"] != file.digest.hexdigest():
            file.part.unlink()
            raise StepError(f"{path} did not arrive whole", hint="run the same again", host=self._host)
        if trailer["changed"]:
            self.changed.append(path)
        self._keep(file.part, file.wanted, file.header)
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
) -> Pulled:
    """Fetch these files of TOP/BELOW. `command` runs reader.py.

    Raises UnreachableError or StepError. What has arrived stays, and the next fetch continues there.
    """
    host = transport.host.name
    receiver = Fetch(store, host, files, keep, progress)
    errors = bytearray()
    live = Live(out=receiver.take, err=errors.extend, stdin=lambda: io.BytesIO(receiver.request))
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
    )
