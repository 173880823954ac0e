"""Write a pack: one file with what turns one snapshot, or nothing, into another."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from kit.errors import KitError
from kit.model.code import Pack, Snapshot
from kit.remote.code import faults, hashes
from kit.remote.machine.scratch import FREE_IT
from kit.remote.ship.porter import delta as deltas
from kit.remote.ship.porter import manifest
from kit.remote.ship.porter.delta import Delta
from kit.remote.ship.porter.manifest import shown

_CHUNK = 1 << 20
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class Changed(KitError):
    """A file is not what it was when the snapshot was taken. Take a new snapshot."""


def write_pack(snapshot: Snapshot, base: bytes | None, folder: Path) -> Pack:
    """Write the pack that turns the manifest `base` into the snapshot to a new file in `folder`, with mode 600.

    None as `base`: the pack has everything. The file has the SHA-256 of its bytes as its name. Raises Changed,
    InputError for a file that cannot be read, and KitError if the pack cannot be written.
    """
    delta = deltas.between(manifest.EMPTY if base is None else base, snapshot.manifest)
    name = None if base is None else manifest.digest(base)
    try:
        descriptor, beside = tempfile.mkstemp(prefix=".pack-", dir=folder)
    except OSError as error:
        raise cannot(folder, error) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            digest = hashlib.sha256()

            def write(data: bytes) -> None:
                digest.update(data)
                file.write(data)

            write(deltas.pack_head(snapshot.digest, name, delta))
            _write_objects(snapshot.folder, delta, write)
            size = file.tell()
        path = folder / digest.hexdigest()
        os.replace(beside, path)  # noqa: PTH105
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(beside)  # noqa: PTH108
        if isinstance(error, Changed):
            # Do not trust the hashes for the next snapshot: it would fail in the same way if one of them is wrong.
            hashes.forget(snapshot.folder)
        if isinstance(error, OSError):
            raise cannot(folder, error) from error
        raise
    return Pack(path=path, sha256=digest.hexdigest(), size=size, digest=snapshot.digest, base=name)


def _write_objects(top: Path, delta: Delta, write: Callable[[bytes], object]) -> None:
    paths: dict[str, bytes] = {}
    for line in delta.added:
        if line.startswith(b"f"):
            paths.setdefault(manifest.digest_of(line), manifest.path_of(line))
    try:
        at = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _refused(os.fsencode(top), error) from error
    try:
        for name, size in delta.objects:
            path = os.fsencode(top) + b"/" + paths[name]
            digest = hashlib.sha256()
            for chunk in _chunks(at, path, paths[name], size):
                digest.update(chunk)
                write(chunk)
            if digest.hexdigest() != name:
                raise changed(path)
    finally:
        os.close(at)


def _chunks(at: int, shown_path: bytes, path: bytes, size: int) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces. Raises Changed if they are not `size` bytes."""
    try:
        descriptor = os.open(path, _OPEN, dir_fd=at)
        try:
            # One byte more than there should be, so that a file that has grown is noticed.
            while chunk := os.read(descriptor, min(_CHUNK, size + 1)):
                size -= len(chunk)
                if size < 0:
                    break
                yield chunk
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _refused(shown_path, error) from error
    if size:
        raise changed(shown_path)


def _refused(path: bytes, error: OSError) -> KitError:
    """Return the error for a file that cannot be opened or read."""
    if error.errno in _GONE:
        return changed(path)
    return faults.unreadable(shown(path), error.strerror or str(error))


def changed(path: bytes) -> Changed:
    """Return the error for a file that is no longer what the snapshot has."""
    return Changed(
        f"{shown(path)} changed after kit took the snapshot of the code",
        hint="run the command again when nothing writes to it, or list it in .kitignore",
    )


def cannot(folder: Path, error: OSError, what: str = "the pack of the code") -> KitError:
    """Return the error for `what` if this machine cannot write it."""
    return KitError(
        f"{what} cannot be written to {folder}: {error.strerror or error}",
        hint=FREE_IT,
    )
