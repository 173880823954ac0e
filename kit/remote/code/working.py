"""The folder of a local run, as a run has one on each VM: a copy of its code, and folders for what its ranks make."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from pathlib import Path
from typing import NamedTuple

from kit.errors import KitError
from kit.model import names
from kit.model.code import Snapshot
from kit.remote.code.pack import changed
from kit.remote.machine import ignored
from kit.remote.ship.porter import manifest

_CHUNK = 1 << 20


class _Seeded(NamedTuple):
    """What a file was when kit wrote it. Times are in nanoseconds, and `digest` is its SHA-256."""

    size: int
    mtime: int
    ctime: int
    digest: str


class CannotMake(KitError):
    """The folder of a run cannot be made here, such as below a folder that you may only read."""


class RunFolder:
    """A new folder for one local run, in which only you can look. `settle` removes what the run has not made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / names.WORK
        self._files: dict[Path, _Seeded] = {}
        self._links: dict[Path, bytes] = {}
        self._folders = {folder / names.OUTPUT, folder / names.CHECKPOINTS}

    def seed(self, snapshot: Snapshot | None) -> None:
        """Make the folders, and copy the snapshot. Raises Changed if a file is no longer what the snapshot has.

        Raises KitError, and leaves nothing, if the disk is full, and CannotMake if the folders cannot be made.
        """
        try:
            ignored.ignore(self.folder.parent.parent)
            self.folder.mkdir(mode=0o700, parents=True)
            if snapshot is not None:
                self._folders.add(self.work)
            for path in sorted(self._folders):
                path.mkdir()
            if snapshot is not None:
                for entry in manifest.parse(snapshot.manifest):
                    self._copy(entry, os.fsencode(snapshot.folder))
        except BaseException as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            if isinstance(error, OSError):
                raise _cannot(self.folder, error) from error
            raise

    def _copy(self, entry: manifest.Entry, top: bytes) -> None:
        path = self.work / os.fsdecode(entry.path)
        parent = path.parent
        if parent not in self._folders:
            parent.mkdir(parents=True, exist_ok=True)
            self._folders.update(folder for folder in (parent, *parent.parents) if folder.is_relative_to(self.work))
        if entry.kind == manifest.LINK:
            path.symlink_to(os.fsdecode(entry.target))
            self._links[path] = entry.target
        elif entry.kind == manifest.FOLDER:
            path.mkdir()
            self._folders.add(path)
        else:
            source = top + b"/" + entry.path
            if _copied(source, path, entry.mode) != entry.digest:
                raise changed(source)
            status = path.stat()
            self._files[path] = _Seeded(status.st_size, status.st_mtime_ns, status.st_ctime_ns, entry.digest)

    @property
    def foreign(self) -> bool:
        """Return whether the container has left something that belongs to another user, such as root."""
        for parent, folders, files in os.walk(self.folder):
            if any(Path(parent, name).lstat().st_uid != os.geteuid() for name in (*folders, *files)):
                return True
        return False

    def settle(self) -> bool:
        """Remove what the run has not changed, and return whether it made something."""
        for path, before in self._files.items():
            with contextlib.suppress(OSError):
                if _is_unchanged(path, before):
                    path.unlink()
        for path, target in self._links.items():
            with contextlib.suppress(OSError):
                if os.fsencode(path.readlink()) == target:
                    path.unlink()
        for folder in sorted(self._folders, key=lambda path: -len(path.parts)):
            # Python makes these again from the code.
            shutil.rmtree(folder / "__pycache__", ignore_errors=True)
            with contextlib.suppress(OSError):
                folder.rmdir()
        # Fails if the run made something.
        with contextlib.suppress(OSError):
            self.folder.rmdir()
            self.folder.parent.rmdir()
        return self.folder.exists()


def _is_unchanged(path: Path, before: _Seeded) -> bool:
    """Return whether a file is as kit wrote it. Raises OSError.

    A program can set an old mtime, but no old ctime. A new ctime alone may come from chmod or a new link, so then the
    bytes count.
    """
    now = path.lstat()
    if not stat.S_ISREG(now.st_mode) or (now.st_size, now.st_mtime_ns) != (before.size, before.mtime):
        return False
    if now.st_ctime_ns == before.ctime:
        return True
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == before.digest


def _copied(source: bytes, path: Path, mode: int) -> str:
    """Copy a file, and return the SHA-256 of the copy. '' if there is no such file any more."""
    digest = hashlib.sha256()
    try:
        given = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(given, "rb") as file, path.open("xb") as out:
        os.fchmod(out.fileno(), mode)
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            out.write(chunk)
    return digest.hexdigest()


def _cannot(folder: Path, error: OSError) -> KitError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return KitError(f"the working folder cannot be made in {folder}: no space left", hint="free space there")
    return CannotMake(
        f"the working folder cannot be made in {folder}: {error.strerror or error}",
        hint="copy the folder to one that you can write to, or run without code: kit local --code none",
    )
