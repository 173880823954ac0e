"""Take a snapshot of a code folder: which files it has, and the SHA-256 of each."""

from __future__ import annotations

import contextlib
import errno
import gc
import hashlib
import os
import pwd
import stat
import time
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path

from kit.model.code import Snapshot
from kit.remote.code import faults, git, hashes, manifests
from kit.remote.code.beside import Beside
from kit.remote.code.facts import facts
from kit.remote.code.hashes import Kept, Row, row
from kit.remote.code.limits import MOST_BYTES, MOST_FILES, too_large
from kit.remote.code.listing import Listing, listing
from kit.remote.ship.porter import manifest
from kit.remote.ship.porter.manifest import shown

# A file that was written so shortly before the scan may change once more within the same tick of its clock.
_SETTLED_NS = 2_000_000_000
_TRIES = 3
_PAUSE_S = 0.1
_CHUNK = 1 << 20
_KIND = 0o170000
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS = {
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}

# The numbers of a file and its line in the manifest. A link or folder has UNKNOWN.
_Known = tuple[Row, bytes]


def take(folder: Path, *, plain: bool = False) -> Snapshot:
    """Return the snapshot of a folder. Raises InputError for a folder or file that cannot be part of one.

    `plain`: take all files, also if the folder is below a git work tree.
    """
    top = checked(folder)
    for number in range(_TRIES):
        if number:
            time.sleep(_PAUSE_S)
        snapshot, same = _taken(top, plain=plain)
        if same:
            break
    # Otherwise something writes all the time, such as a log that git tracks.
    return snapshot


def _taken(top: Path, *, plain: bool) -> tuple[Snapshot, bool]:
    """Return the snapshot of a folder, and whether git's difference is of the same files."""
    with _no_collections():
        from_git = not plain and git.has_repository(top)
        head = Beside(lambda: git.head(top)) if from_git else None
        coming = Beside(lambda: listing(top, plain=plain))
        kept = hashes.load(top)
        # While git lists the files, look at those that it listed the last time.
        early = _numbers(top, kept.paths.split(b"\0")[:-1]) if from_git and kept else None
        files = coming.result()
        text, size, is_same = _content(top, files, kept, early)
    digest = manifest.digest(text)
    manifests.remember(digest, text)
    about, same = None, True
    if head and files.git:
        about, same = facts(top, head.result(), files, digest, is_same)
    snapshot = Snapshot(
        folder=top,
        manifest=text,
        digest=digest,
        files=text.count(b"\nf\t"),
        size=size,
        git=about,
    )
    return snapshot, same


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Pause the search for garbage in cycles: these many small values have none, and it costs a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def checked(folder: Path) -> Path:
    """Return the folder's absolute path. Raises InputError for a folder that is missing or surely not code alone."""
    try:
        top = folder.resolve(strict=True)
    except FileNotFoundError as error:
        raise faults.missing(str(folder)) from error
    except (OSError, RuntimeError, ValueError) as error:
        raise faults.unreadable(str(folder), getattr(error, "strerror", None) or str(error)) from error
    if not top.is_dir():
        raise faults.no_folder(str(folder))
    if top == top.parent:
        raise faults.too_wide(str(top), "the whole file system")
    if str(top) in ("/home", "/Users"):
        raise faults.too_wide(str(top), "the folder of all home folders")
    if top in _homes() or str(top.parent) in ("/home", "/Users"):
        raise faults.too_wide(str(top), "a home folder")
    return top


def _homes() -> set[Path]:
    homes = {Path("/root")}
    with contextlib.suppress(RuntimeError, OSError):
        homes.add(Path.home().resolve())
    with contextlib.suppress(KeyError, OSError):
        homes.add(Path(pwd.getpwuid(os.getuid()).pw_dir).resolve())
    return homes


def _content(
    top: Path, files: Listing, kept: Kept | None, early: array[int] | None
) -> tuple[bytes, int, Callable[[], bool]]:
    """Return the manifest of the files, their size in bytes, and what looks whether they are still the same.

    `early` has the numbers of the paths in `kept`.
    """
    settled = time.time_ns() - _SETTLED_NS
    paths = sorted({*files.paths, *files.empty})
    at = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if kept and kept.paths == hashes.ended(paths):
            now = early or _numbers(top, paths)
            same = _with_changes(top, at, kept, now, settled) if now else None
            if now and same:
                if same is not kept:
                    hashes.save(top, same)
                return manifest.HEADER + same.lines, _size(now), lambda: _numbers(top, paths) == now
        entries, seen = _entries(top, at, files, kept, settled)
    finally:
        os.close(at)
    text = manifest.join([line for _, line in entries.values()])
    return text, sum([numbers[3] for numbers, _ in entries.values()]), lambda: _is_same(top, paths, seen)


