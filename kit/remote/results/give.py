"""Sends files of this machine to a host, where the reader writes them."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from kit.errors import InputError
from kit.model.answer import answer_of, decode
from kit.remote.results import far
from kit.remote.results.store import HomeError
from kit.remote.ssh.transport import Completed, Live, LiveTransport

_HEAD = struct.Struct(">cI")
_CHUNK = 1 << 18
_MOST_ANSWER = 1 << 16
_GONE = (errno.ENOENT, errno.ENOTDIR)

Answer = TypeVar("Answer")


class _Written(Struct, frozen=True, kw_only=True):
    """The answer of the reader: the path there."""

    path: str


class Source:
    """A file or a folder of this machine. `files` and `size` are those of its files. Raises InputError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # A name that is too long, or a folder above that is closed, is an error, too.
        if not _checked(path, path.exists):
            raise InputError(f"there is no {path} on this machine", hint="a place on a host is HOST:PATH")
        # A link gives the copy its own name, as with cp.
        self.name = path.name if path.name not in ("", "..") else path.resolve().name
        self.kind = "d" if path.is_dir() else "f"
        self._entries = list(self._entries_below())
        self.files = sum(kind == "f" for _, kind, _ in self._entries)
        self.size = sum(_checked(path, path.stat).st_size for path, kind, _ in self._entries if kind == "f")
        for file, kind, _ in self._entries:
            if kind == "f" and not os.access(file, os.R_OK):
                raise _refused(file, os.strerror(errno.EACCES))

    def _entries_below(self) -> Iterator[tuple[Path, str, str]]:
        """Yield each entry as (where it is, kind, path below the source). A folder comes before what is in it."""
        yield self.path, self._kind(self.path, follow=True), ""
        if self.kind == "f":
            return
        for parent, folders, files in os.walk(self.path, onerror=_unreadable):
            folders.sort()
            for name in sorted([*folders, *files]):
                path = Path(parent, name)
                yield path, self._kind(path), str(path.relative_to(self.path))

    def _kind(self, path: Path, *, follow: bool = False) -> str:
        mode = _checked(path, path.stat if follow else path.lstat).st_mode
        for kind, is_kind in (("l", stat.S_ISLNK), ("d", stat.S_ISDIR), ("f", stat.S_ISREG)):
            if is_kind(mode):
                return kind
        raise InputError(f"{path} is a device, a socket or a pipe", hint="copy only files, folders and links")

    def frames(self) -> Iterator[bytes]:
        for path, kind, below in self._entries:
            header: dict[str, Any] = {"path": far.encoded(below), "kind": kind}
            if kind == "l":
                header["target"] = far.encoded(str(path.readlink()))
            else:
                at = path.stat()
                header |= {"time": at.st_mtime_ns, "mode": at.st_mode & 0o777}
            yield _frame(b"H", header)
            if kind == "f":
                yield from _content(path)
        yield _frame(b"E", {})


def _unreadable(error: OSError) -> None:
    raise _refused(error.filename, error.strerror)


def _refused(path: object, why: str | None) -> InputError:
    hint = "make it readable for you, or copy what is beside it; nothing was copied"
    return InputError(f"{path} cannot be read: {why}", hint=hint)


def _checked(path: Path, question: Callable[[], Answer]) -> Answer:
    """Return what this machine says of a path. Raises InputError if it is not there, or not for you."""
    try:
        return question()
    except OSError as error:
        if error.errno in _GONE:
            hint = "wait until nothing changes it, and run the same again; nothing was copied"
            raise InputError(f"{path} has just gone: {error.strerror}", hint=hint) from error
        raise _refused(path, error.strerror) from error


def _content(path: Path) -> Iterator[bytes]:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_CHUNK):
            digest.update(data)
            yield _HEAD.pack(b"D", len(data)) + data
    yield _frame(b"E", {"sha256": digest.hexdigest()})


def _frame(kind: bytes, value: object) -> bytes:
    payload = json.dumps(value).encode()
    return _HEAD.pack(kind, len(payload)) + payload


class _Reader:
    """The input of the host's command."""

    def __init__(self, source: Source) -> None:
        self._frames = source.frames()
        self._rest = b""
        self.error: OSError | None = None

    def read(self, most: int) -> bytes:
        try:
            while not self._rest and (frame := next(self._frames, b"")):
                self._rest = frame
        except OSError as error:
            self.error = error
            return b""
        data, self._rest = self._rest[:most], self._rest[most:]
        return data

    def close(self) -> None:
        """Do nothing: a read does not wait."""


def give(transport: LiveTransport, source: Source, path: str, command: far.Command) -> str:
    """Write the source to a path of a host, as cp does. Return the path there. Raises StepError and HomeError."""
    out, errors = bytearray(), bytearray()
    reader = _Reader(source)
    argv = command("write", far.encoded(path), far.encoded(source.name), source.kind)

    def keep(kept: bytearray) -> Callable[[bytes], None]:
        # One byte more than the limit shows that there was more.
        return lambda data: kept.extend(data[: _MOST_ANSWER + 1 - len(kept)])

    code = transport.stream(argv, Live(out=keep(out), err=keep(errors), stdin=lambda: reader))
    if reader.error is not None:
        raise HomeError(
            f"{reader.error.filename or source.path} could not be read: {reader.error.strerror}",
            hint="make it readable, wait until nothing changes it, and run the same again; only a part was copied",
        )
    done = Completed(code=code, stdout=bytes(out), stderr=bytes(errors))
    if code != 0 or not out:
        raise far.failed(done, transport, f"{path} could not be written")
    with answer_of(transport.host.name, "where it wrote the files"):
        written: _Written = decode(done.stdout, _Written, most=_MOST_ANSWER)
        return far.decoded(written.path)
