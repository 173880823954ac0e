"""A source on the operator's machine: reads go over the order `feed` to the operator's kit, which answers them.

A frame is four bytes of length, a JSON object, and then as many bytes as its "bytes" says. The lead sends {"list": 2},
{"entry": path, "n"}, {"read": path, "offset", "length", "n"} and {"files": [[path, size, mtime]], "n"}. The kit answers
{"packed": 1, "more", "bytes"} with [[path, size, mtime]] as the bytes, by zlib, {"n", "entry": [path, size, mtime] or
null}, {"n", "bytes"}, or {"n", "error", "kind"}. To {"list": 1}, and from an older kit, the list is {"entries": [[path,
size, mtime]], "more"}.

To {"list": 3}, it answers {"counted": [files, bytes]} until it knows the {"version": [id, files, bytes]} of the folder,
and to the next {"list": 2} the list of that version. For very many files, and from an older kit, it answers the list.
"""

import contextlib
import json
import struct
import threading
import time
import zlib
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from kitdata import manifest
from kitdata.source import Counted, Entry, Source, SourceError, Version, shown

_HEAD = struct.Struct(">I")
MOST_HEADER = 1 << 24
_PART = 1 << 16
# The kit takes a header of twice this size.
_MOST_QUESTION = 1 << 15
# How long to wait for the operator's kit: before it feeds, when its connection breaks, and for an answer.
PATIENCE_S = 30.0
_MOST_COUNT = 1 << 60
KINDS = ("source-missing", "source-refused", "source-lost", "source-changed", "source-name")


def write_frame(stream: BinaryIO, header: Dict[str, Any], data: bytes = b"") -> None:
    text = json.dumps(header).encode()
    stream.write(_HEAD.pack(len(text)) + text + data)
    stream.flush()


def read_frame(stream: BinaryIO) -> Optional[Dict[str, Any]]:
    """Return the next header; None at the end of the stream. Raises ValueError."""
    head = stream.read(_HEAD.size)
    if not head or len(head) < _HEAD.size:
        return None
    (length,) = _HEAD.unpack(head)
    if length > MOST_HEADER:
        raise ValueError("a frame of an impossible length")
    value = json.loads(stream.read(length).decode())
    if not isinstance(value, dict):
        raise ValueError("a frame that is no JSON object")
    return value


