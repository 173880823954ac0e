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
from functools import cached_property
from pathlib import Path

from kit.errors import StepError
from kit.remote.results import kept as record
from kit.remote.results.kept import Kept

# Parts of files, below the folder. A pull that is repeated continues them.
PARTS = ".kit-pull"
# In that folder: the pull that writes there holds it.
_LOCK = "lock"
# How often to make the folder again that another pull has just removed.
_TRIES = 100
_FULL = (errno.ENOSPC, errno.EDQUOT)
# What a disk says of a name that it cannot have, such as one with a colon on exFAT.
_ODD_NAME = (errno.EINVAL, errno.EILSEQ, errno.ENAMETOOLONG)
# What it says if it cannot have links.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
# Keep this much of the disk free.
_RESERVE = 1 << 20
# Times of a disk at home and of a host's disk may differ by this much, though they are of the same moment.
_SAME_NS = 2 * 10**9


def _in_the_way(path: Path, what: str) -> str:
    return f"at home, {path} {what}; move it away, and run the same again"


def _short(*words: object) -> str:
    text = "\0".join(str(word) for word in words).encode("utf-8", "surrogateescape")
    return hashlib.sha256(text).hexdigest()[:24]


class HomeError(StepError):
    """This machine could not store a file. It has nothing to do with a host."""


class RefusedError(HomeError):
    """This machine cannot store this file at its place. Others may come."""


class Store:
    """`folder` is made when the first file comes. Methods raise HomeError.

    `made` returns whether an earlier pull may have made a link, by its path below the folder and its text. With it, the
    folder is the run's own: a file, such a link or an empty folder gives way to what the run has there now. Without it,
    the folder has files of yours, too, and only files take the place of files and links. `run` is the id of the run
    whose files come.
    """

    def __init__(
        self, folder: Path, parts: str = PARTS, *, made: Callable[[str, str], bool] | None = None, run: str = ""
    ) -> None:
        self.folder = folder
        self._run = run
        self._parts = folder / parts
        self._made = made
        self._claimed: set[Path] = set()
        # Hosts are fetched at the same time, and may need the same folder.
        self._placing = threading.Lock()
        self._lock: int | None = None
        # How the names of parts begin, for each file.
        self._files: set[str] = set()
        # The size and time of the files that are replaced, and what kit knew of them.
        self._before: dict[str, tuple[int, int] | None] = {}
        self._replaced: dict[str, Kept] = {}
        # Whether the record of what kit stored is to be saved.
        self._stored_new = False
        # One can only read it by setting it, which counts for the whole process: not while hosts are fetched.
        self._umask = os.umask(0o077)
        os.umask(self._umask)

    @property
    def own(self) -> bool:
        """Whether the folder is the run's own."""
        return self._made is not None

    @cached_property
    def _stored(self) -> dict[str, Kept]:
        """What pulls stored, by target. A copy (`kit cp`) replaces files, and needs no record."""
        return record.load(self.folder) if self._parts.name == PARTS else {}

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
        if self._stored_new:
            # What a pull that broke did not replace is as before.
            record.save(self.folder, {**self._replaced, **self._stored})
            self._stored_new = False
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
            failure = self._failed(self.folder / target, error)
            if isinstance(failure, RefusedError):
                return failure.message
            raise failure from error

    def changed(self, target: str, time: int) -> str:
        """Return why this file at home must stay; '' if one that has this time (ns) at its host may replace it.

        It stays if you have changed it, or if it is the newer file of another run.
        """
        state, kept = self.state(target), self._stored.get(target)
        if state is None:
            return ""
        if kept is None:
            # It may be of a pull whose record is lost.
            return _in_the_way(self.folder / target, "is newer") if state[1] > time + _SAME_NS else ""
        if not kept.is_state(state):
            return _in_the_way(self.folder / target, "has changed since it came")
        if kept.run != self._run and kept.source > time + _SAME_NS:
            return _in_the_way(self.folder / target, f"is newer, of run {kept.run}")
        return ""

    def replacing(self, targets: Iterable[str]) -> None:
        """Forget what is known of these files, because others come in their place: kit may be killed meanwhile.

        From now on, nobody else may change them.
        """
        targets = list(targets)
        self._before |= {target: self.state(target) for target in targets}
        gone = {target: kept for target in targets if (kept := self._stored.pop(target, None))}
        if gone:
            self._replaced |= gone
            self._stored_new = True
            record.save(self.folder, self._stored)

    def _obstacle(self, target: str, *, link: bool) -> str:
        path = self.folder
        *folders, name = target.split("/")
        for folder in folders:
            path /= folder
            if not stat.S_ISDIR(path.lstat().st_mode):
                return "" if path not in self._claimed and self._gives_way(path) else _in_the_way(path, "is no folder")
        path /= name
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            return "" if self._gives_way(path) else _in_the_way(path, "is a folder")
        if link and not stat.S_ISLNK(mode):
            return "" if self._gives_way(path) else _in_the_way(path, "is a file")
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
        return stat.S_ISREG(mode) and not self._is_edited(str(path.relative_to(self.folder)))

    def _is_edited(self, target: str) -> bool:
        state, kept = self.state(target), self._stored.get(target)
        return state is not None and kept is not None and not kept.is_state(state)

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

    def part(self, host: str, path: str, *version: object) -> Path:
        """Return where to write the part of a file until it is whole. Another version of it has another part."""
        file = f"{_short(self._run)}-{_short(host, path)}-"
        self._files.add(file)
        return self._parts / f"{file}{_short(*version)}"

    def keep(self, part: Path, target: str, *, time: int, mode: int) -> None:
        """Give a file that is whole its name, and the permissions `mode` that your umask allows. You may read it."""
        if target in self._before and self.state(target) != self._before[target]:
            raise RefusedError(_in_the_way(self.folder / target, "has just changed"))
        try:
            path = self._place(target)
            self._make_way(path, folder=True)
            os.utime(part, ns=(time, time))
            part.chmod((mode | 0o400) & ~self._umask)
            part.replace(path)
            at = path.lstat()
        except OSError as error:
            raise self._failed(self.folder / target, error) from error
        self._stored[target] = Kept(at.st_size, at.st_mtime_ns, self._run, time)
        self._stored_new = True

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
            self._make_link(path, text)
        except OSError as error:
            raise self._failed(self.folder / target, error) from error
        return True

    def _make_link(self, path: Path, text: str) -> None:
        try:
            path.symlink_to(text)
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise RefusedError("the disk at home cannot have links; name a folder on another disk") from error
            raise

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
        if kept := self._stored.pop(source, None):
            self._stored[target] = kept
            self._stored_new = True

    def finish(self, *, all_files: bool = False) -> None:
        """Remove parts of earlier versions, unless another pull needs them. Nothing more comes.

        They are those of files for which `part` was called, or with `all_files` all parts of the run.
        """
        if self._parts.name != PARTS:
            shutil.rmtree(self._parts, ignore_errors=True)
            return
        with suppress(HomeError):
            if self._parts.is_dir():
                self.take()
        if self._lock is None:
            return
        with suppress(OSError):
            run = f"{_short(self._run)}-"
            for path in self._parts.iterdir():
                file, _, _ = path.name.rpartition("-")
                if f"{file}-" in self._files or (all_files and path.name.startswith(run)):
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
        if error.errno in _ODD_NAME and path != self.folder:
            return RefusedError(f"the disk at home refuses its name ({error.strerror}); name a folder on another disk")
        hint = "choose another folder, or check its permissions"
        return HomeError(f"{path} cannot be written: {error.strerror}", hint=hint)