def _is_same(top: Path, paths: list[bytes], seen: Mapping[bytes, Row]) -> bool:
    """Return whether these files and links, and no others at these paths, still have the numbers that kit has seen."""
    links = {path for path, numbers in seen.items() if stat.S_ISLNK(numbers[4])}
    at = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for path in paths:
            try:
                numbers = row(os.stat(path, dir_fd=at, follow_symlinks=False))
            except OSError:
                numbers = hashes.UNKNOWN
            if path in seen:
                if numbers != seen[path]:
                    return False
            elif stat.S_IFMT(numbers[4]) in (stat.S_IFREG, stat.S_IFLNK) and not _is_below(path, links):
                return False
    finally:
        os.close(at)
    return True


def _numbers(top: Path, paths: list[bytes]) -> array[int] | None:
    """Return the numbers of what is at these paths, or None if one is missing."""
    try:
        at = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # There may be 50,000, and somebody waits for this loop, so it is one of C.
            return hashes.flat(map(row, map(partial(os.stat, dir_fd=at, follow_symlinks=False), paths)))
        finally:
            os.close(at)
    except (OSError, OverflowError):
        return None


def _size(numbers: array[int]) -> int:
    """Return how many bytes the files have together."""
    pairs = zip(numbers[hashes.SIZE :: hashes.WIDTH], numbers[hashes.MODE :: hashes.WIDTH], strict=True)
    return sum([size for size, mode in pairs if stat.S_ISREG(mode)])


def _with_changes(top: Path, at: int, kept: Kept, now: array[int], settled: int) -> Kept | None:
    """Return `kept` with the files that have changed, and correct their numbers in `now`.

    None if anything but files has changed, or if there is too much: then every entry is looked at.
    """
    count = len(now) // hashes.WIDTH
    if count > MOST_FILES or sum(now[hashes.SIZE :: hashes.WIDTH]) > MOST_BYTES:
        return None
    places = hashes.differing(kept.numbers, now)
    if not places:
        return kept
    paths, lines, numbers = kept.paths.split(b"\0"), kept.lines.split(b"\n"), kept.numbers[:]
    for place in places:
        here = slice(place * hashes.WIDTH, (place + 1) * hashes.WIDTH)
        is_file = stat.S_ISREG(now[here][hashes.MODE]) and lines[place].startswith(b"f")
        entry = _file(top, at, paths[place]) if is_file else None
        if entry is None:
            return None
        now[here] = array("q", entry[0])
        lines[place] = entry[1]
        numbers[here] = array("q", _trusted(entry[0], settled))
    return Kept(numbers, kept.paths, b"\n".join(lines))


def _trusted(numbers: Row, settled: int) -> Row:
    """Return the numbers to keep of an entry: UNKNOWN if it may change once more without another time."""
    return numbers if max(numbers[1], numbers[2]) < settled else hashes.UNKNOWN


def _entries(
    top: Path, at: int, files: Listing, before: Kept | None, settled: int
) -> tuple[dict[bytes, _Known], Mapping[bytes, Row]]:
    """Return the numbers and the line of each entry, sorted by path, and the numbers of files and links."""
    rows = _rows(top, at, files)
    _check_size(top, rows)
    links = _links(top, at, rows)
    known = before.entries() if before else {}
    entries: dict[bytes, _Known] = {}
    trusted: dict[bytes, _Known] = {}
    for path, numbers in rows.items():
        old = known.get(path)
        if old is not None and old[0] == numbers and stat.S_ISREG(numbers[4]):
            entries[path] = trusted[path] = old
            continue
        entry = _entry(top, at, path, numbers, links)
        if entry:
            entries[path] = entry
            # A link or folder has no numbers in `entries`, because it has no bytes.
            trusted[path] = _trusted(numbers if entry[0] == hashes.UNKNOWN else entry[0], settled), entry[1]
    with contextlib.suppress(OverflowError):
        kept = Kept.of(trusted)
        if kept != before:
            hashes.save(top, kept)
    seen = {
        path: rows[path] if entry[0] == hashes.UNKNOWN else entry[0]
        for path, entry in entries.items()
        if not stat.S_ISDIR(rows[path][4])
    }
    return entries, seen


