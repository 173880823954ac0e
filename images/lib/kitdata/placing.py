"""Gives complete files their names in the folder that nodes see, and removes those that the source no longer has."""

import contextlib
import ctypes
import os
import shutil
import stat
from typing import Set


class Placing:
    """Works below one folder, which nodes may be allowed to write: nothing in it leads it elsewhere."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        # Folders that are there, and are no links.
        self._made: Set[str] = set()

    def place(self, part: str, path: str) -> None:
        """Give the file `part` its name `path`, in place of what has it. Raises OSError."""
        self._make_above(path)
        target = os.path.join(self._folder, path)
        try:
            os.rename(part, target)
        except IsADirectoryError:
            shutil.rmtree(target)
            os.rename(part, target)

    def _make_above(self, path: str) -> None:
        """Make the folders above a file. A link, or a file, in the place of one makes way: it could lead elsewhere."""
        folder = os.path.dirname(path)
        if folder in self._made:
            return
        at = self._folder
        for name in folder.split("/") if folder else []:
            at = os.path.join(at, name)
            try:
                if stat.S_ISDIR(os.lstat(at).st_mode):
                    continue
                os.unlink(at)
            except FileNotFoundError:
                pass
            os.mkdir(at, 0o755)
        self._made.add(folder)

    def remove(self, path: str) -> None:
        """Remove a file, and the folders that this leaves empty."""
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._folder, path))
        folder = os.path.dirname(path)
        while folder:
            try:
                os.rmdir(os.path.join(self._folder, folder))
            except OSError:
                return
            folder = os.path.dirname(folder)


def sync(folder: str) -> None:
    """Bring all of the file system to the disk at once: a call for each of many small files would take minutes."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if call is None:
            os.sync()
        elif call(handle):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(handle)
