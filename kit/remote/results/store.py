"""Writes files of hosts below one folder of this machine: whole or not at all, and through no link."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from kit.errors import StepError

# Parts of files, below the folder. A pull that is repeated continues them.
PARTS = ".kit-pull"
# In that folder: the pull that writes there holds it.
_LOCK = "lock"
# How often to make the folder again that another pull has just removed.
_TRIES = 100
_FULL = (errno.ENOSPC, errno.EDQUOT)
# Keep this much of the disk free.
_RESERVE = 1 << 20


def _in_the_way(path: Path, what: str) -> str:
    return f"at home, {path} is {what}; move it away, and run the same again"


class HomeError(StepError):
    """This machine could not store a file. It has nothing to do with a host."""


class Store:
    """`folder` is made when the first file comes. Methods raise HomeError.

    `made` returns whether an earlier pull may have made a link, by its path below the folder and its text. With it, the
    folder is the run's own: a file, such a link or an empty folder gives way to what the run has there now. Without it,
    the folder has files of yours, too, and only files take the place of files and links.
    """

    def __init__(self, folder: Path, parts: str = PARTS, *, made: Callable[[str, str], bool] | None = None) -> None:
        self.folder = folder
        self._parts = folder / parts
        self._made = made
        self._claimed: set[Path] = set()
        # Hosts are fetched at the same time, and may need the same folder.
        self._placing = threading.Lock()
        self._lock: int | None = None
        # One can only read it by setting it, which counts for the whole process: not while hosts are fetched.
        self._umask = os.umask(0o077)
        os.umask(self._umask)

    @property
    def own(self) -> bool:
        """Whether the folder is the run's own."""
        return self._made is not None

    def take(self) -> None:
        """Keep other pulls out of the folder until `close`: they would use the same parts.

        Raises HomeError if another one writes there. A file system without locks keeps none out.
        """
        try:
            for _ in range(_TRIES):
                if self._lock is None:
                    self._try_to_take()
        except BlockingIOError:
            raise HomeError(
                f"another kit pull writes into {self.folder}",
                hint="wait until it has ended, or choose another folder",
            ) from None
        except OSError as error:
            raise self._failed(self.folder, error) from error

    def _try_to_take(self) -> None:
        self._parts.mkdir(parents=True, exist_ok=True)
        try:
            lock = os.open(self._parts / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:
            # The other pull has just ended, and has removed the folder.
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise
        except OSError:
            pass
        if self._is_lock(lock):
            self._lock = lock
        else:
            # Its holder removed it before this one was held.
            os.close(lock)

    def _is_lock(self, lock: int) -> bool:
        """Return whether other pulls will open the same file."""
        try:
            return os.path.samestat(os.fstat(lock), (self._parts / _LOCK).lstat())
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Let other pulls write into the folder."""
        if self._lock is None:
            return
        with suppress(OSError):
            if self._is_lock(self._lock):
                (self._parts / _LOCK).unlink()
        os.close(self._lock)
        self._lock = None

    def claim(self, targets: Iterable[str]) -> None:
        """Let nothing that comes later need a folder in place of one of these files and links."""
        self._claimed.update(self.folder / target for target in targets)

    def obstacle(self, target: str, *, link: bool) -> str:
        """Return why this file, or this link, cannot be stored; '' if nothing is in its way."""
        try:
            return self._obstacle(target, link=link)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise self._failed(self.folder / target, error) from error

    def _obstacle(self, target: str, *, link: bool) -> str:
        path = self.folder
        *folders, name = target.split("/")
        for folder in folders:
            path /= folder
            if not stat.S_ISDIR(path.lstat().st_mode):
                return "" if path not in self._claimed and self._gives_way(path) else _in_the_way(path, "no folder")
        path /= name
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            return "" if self._gives_way(path) else _in_the_way(path, "a folder")
        if link and not stat.S_ISLNK(mode):
            return "" if self._gives_way(path) else _in_the_way(path, "a file")
        return ""

    def _gives_way(self, path: Path) -> bool:
        """Return whether what is at this place may go: an earlier pull may have made it, or it is an empty folder."""
        if self._made is None:
            return False
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            return not any(path.iterdir())
        if stat.S_ISLNK(mode):
            return self._made(str(path.relative_to(self.folder)), os.readlink(path))  # noqa: PTH115  (the text)
        return stat.S_ISREG(mode)

    def prepare(self, size: int, *, private: bool) -> None:
        """Make the folder, with room for `size` bytes. `private`: keep it out of git, and out of the code of runs."""
        try:
            self._parts.mkdir(parents=True, exist_ok=True)
            if private and not (self.folder / ".gitignore").exists():
                (self.folder / ".gitignore").write_text("*\n")
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise self._failed(self.folder, error) from error
        if size + _RESERVE > free:
            raise HomeError(
                f"{self.folder} has no room: {size // 1_000_000} MB are needed, {free // 1_000_000} MB are free",
                hint="choose another folder, or only a part of the files",
            )

    def state(self, target: str) -> tuple[int, int] | None:
        """Return the size of the file at this place and the time of its last change (ns), or None without a file."""
        try:
            at = (self.folder / target).lstat()
        except OSError:
            return None
        return (at.st_size, at.st_mtime_ns) if stat.S_ISREG(at.st_mode) else None

    def text(self, target: str) -> str | None:
        """Return the text of the link at this place, or None without a link."""
        try:
            return os.readlink(self.folder / target)  # noqa: PTH115  (the text, not a path)
        except OSError:
            return None

    def part(self, *identity: object) -> Path:
        """Return where to write the part of a file until it is whole. Another version of it has another part."""
        text = "\0".join(str(word) for word in identity).encode("utf-8", "surrogateescape")
        return self._parts / hashlib.sha256(text).hexdigest()[:32]

    def keep(self, part: Path, target: str, *, time: int, mode: int) -> None:
        """Give a file that is whole its name, and the permissions `mode` that your umask allows. You may read it."""
        try:
            path = self._place(target)
            self._make_way(path, folder=True)
            os.utime(part, ns=(time, time))
            part.chmod((mode | 0o400) & ~self._umask)
            part.replace(path)
        except OSError as error:
            raise self._failed(self.folder / target, error) from error

    def link(self, target: str, text: str) -> bool:
        """Make a link. Return False if it is there already."""
        try:
            path = self._place(target)
            if path.is_symlink():
                if os.readlink(path) == text:  # noqa: PTH115  (the text, not a path)
                    return False
                path.unlink()
            else:
                self._make_way(path, folder=True)
                self._make_way(path, folder=False)
            path.symlink_to(text)
        except OSError as error:
            raise self._failed(self.folder / target, error) from error
        return True

    def make(self, target: str, mode: int = 0o777) -> None:
        """Make a folder with the permissions `mode` that your umask allows. kit must write into it."""
        try:
            self._place(target).mkdir(mode | 0o700, exist_ok=True)
        except OSError as error:
            raise self._failed(self.folder / target, error) from error

    def move(self, source: str, target: str) -> None:
        """Move a file that an earlier pull stored to another place."""
        try:
            path = self._place(target)
            self._make_way(path, folder=True)
            (self.folder / source).replace(path)
        except OSError as error:
            raise self._failed(self.folder / target, error) from error

    def finish(self) -> None:
        """Remove parts of earlier versions, unless another pull needs them. Nothing more comes."""
        if self._parts.name != PARTS:
            shutil.rmtree(self._parts, ignore_errors=True)
            return
        with suppress(HomeError):
            if self._parts.is_dir():
                self.take()
        if self._lock is None:
            return
        with suppress(OSError):
            for path in self._parts.iterdir():
                if path.name != _LOCK:
                    path.unlink()
        # The lock goes last: without it, another pull may already have parts in the folder.
        self.close()
        with suppress(OSError):
            self._parts.rmdir()

    def _place(self, target: str) -> Path:
        """Return the path of a file, and make the folders above it. Raises HomeError if one of them is a link."""
        path = self.folder
        *folders, name = target.split("/")
        for folder in folders:
            path /= folder
            with self._placing:
                if path not in self._claimed:
                    self._make_way(path, folder=False)
                self._make_folder(path)
        return path / name

    def _make_folder(self, path: Path) -> None:
        if path.is_symlink():
            raise HomeError(f"{path} is a link", hint="remove it, or choose another folder")
        path.mkdir(exist_ok=True)

    def _make_way(self, path: Path, *, folder: bool) -> None:
        """Remove what gives way at this place: an empty folder, or with `folder` False a file or a link."""
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(path.lstat().st_mode) is not folder or not self._gives_way(path):
                return
            if folder:
                path.rmdir()
            else:
                path.unlink()

    def failed(self, error: OSError) -> HomeError:
        return self._failed(self.folder, error)

    def _failed(self, path: Path, error: OSError) -> HomeError:
        if error.errno in _FULL:
            # Only a pull keeps its parts.
            continues = ": kit continues where it stopped" if self._parts.name == PARTS else ""
            hint = f"free some space, then run the same again{continues}"
            return HomeError(f"no space left on this machine for {path}", hint=hint)
        hint = "choose another folder, or check its permissions"
        return HomeError(f"{path} cannot be written: {error.strerror}", hint=hint)