class Feed(Source):
    """The operator's folder. The kit may connect before or after the first call, and connect again."""

    # Each question takes the time of the operator's line there and back.
    parallel = 16

    def __init__(self, label: str, patience: float = PATIENCE_S) -> None:
        self.label = label
        self._patience = patience
        self._changed = threading.Condition()
        self._stream: Optional[BinaryIO] = None
        self._turn = 0
        self._serial = 0
        self._closed = False
        # What each open question got: None while it waits.
        self._answers: Dict[int, Any] = {}
        self._listed: List[Tuple[Dict[str, Any], bytes]] = []
        # The connection whose list has begun, in answer to the question for a version.
        self._listing: Optional[int] = None
        self._writing = threading.Lock()
        self._heard = 0.0

    def serve(self, stream: BinaryIO) -> None:
        """Use this connection until it ends. Questions that are open then fail."""
        with self._changed:
            self._turn += 1
            turn = self._turn
            self._stream = stream
            self._changed.notify_all()
        try:
            self._follow(stream)
        except (OSError, ValueError):
            pass
        finally:
            with self._changed:
                if turn == self._turn:
                    self._stream = None
                self._changed.notify_all()

    def _follow(self, stream: BinaryIO) -> None:
        while True:
            header = read_frame(stream)
            if header is None:
                return
            count = header.get("bytes", 0)
            if type(count) is not int or not 0 <= count <= manifest.EXTENT:
                raise ValueError("an answer of an impossible length")
            data = self._data(stream, count)
            if len(data) != count:
                return
            with self._changed:
                self._heard = time.monotonic()
                if "entries" in header or "n" not in header:
                    self._listed.append((header, data))
                elif header.get("n") in self._answers:
                    self._answers[header["n"]] = (header, data)
                self._changed.notify_all()

    def _data(self, stream: BinaryIO, count: int) -> bytes:
        """Return the bytes of an answer. On a slow line they may take longer than the patience: each part counts."""
        parts = []
        while count:
            part = stream.read(min(count, _PART))
            if not part:
                break
            self._heard = time.monotonic()
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def version(self, counted: Counted) -> Optional[Version]:
        self._listed = []
        turn = self._ask({"list": 3})
        while True:
            header, data = self._next(turn)
            if "counted" in header:
                counted(*_counts(header["counted"], 2))
            elif "version" in header:
                id_, *counts = _list_of(header["version"], 3)
                if not manifest.is_id(id_):
                    raise _odd()
                return Version(id_, *_counts(counts, 2))
            else:
                self._listed.insert(0, (header, data))
                self._listing = turn
                return None

    def _next(self, turn: int) -> Tuple[Dict[str, Any], bytes]:
        """Return the next part of the list. Raises SourceError."""
        header, data = self._wait(turn, lambda: self._listed.pop(0) if self._listed else None)
        if "error" in header:
            raise _error(header)
        return header, data

    def entries(self) -> Iterator[Entry]:
        turn, self._listing = self._listing, None
        if turn is None:
            self._listed = []
            turn = self._ask({"list": 2})
        more = True
        while more:
            header, data = self._next(turn)
            for row in _unpacked(data) if header.get("packed") else header.get("entries", ()):
                yield _entry(row)
            more = bool(header.get("more"))

    def entry(self, path: str) -> Entry:
        header, _ = self._question({"entry": path})
        if header.get("entry") is None:
            raise SourceError("source-changed", "%s is no longer in %s" % (shown(path), self.label))
        return _entry(header["entry"])

    def read(self, entry: Entry, offset: int, length: int) -> bytes:
        question = {"read": entry.path, "offset": offset, "length": length, "size": entry.size, "mtime": entry.mtime}
        _, data = self._question(question)
        return bytes(data)

    def files(self, entries: Sequence[Entry]) -> bytes:
        # A question for each small file would take most of the time.
        parts = []
        rows = []
        size = 0
        for entry in entries:
            rows.append([entry.path, entry.size, entry.mtime])
            size += len(json.dumps(rows[-1]))
            if size > _MOST_QUESTION:
                parts.append(self._files(rows))
                rows, size = [], 0
        parts.append(self._files(rows))
        return b"".join(parts)

    def _files(self, rows: List[Any]) -> bytes:
        return bytes(self._question({"files": rows})[1]) if rows else b""

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _question(self, question: Dict[str, Any]) -> Any:
        with self._changed:
            self._serial += 1
            serial = self._serial
            self._answers[serial] = None
        try:
            turn = self._ask(dict(question, n=serial))
            answer = self._wait(turn, lambda: self._answers[serial])
        finally:
            with self._changed:
                del self._answers[serial]
        if "error" in answer[0]:
            raise _error(answer[0])
        return answer

    def _ask(self, question: Dict[str, Any]) -> int:
        """Send a question, and return the number of the connection that has it."""
        end = time.monotonic() + self._patience
        with self._changed:
            while self._stream is None:
                left = end - time.monotonic()
                if self._closed or left <= 0:
                    raise self._lost()
                self._changed.wait(left)
            stream, turn = self._stream, self._turn
        try:
            with self._writing:
                write_frame(stream, question)
        except (OSError, ValueError):
            raise self._lost() from None
        return turn

    def _wait(self, turn: int, answer: Callable[[], Any]) -> Any:
        start = time.monotonic()
        with self._changed:
            while True:
                value = answer()
                if value is not None:
                    return value
                left = max(start, self._heard) + self._patience - time.monotonic()
                if self._closed or left <= 0 or turn != self._turn or self._stream is None:
                    raise self._lost()
                self._changed.wait(left)

    def _lost(self) -> SourceError:
        return SourceError("source-lost", "the connection to the machine that has %s ended" % self.label)


def _entry(row: Any) -> Entry:
    try:
        return manifest.entry_of(row)
    except ValueError:
        raise _odd() from None


def _list_of(value: Any, count: int) -> List[Any]:
    if not isinstance(value, list) or len(value) != count:
        raise _odd()
    return value


def _counts(value: Any, count: int) -> List[int]:
    numbers = _list_of(value, count)
    if not all(type(number) is int and 0 <= number <= _MOST_COUNT for number in numbers):
        raise _odd()
    return numbers


def _odd() -> SourceError:
    return SourceError("source-lost", "the machine that has the folder sent something else than a list")


def _unpacked(data: bytes) -> List[Any]:
    unpack = zlib.decompressobj()
    with contextlib.suppress(ValueError, RecursionError, zlib.error):
        rows = json.loads(unpack.decompress(data, MOST_HEADER).decode())
        if unpack.eof and isinstance(rows, list):
            return rows
    raise _odd()


def _error(header: Dict[str, Any]) -> SourceError:
    kind = header.get("kind")
    return SourceError(kind if kind in KINDS else "source-lost", shown(str(header["error"]), 500))