def _rows(top: Path, at: int, files: Listing) -> dict[bytes, Row]:
    """Return the numbers of each entry that exists, sorted by path."""
    empty = set(files.empty)
    rows: dict[bytes, Row] = {}
    links = False
    for path in sorted({*files.paths, *empty}):
        try:
            status = os.stat(path, dir_fd=at, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            # git still has it in its index, or it was removed after it was listed.
            continue
        except OSError as error:
            raise faults.unreadable(_name(top, path), error.strerror or str(error)) from error
        kind = status.st_mode & _KIND
        if kind == stat.S_IFREG or path in empty:
            rows[path] = row(status)
        elif kind == stat.S_IFLNK:
            rows[path] = row(status)
            links = True
        elif kind in _KINDS:
            raise faults.special(_name(top, path), _KINDS[kind])
    return _without_hidden(rows) if links else rows


def _without_hidden(rows: dict[bytes, Row]) -> dict[bytes, Row]:
    """Return the rows without those below a link: git still has them in its index, from when it was a folder."""
    links = {path for path, numbers in rows.items() if stat.S_ISLNK(numbers[4])}

    return {path: numbers for path, numbers in rows.items() if not _is_below(path, links)}


def _is_below(path: bytes, links: Collection[bytes]) -> bool:
    parts = path.split(b"/")
    return any(b"/".join(parts[:count]) in links for count in range(1, len(parts)))


def _check_size(top: Path, rows: dict[bytes, Row]) -> None:
    if len(rows) > MOST_FILES or sum([numbers[3] for numbers in rows.values()]) > MOST_BYTES:
        fault = too_large(str(top), [(shown(path), numbers[3]) for path, numbers in rows.items()])
        if fault:
            raise fault


def _links(top: Path, at: int, rows: dict[bytes, Row]) -> dict[bytes, bytes]:
    """Return the target of each link. Raises InputError for one that leads out of the folder."""
    links: dict[bytes, bytes] = {}
    for path, numbers in rows.items():
        if stat.S_ISLNK(numbers[4]):
            # If it is gone by now, it is left out later.
            with contextlib.suppress(OSError):
                links[path] = os.readlink(path, dir_fd=at)
    for path, target in links.items():
        if manifest.leads_out(path, target, links):
            raise faults.leads_out(shown(os.fsencode(top)), shown(path), shown(target))
    return links


def _entry(top: Path, at: int, path: bytes, numbers: Row, links: dict[bytes, bytes]) -> _Known | None:
    """Return an entry as it is now, or None if it is gone."""
    if path in links:
        return hashes.UNKNOWN, manifest.link_line(path, links[path])
    if stat.S_ISDIR(numbers[4]):
        return hashes.UNKNOWN, manifest.folder_line(path)
    if stat.S_ISLNK(numbers[4]):
        return None
    return _file(top, at, path)


def _file(top: Path, at: int, path: bytes) -> _Known | None:
    """Return the entry of a file: what was read is what its numbers and its hash describe."""
    for _ in range(_TRIES):
        try:
            descriptor = os.open(path, _OPEN, dir_fd=at)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise faults.changing(_name(top, path)) from error
            raise faults.unreadable(_name(top, path), error.strerror or str(error)) from error
        try:
            before = os.fstat(descriptor)
            digest, count = _read(descriptor, before.st_size)
            if row(before) == row(os.fstat(descriptor)) and count == before.st_size and stat.S_ISREG(before.st_mode):
                mode = 0o755 if before.st_mode & stat.S_IXUSR else 0o644
                return row(before), manifest.file_line(mode, digest, count, path)
        except OSError as error:
            raise faults.unreadable(_name(top, path), error.strerror or str(error)) from error
        finally:
            os.close(descriptor)
        time.sleep(_PAUSE_S)
    raise faults.changing(_name(top, path))


def _read(descriptor: int, size: int) -> tuple[str, int]:
    """Return the SHA-256 and the number of the file's bytes."""
    digest = hashlib.sha256()
    count = 0
    # One byte more than there should be, so that the end of a small file is seen with the first read.
    while chunk := os.read(descriptor, min(_CHUNK, max(size - count, 0) + 1)):
        digest.update(chunk)
        count += len(chunk)
    return digest.hexdigest(), count


def _name(top: Path, path: bytes) -> str:
    return shown(os.fsencode(top) + b"/" + path)
