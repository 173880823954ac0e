"""A source that is a folder which this host sees: on its disk, or a mount of NFS or Lustre."""

import contextlib
import errno
import functools
import os
import stat
from typing import Callable, Iterator, List, Optional, Tuple, TypeVar

from kitdata.hands import Hands, Held
from kitdata.source import Entry, Source, SourceError, check_path, shown

T = TypeVar("T")

# A server of a mount that does not answer for this long is lost. NFS itself would wait forever.
PATIENCE_S = 30.0
# Files that one call lists at most, so that a large folder is not taken for one that hangs.
BATCH = 500
# What a mount says whose server is gone.
_LOST = (errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ESHUTDOWN)
_REFUSED = (errno.EACCES, errno.EPERM)
# A FIFO must not hold us, nor a terminal become ours.
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Folder(Source):
    """Reads the files below a folder. Links that stay inside are followed; others are an error, as is a pipe.

    Without an answer for `patience` seconds, the folder's server counts as gone.
    """

    def __init__(self, path: str, label: str = "", patience: float = PATIENCE_S) -> None:
        self.label = label or path
        self._path = os.path.abspath(path)
        self._hands = Hands(patience)
        self._patience = patience
        self._real = ""

    def entries(self) -> Iterator[Entry]:
        """Yield the files, folder by folder, each sorted by name."""
        self._real = self._call("", lambda: _real_folder(self._path))
        # (path below the source, ids of the folders above it and of itself)
        waiting: List[Tuple[str, Tuple[Tuple[int, int], ...]]] = [("", ())]
        while waiting:
            folder, above = waiting.pop()
            names, me = self._call(folder, functools.partial(self._names, folder))
            if me in above:
                raise SourceError("source-name", "%s is a link to a folder above it" % shown(folder))
            deeper = []
            for at in range(0, len(names), BATCH):
                paths = [os.path.join(folder, name) for name in names[at : at + BATCH]]
                for path, entry in self._call(folder, functools.partial(self._look, paths)):
                    if entry is None:
                        deeper.append((path, (*above, me)))
                    else:
                        yield entry
            waiting.extend(reversed(deeper))

    def entry(self, path: str) -> Entry:
        check_path(path)
        return self._call(path, lambda: self._now(path))

    def read(self, entry: Entry, offset: int, length: int) -> bytes:
        check_path(entry.path)
        return self._call(entry.path, lambda: self._read(entry, offset, length))

    def close(self) -> None:
        self._hands.close()

    def _call(self, path: str, what: "Callable[[], T]") -> T:
        """Return what the call returns. An error of the system becomes what it means for a source."""
        try:
            return self._hands.call(what)
        except Held:
            text = "%s does not answer: nothing within %.0f s" % (self.label, self._patience)
            raise SourceError("source-lost", text) from None
        except OSError as error:
            raise self._meaning(path, error) from None

    def _meaning(self, path: str, error: OSError) -> SourceError:
        name = shown(path) if path else self.label
        why = os.strerror(error.errno) if error.errno else str(error)
        if error.errno in _LOST:
            return SourceError("source-lost", "%s does not answer: reading %s failed (%s)" % (self.label, name, why))
        if error.errno in _REFUSED:
            return SourceError("source-refused", "%s may not be read (%s)" % (name, why))
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            if path:
                return SourceError("source-changed", "%s is no longer in %s" % (name, self.label))
            return SourceError("source-missing", "%s is not there, or no folder" % name)
        if error.errno == errno.ELOOP:
            return SourceError("source-name", "%s is a link that leads to itself" % name)
        return SourceError("source-lost", "reading %s failed (%s)" % (name, why))

    # These run in a hand.

    def _names(self, folder: str) -> Tuple[List[str], Tuple[int, int]]:
        path = os.path.join(self._path, folder)
        about = os.stat(path)
        return sorted(os.listdir(path)), (about.st_dev, about.st_ino)

    def _look(self, paths: List[str]) -> List[Tuple[str, Optional[Entry]]]:
        """Return each path with its entry, or with None if it is a folder."""
        result: List[Tuple[str, Optional[Entry]]] = []
        for path in paths:
            try:
                about = self._about(path)
            except OSError as error:
                raise self._meaning(path, error) from None
            result.append((path, None if stat.S_ISDIR(about.st_mode) else _entry(path, about)))
        return result

    def _about(self, path: str) -> os.stat_result:
        full = os.path.join(self._path, path)
        about = os.lstat(full)
        if not stat.S_ISLNK(about.st_mode):
            return about
        if not _below(os.path.realpath(full), self._real):
            raise SourceError("source-name", "%s is a link that leads out of %s" % (shown(path), self.label))
        try:
            return os.stat(full)
        except FileNotFoundError:
            raise SourceError("source-name", "%s is a link to nothing" % shown(path)) from None

    def _now(self, path: str) -> Entry:
        with self._opened(path) as file:
            return _entry(path, os.fstat(file))

    def _read(self, entry: Entry, offset: int, length: int) -> bytes:
        with self._opened(entry.path) as file:
            parts = []
            at, end = offset, offset + length
            while at < end:
                part = os.pread(file, end - at, at)
                if not part:
                    break
                parts.append(part)
                at += len(part)
            now = _entry(entry.path, os.fstat(file))
            if at < end or (now.size, now.mtime) != (entry.size, entry.mtime):
                text = "%s has changed in %s since it was listed" % (shown(entry.path), self.label)
                raise SourceError("source-changed", text)
            return parts[0] if len(parts) == 1 else b"".join(parts)

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        """Open a file. A folder may become a link meanwhile, so this checks what it has opened, not the name."""
        if not self._real:
            self._real = _real_folder(self._path)
        file = os.open(os.path.join(self._path, path), _OPEN)
        try:
            if os.path.isdir("/proc/self/fd"):
                inside = _below(os.readlink("/proc/self/fd/%d" % file), self._real)
            else:
                inside = _below(os.path.realpath(os.path.join(self._path, path)), self._real)
            if not inside:
                raise SourceError("source-name", "%s is a link that leads out of %s" % (shown(path), self.label))
            yield file
        finally:
            os.close(file)


def _real_folder(path: str) -> str:
    if not stat.S_ISDIR(os.stat(path).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return os.path.realpath(path)


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _entry(path: str, about: os.stat_result) -> Entry:
    if not stat.S_ISREG(about.st_mode):
        raise SourceError("source-name", "%s is neither a file nor a folder" % shown(path))
    return Entry(path, about.st_size, about.st_mtime_ns)
