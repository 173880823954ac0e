"""The operator's end of `feed`: reads a folder or file of this machine for the stager that leads a staging.

The lead asks in frames: 4 bytes with the length of a JSON header, the header, and the bytes that it announces.
images/lib/kitdata has the other side. The lead is another machine: it gets the files of this folder, and no others.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from kit.errors import InputError, KitError
from kit.model.answer import OddAnswer, answer_of, convert
from kit.model.staging import loaded
from kit.model.text import printable

# The largest header that the lead may send, and the most bytes of a file in one answer.
_MOST_HEADER = 1 << 16
MOST_READ = 4 << 20
# Entries in one answer to `list`.
BATCH = 1000
# A folder with more files is listed at once: to know its version takes all of its list in memory.
MOST_KNOWN = 1_000_000
# How often the lead hears how many files there are so far.
_BEAT_S = 0.5
_ID_DIGITS = 16
# What `list` says of a lead that takes packed entries.
_PACKED = 2
_REFUSED = (errno.EACCES, errno.EPERM)
# A pipe must not hold kit.
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

# (path below the source, bytes, time of the last change in ns)
Entry = tuple[str, int, int]


class _SourceError(Exception):
    """A file cannot be read. `kind` is one of a stager's."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class _Ask(Struct, frozen=True, kw_only=True):
    """What the lead asks for: all entries, one entry, bytes of a file that had this size and time, or whole files.

    With `list` 2 it takes entries that are packed, and with 3 the version of the folder instead.
    """

    list: int = 0
    entry: str | None = None
    read: str | None = None
    files: tuple[Entry, ...] = ()
    offset: int = 0
    length: int = 0
    size: int = 0
    mtime: int = 0
    n: int = 0
    bytes: int = 0


