"""The folder of a data set on one host: files/ is what nodes see, coming/ has what is not complete.

An unfinished file is coming/KEY, where KEY belongs to one version of one file. A file of one extent is never there in
part, so it is coming/new/PATH: a folder that files/ lacks then moves there as a whole. coming/done lists the extents
that are written, with their checksums, so that a staging continues after any kill. After a restart of the machine, what
is listed may never have reached the disk. Then a checksum decides.
"""

import contextlib
import hashlib
import os
import shutil
import stat
import threading
from typing import Any, Dict, List, Optional, Sequence, Tuple

from kitdata import journal, manifest, mark, placing
from kitdata.journal import Journal
from kitdata.manifest import Kept
from kitdata.placing import Placing
from kitdata.plan import Have
from kitdata.source import Entry

FILES, COMING, NEW = "files", "coming", "new"
# Files below more folders than this have a KEY: what walks coming/new calls itself for each level.
MOST_LEVELS = 100
_NANO = 10**9
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC


class Incomplete(Exception):
    """The host lacks a part of this file, by number."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class Folder:
    """What one host has of a data set, and where new bytes go. `expect` must be called first, and again for a new list.

    Errors of the disk are OSError. Calls for different extents may come from several threads.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._files = os.path.join(path, FILES)
        self._coming = os.path.join(path, COMING)
        self._new = os.path.join(self._coming, NEW)
        self._lock = threading.Lock()
        self._entries: List[Entry] = []
        # For each file of the list: the checksums of its extents, empty where it is not here.
        self._sums: List[List[bytes]] = []
        # Whether the file is in files/, in its newest version.
        self._placed: List[bool] = []
        self._left: List[int] = []
        self._keys: List[str] = []
        self._old: Dict[str, Kept] = {}
        # How many files an interrupted staging has begun.
        self._begun = 0
        self._finished = False
        self._journal: Optional[Journal] = None
        self._same_boot = True
        self._looking = threading.Lock()
        # What `look` saw, until somebody asks.
        self._unchanged: Optional[bool] = None
        os.makedirs(self._files, mode=0o755, exist_ok=True)

    def free(self) -> Tuple[int, int]:
        """Return (free bytes, free inodes); the latter is very large where a file system has no limit."""
        disk = os.statvfs(self.path)
        return disk.f_bavail * disk.f_frsize, disk.f_favail if disk.f_files else 1 << 60

    def look(self) -> None:
        """Look already whether something has changed since the last staging. `is_staged` waits for it, and uses it."""
        with self._looking:
            self._unchanged = mark.holds(self.path, self._files)

    def _is_unchanged(self) -> bool:
        with self._looking:
            seen, self._unchanged = self._unchanged, None
        return mark.holds(self.path, self._files) if seen is None else seen

    def is_staged(self, id_: str, source: str) -> bool:
        """Return whether all of this version is here, without its list: by the summary, and by the mark of its end.

        Without a mark that holds, each file's size and time decide. It takes a small part of the time of `expect`,
        because most stagings find nothing to do.
        """
        known = manifest.summary(self.path)
        if (known.get("id"), known.get("source"), known.get("split")) != (id_, source, "none"):
            return False
        if not self._is_unchanged():
            # What changes while this looks at the files is later than the mark.
            new = mark.begin(self.path)
            rows = manifest.rows(self.path)
            if rows is None or not all(self._is_placed(Entry(*row[:3])) for row in rows):
                mark.drop(self.path)
                return False
            mark.keep(self.path, new)
        shutil.rmtree(self._coming, ignore_errors=True)
        return True

    def expect(self, entries: Sequence[Entry]) -> Have:
        """Take this list of files as the newest, and return what of it is here. Remove unfinished files of no use.

        An empty list removes none: `finish` does.
        """
        self._close_journal()
        self._finished = False
        known = manifest.read(self.path)
        self._old = known.files if known else {}
        listed, self._same_boot = journal.read(self._coming)
        self._begun = len(listed)
        self._entries = list(entries)
        self._sums, self._placed, self._left, self._keys = [], [], [], []
        whole: List[int] = []
        parts: Dict[int, frozenset[int]] = {}
        for number, entry in enumerate(entries):
            kept = self._old.get(entry.path)
            count = manifest.extents(entry.size)
            if self._is_kept(kept, entry):
                assert kept is not None
                self._add(list(kept.sums), True, 0, "")
                whole.append(number)
                continue
            name = manifest.key(entry)
            sums = self._unfinished(name, entry, listed.get(name, {}))
            left = sums.count(b"")
            # A staging that was killed while it gave files their names.
            placed = left == 0 and not os.path.exists(self._part(name, entry))
            self._add(sums, placed, left, name)
            if left == 0:
                whole.append(number)
            elif left < count:
                parts[number] = frozenset(part for part in range(count) if sums[part])
        # Without any file, the source's disk may not be mounted. What came then stays for the next staging.
        if entries:
            self._clean()
            self._restart_journal()
        return Have(frozenset(whole), parts)

    def _add(self, sums: List[bytes], placed: bool, left: int, name: str) -> None:
        self._sums.append(sums)
        self._placed.append(placed)
        self._left.append(left)
        self._keys.append(name)

    def _unfinished(self, name: str, entry: Entry, listed: Dict[int, bytes]) -> List[bytes]:
        """Return the checksums of the extents that an interrupted staging wrote."""
        count = manifest.extents(entry.size)
        sums = [listed.get(part, b"") for part in range(count)]
        if not listed:
            return sums
        try:
            about = os.stat(self._part(name, entry))
            size = about.st_size
        except FileNotFoundError:
            return sums if all(sums) and self._is_placed(entry) else [b""] * count
        for part in range(count):
            offset, length = manifest.extent(entry.size, part)
            if offset + length > size:
                sums[part] = b""
        if not self._same_boot:
            for part in range(count):
                data = self._at(self._part(name, entry), entry, part) if sums[part] else b""
                if sums[part] and hashlib.sha256(data).digest() != sums[part]:
                    sums[part] = b""
        return sums

    def _is_kept(self, kept: Optional[Kept], entry: Entry) -> bool:
        if kept is None or manifest.SPOILED in kept.sums:
            return False
        return manifest.same(kept.entry, entry) and self._is_placed(entry)

    def _is_placed(self, entry: Entry) -> bool:
        try:
            about = os.lstat(self._final(entry.path))
        except (OSError, ValueError):
            return False
        # Some file systems keep whole seconds.
        same_time = abs(about.st_mtime_ns - entry.mtime) < _NANO
        return stat.S_ISREG(about.st_mode) and about.st_size == entry.size and same_time

    def _part(self, name: str, entry: Entry) -> str:
        """Return where a file is until it is complete. `name` is its key."""
        return self._new + "/" + entry.path if _is_new(entry) else self._coming + "/" + name

    def _final(self, path: str) -> str:
        return os.path.join(self._files, path)

    def _clean(self) -> None:
        """Remove unfinished files that belong to no file of the list."""
        wanted = {
            self._part(name, entry)
            for name, entry, sums in zip(self._keys, self._entries, self._sums)
            if name and any(sums)
        }
        wanted.add(os.path.join(self._coming, journal.NAME))
        for folder, folders, names in os.walk(self._coming, topdown=False):
            for path in (os.path.join(folder, name) for name in names):
                if path not in wanted:
                    with contextlib.suppress(OSError):
                        os.unlink(path)
            for name in folders:
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.join(folder, name))

    def _restart_journal(self) -> None:
        """Begin the journal again, without lines that were cut or that no longer matter."""
        if any(self._keys):
            os.makedirs(self._coming, mode=0o700, exist_ok=True)
            self._journal = Journal(
                self._coming,
                (
                    [(name, part, digest) for part, digest in enumerate(sums) if digest]
                    for name, sums in zip(self._keys, self._sums)
                    if name
                ),
            )
        else:
            shutil.rmtree(self._coming, ignore_errors=True)

    def gone(self) -> int:
        """Return how many files this host has that the list no longer has; unfinished ones count for an empty list."""
        if not self._entries:
            return len(self._old) + self._begun
        names = {entry.path for entry in self._entries}
        return sum(path not in names for path in self._old)

    def has(self, parts: Sequence[Tuple[int, int]]) -> bool:
        """Return whether all of these extents are here."""
        return all(self._sums[number][part] for number, part in parts)

    def sums(self, parts: Sequence[Tuple[int, int]]) -> List[bytes]:
        """Return the checksums of extents that are here."""
        return [self._sums[number][part] for number, part in parts]

    def write(self, parts: Sequence[Tuple[int, int]], data: memoryview, sums: Sequence[bytes]) -> List[int]:
        """Write extents, whose bytes follow each other in `data`. Return the files that this completes."""
        at = 0
        rows: List[journal.Row] = []
        whole: List[int] = []
        for (number, part), digest in zip(parts, sums):
            entry = self._entries[number]
            offset, length = manifest.extent(entry.size, part)
            with self._lock:
                known = bool(self._sums[number][part])
            if not known:
                alone = length == entry.size
                self._put(number, entry, offset, data[at : at + length], alone)
                rows.append((self._keys[number], part, digest))
            at += length
        with self._lock:
            assert self._journal is not None
            self._journal.add(rows)
            for (number, part), digest in zip(parts, sums):
                if not self._sums[number][part]:
                    self._sums[number][part] = digest
                    self._left[number] -= 1
                    if self._left[number] == 0:
                        whole.append(number)
        return whole

    def _put(self, number: int, entry: Entry, offset: int, data: memoryview, alone: bool) -> None:
        path = self._part(self._keys[number], entry)
        try:
            file = os.open(path, _WRITE, 0o644)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            file = os.open(path, _WRITE, 0o644)
        try:
            while data:
                count = os.pwrite(file, data, offset)
                data, offset = data[count:], offset + count
            if alone:
                os.utime(file, ns=(entry.mtime, entry.mtime))
        finally:
            os.close(file)

    def read(self, parts: Sequence[Tuple[int, int]]) -> bytes:
        """Return the bytes of extents that are here. Raises OSError if a file is gone, or shorter than it was."""
        return b"".join(self.extent(number, part) for number, part in parts)

    def extent(self, number: int, part: int) -> bytes:
        """Return the bytes of one extent. Raises OSError."""
        entry = self._entries[number]
        path = self._final(entry.path) if self._placed[number] else self._part(self._keys[number], entry)
        return self._at(path, entry, part)

    def _at(self, path: str, entry: Entry, part: int) -> bytes:
        offset, length = manifest.extent(entry.size, part)
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            data = os.pread(file, length, offset)
            while len(data) < length:
                more = os.pread(file, length - len(data), offset + len(data))
                if not more:
                    break
                data += more
            return data
        finally:
            os.close(file)

    def forget(self, parts: Sequence[Tuple[int, int]]) -> None:
        """Take these extents as not here, because their bytes are wrong, so that they come again.

        Files in files/ come again as a whole: if not in this round, then in the next one, for which the manifest no
        longer has them. After `finish` this does nothing.
        """
        with self._lock:
            if self._finished:
                return
            spoiled = [self._entries[number].path for number, _ in parts if self._placed[number]]
            if any(path in self._old for path in spoiled):
                manifest.spoil(self.path, spoiled)
            for number, part in parts:
                entry = self._entries[number]
                if self._placed[number]:
                    # What is in files/ stays until the new one is complete.
                    self._placed[number] = False
                    self._keys[number] = manifest.key(entry)
                    self._sums[number] = [b""] * manifest.extents(entry.size)
                    self._left[number] = len(self._sums[number])
                elif self._sums[number][part]:
                    self._sums[number][part] = b""
                    self._left[number] += 1
                    if _is_new(entry):
                        self._remove_part(number)
            # The old one lists what is wrong.
            self._close_journal()
            self._restart_journal()

    def finish(self, mine: Sequence[int], summary: Dict[str, Any]) -> int:
        """Give the files of `mine` their names, remove what the source no longer has, and write the manifest.

        `mine` are the numbers of the files that this host must have. Return how many files were removed. Raises
        Incomplete, and changes nothing, if one of them is not complete.
        """
        self._end_forgetting(mine)
        fresh = [number for number in mine if not self._placed[number]]
        old = [number for number in mine if self._placed[number]]
        kept = [Kept(self._entries[number], tuple(self._sums[number])) for number in mine]
        names = {item.entry.path for item in kept}
        gone = [path for path in self._old if path not in names]
        mark.drop(self.path)
        self._place(fresh, gone)
        # What changes from now on is later than the mark.
        new = mark.begin(self.path)
        same = not fresh and not gone and len(names) == len(self._old)
        known = manifest.summary(self.path)
        # kit compares these with kit.yaml. A new source may have the same files as the old one.
        if not same or any(known.get(key) != summary.get(key) for key in ("id", "source", "stage", "split", "among")):
            if fresh:
                placing.sync(self._files)
            manifest.write(self.path, kept, summary)
        # Somebody may have changed a file since `expect` looked at it. Then the next staging must look again, as it
        # always does for a split.
        if summary.get("split") != "hosts" and all(self._is_placed(self._entries[number]) for number in old):
            mark.keep(self.path, new)
        else:
            mark.drop(self.path)
        self._close_journal()
        shutil.rmtree(self._coming, ignore_errors=True)
        return len(gone)

    def _end_forgetting(self, mine: Sequence[int]) -> None:
        """Raise Incomplete if one of these files is not complete.

        Later, nothing may look wrong only because its file has just got its name.
        """
        with self._lock:
            for number in mine:
                if self._left[number]:
                    raise Incomplete(number)
            self._finished = True

    def _place(self, fresh: Sequence[int], gone: Sequence[str]) -> None:
        """Give these files their names, and remove those that the source no longer has."""
        placer = Placing(self._files)
        for number in fresh:
            entry = self._entries[number]
            if manifest.extents(entry.size) > 1:
                os.utime(self._part(self._keys[number], entry), ns=(entry.mtime, entry.mtime))
        for number in {at for at, name in enumerate(self._keys) if name and not self._placed[at]}.difference(fresh):
            # Another host's part of a split, which must not get a name here.
            self._remove_part(number)
        if fresh:
            placing.sync(self._files)
        # First, because a file may have become a folder, or a folder a file.
        for path in gone:
            placer.remove(path)
        placer.place_all(self._new)
        for number in fresh:
            entry = self._entries[number]
            if not _is_new(entry):
                placer.place(self._part(self._keys[number], entry), entry.path)
            self._placed[number] = True

    def _remove_part(self, number: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._part(self._keys[number], self._entries[number]))

    def close(self) -> None:
        self._close_journal()

    def _close_journal(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None


def _is_new(entry: Entry) -> bool:
    """Return whether the file has its path already before it is complete."""
    return manifest.extents(entry.size) == 1 and entry.path.count("/") <= MOST_LEVELS
