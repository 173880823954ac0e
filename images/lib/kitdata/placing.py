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
        _replace(part, os.path.join(self._folder, path))

    def place_all(self, tree: str) -> None:
        """Give all files below the folder `tree` the paths that they have there. A folder that is missing here moves as
        a whole, which is quicker than file by file. Raises OSError.
        """
        waiting = [(tree, self._folder)] if os.path.isdir(tree) else []
        while waiting:
            source, target = waiting.pop()
            with os.scandir(source) as listed:
                parts = list(listed)
            for part in parts:
                name = os.path.join(target, part.name)
                if not part.is_dir(follow_symlinks=False):
                    _replace(part.path, name)
                elif _is_folder(name):
                    waiting.append((part.path, name))
                else:
                    os.rename(part.path, name)

    def _make_above(self, path: str) -> None:
        """Make the folders above a file."""
        folder = os.path.dirname(path)
        if folder in self._made:
            return
        at = self._folder
        for name in folder.split("/") if folder else []:
            at = os.path.join(at, name)
            if not _is_folder(at):
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


def _replace(part: str, target: str) -> None:
    try:
        os.rename(part, target)
    except IsADirectoryError:
        shutil.rmtree(target)
        os.rename(part, target)


def _is_folder(path: str) -> bool:
    """Return whether this is a folder. A link, or a file, makes way: a link could lead elsewhere."""
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            return True
        os.unlink(path)
    except FileNotFoundError:
        pass
    return False


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