class Folder:
    """A folder of this machine, or a single file. Links that stay inside are followed; others are an error."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._real = os.path.realpath(path)
        self._is_file = self._path.is_file()

    def entries(self) -> Iterator[Entry]:
        """Yield the files, folder by folder. Raises _SourceError."""
        if self._is_file:
            yield self._entry(self._path.name)
            return
        waiting: list[tuple[str, tuple[tuple[int, int], ...]]] = [("", ())]
        while waiting:
            folder, above = waiting.pop()
            try:
                me, names = _look(f"{self._real}/{folder}")
            except OSError as error:
                raise self._failed(folder, error) from None
            if me in above:
                raise _SourceError("source-name", f"{printable(folder)} is a link to a folder above it")
            deeper = []
            for name, here in names:
                path = f"{folder}/{name}" if folder else name
                if self._is_folder(path) if here is None else here.is_dir(follow_symlinks=False):
                    deeper.append((path, (*above, me)))
                else:
                    yield self._entry(path, here)
            waiting.extend(reversed(deeper))

    def entry(self, path: str) -> Entry | None:
        """Return one file, or None if it is gone. Raises _SourceError."""
        try:
            return self._entry(path)
        except _SourceError as error:
            if error.kind == "source-missing":
                return None
            raise

    def read(self, entry: Entry, offset: int, length: int) -> bytes:
        """Return exactly that many bytes of a file. Raises _SourceError, also if it is no longer this entry."""
        path, size, mtime = entry
        descriptor = -1
        try:
            real = self._inside(path)
            # Opening a pipe wakes who waits at its other end, and opening a device can have any effect.
            _check_regular(path, Path(real).stat())
            descriptor = os.open(real, _OPEN)
            data = os.pread(descriptor, length, offset)
            status = os.fstat(descriptor)
            if (status.st_size, status.st_mtime_ns) != (size, mtime) or len(data) != length:
                raise _SourceError("source-changed", f"{printable(path)} changed while it was read")
            return data
        except OSError as error:
            raise self._failed(path, error) from None
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _is_folder(self, path: str) -> bool:
        """Return whether a link is one to a folder."""
        try:
            return Path(self._inside(path)).is_dir()
        except OSError as error:
            raise self._failed(path, error) from None

    def _entry(self, path: str, here: os.DirEntry[str] | None = None) -> Entry:
        """Return the entry of a path; `here` is what its folder says of it, unless it may be a link."""
        try:
            status = here.stat(follow_symlinks=False) if here is not None else Path(self._inside(path)).stat()
        except OSError as error:
            raise self._failed(path, error) from None
        _check_regular(path, status)
        return (path, status.st_size, status.st_mtime_ns)

    def _inside(self, path: str) -> str:
        """Return the real path of a file or folder of the source. Raises _SourceError for one outside of it."""
        if self._is_file:
            if path == self._path.name:
                return self._real
        elif path and not path.startswith("/") and "\0" not in path and ".." not in path.split("/"):
            real = os.path.realpath(f"{self._real}/{path}")
            if real == self._real or real.startswith(self._real.rstrip("/") + "/"):
                return real
            raise _SourceError("source-name", f"{printable(path)} is a link out of {printable(str(self._path))}")
        raise _SourceError("source-name", f"{printable(path)} is not in {printable(str(self._path))}")

    def _failed(self, path: str, error: OSError) -> _SourceError:
        name = printable(str(self._path / path if path and not self._is_file else self._path))
        if error.errno == errno.ENOENT:
            return _SourceError("source-missing", f"{name} does not exist on the operator's machine")
        kind = "source-refused" if error.errno in _REFUSED else "source-lost"
        return _SourceError(kind, f"{name} cannot be read: {os.strerror(error.errno or 0)}")


def _check_regular(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _SourceError("source-name", f"{printable(path)} is a pipe or a device, and no file")


def _look(folder: str) -> tuple[tuple[int, int], list[tuple[str, os.DirEntry[str] | None]]]:
    """Return the id of a folder, and its names, sorted, each with what the folder says of it; None for a link."""
    with os.scandir(folder) as entries:
        names = [(one.name, None if one.is_symlink() else one) for one in entries]
    me = Path(folder).stat()
    return (me.st_dev, me.st_ino), sorted(names, key=lambda one: one[0])


def checked(path: str) -> Folder:
    """Return the folder. Raises InputError if it cannot be read."""
    folder = Folder(path)
    try:
        next(folder.entries(), None)
    except _SourceError as error:
        raise InputError(f"from: {error}", hint="write a folder or a file that exists") from None
    return folder


def listing_id(entries: Sequence[Entry]) -> str:
    """Return what names this version of the folder: as kitdata.manifest does for entries without MD5."""
    digest = hashlib.sha256()
    for at in range(0, len(entries), BATCH):
        text = "".join(f"{path}\0{size}\0{mtime}\0\0" for path, size, mtime in entries[at : at + BATCH])
        digest.update(text.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:_ID_DIGITS]


class Feed:
    """Answers the frames of the lead. `write` sends bytes to it, and may wait."""

    def __init__(self, host: str, folder: Folder, write: Callable[[bytes], None]) -> None:
        self._host, self._folder, self._write = host, folder, write
        self._partial = bytearray()
        # The list of the version that the lead knows, until it asks for it.
        self._listed: Iterable[Entry] | None = None
        # What ended the feed, if something did.
        self.error: KitError | None = None

    def hear(self, data: bytes) -> None:
        """Take bytes of the lead, and answer each whole frame. Raises AnswerError for odd ones."""
        self._partial += data
        try:
            with answer_of(self._host, "what its stager asks for"):
                while (header := self._next()) is not None:
                    self._answer(header)
        except KitError as error:
            self.error = error
            raise

    def _next(self) -> bytes | None:
        """Return the header of the next whole frame, and remove the frame."""
        if len(self._partial) < 4:
            return None
        if self._partial.startswith(b"{"):
            # No frame begins like that: the lead refuses the feed, and says why to the one who follows the staging.
            self._partial.clear()
            return None
        length = int.from_bytes(self._partial[:4], "big")
        if length > _MOST_HEADER:
            raise OddAnswer("a frame is too long", bytes(self._partial[:64]))
        if len(self._partial) < 4 + length:
            return None
        header = bytes(self._partial[4 : 4 + length])
        del self._partial[: 4 + length]
        return header

    def _answer(self, header: bytes) -> None:
        ask: _Ask = convert(loaded(header, most=_MOST_HEADER), _Ask)
        if ask.bytes:
            raise OddAnswer("a question has bytes", header)
        try:
            if ask.list > _PACKED:
                self._version()
            elif ask.list:
                self._list(packed=ask.list == _PACKED)
            elif ask.entry is not None:
                self._send({"n": ask.n, "entry": self._folder.entry(ask.entry)})
            elif ask.read is not None:
                self._read(ask, ask.read)
            elif ask.files:
                self._files(ask)
        except _SourceError as error:
            what: dict[str, Any] = {"entries": []} if ask.list else {"n": ask.n}
            self._send({**what, "error": str(error), "kind": error.kind})

    def _version(self) -> None:
        """Send which version of the folder this is, and keep its list; if that would be very long, send it."""
        listing = self._folder.entries()
        entries: list[Entry] = []
        size, last = 0, time.monotonic()
        for entry in listing:
            entries.append(entry)
            size += entry[1]
            if len(entries) > MOST_KNOWN:
                self._listed = itertools.chain(entries, listing)
                self._list(packed=True)
                return
            if time.monotonic() - last > _BEAT_S:
                self._send({"counted": [len(entries), size]})
                last = time.monotonic()
        entries.sort()
        self._listed = entries
        self._send({"version": [listing_id(entries), len(entries), size]})

    def _list(self, *, packed: bool) -> None:
        """Send the entries, in several frames."""
        listed, self._listed = self._listed, None
        batch: list[Entry] = []
        for entry in self._folder.entries() if listed is None else listed:
            batch.append(entry)
            if len(batch) == BATCH:
                self._send_entries(batch, more=True, packed=packed)
                batch = []
        self._send_entries(batch, more=False, packed=packed)

    def _send_entries(self, batch: Sequence[Entry], *, more: bool, packed: bool) -> None:
        if packed:
            self._send({"packed": 1, "more": more}, zlib.compress(json.dumps(batch).encode(), 1))
        else:
            self._send({"entries": batch, "more": more})

    def _read(self, ask: _Ask, path: str) -> None:
        if ask.offset < 0 or not 0 <= ask.length <= MOST_READ:
            raise OddAnswer("it asks for too many bytes")
        data = self._folder.read((path, ask.size, ask.mtime), ask.offset, ask.length)
        self._send({"n": ask.n}, data)

    def _files(self, ask: _Ask) -> None:
        """Send whole files that have these sizes and times, one after the other."""
        if min(size for _, size, _ in ask.files) < 0 or sum(size for _, size, _ in ask.files) > MOST_READ:
            raise OddAnswer("it asks for too many bytes")
        self._send({"n": ask.n}, b"".join(self._folder.read(file, 0, file[1]) for file in ask.files))

    def _send(self, header: dict[str, Any], data: bytes = b"") -> None:
        text = json.dumps({**header, "bytes": len(data)}).encode()
        self._write(len(text).to_bytes(4, "big") + text + data)
