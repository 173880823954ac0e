"""What a host has of a data set: manifest.json lists the files with checksums, and staged.json is a short summary.

A file consists of extents of at most EXTENT bytes, and each has a SHA-256. An empty file has one empty extent. Both
files are written last, and each replaces the earlier one at once: what a manifest lists was on the disk before it.
"""

import contextlib
import hashlib
import json
import os
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from kitdata import mark
from kitdata.source import Entry, SourceError, Version, check_path

EXTENT = 4 * 1024 * 1024
VERSION = 1
_ROWS = 1000
_ID_DIGITS = 16
MANIFEST, SUMMARY = "manifest.json", "staged.json"
# SHA-256.
SUM_BYTES = 32
# In place of the checksums of a file whose bytes were found wrong. The file is as good as missing.
SPOILED = bytes(SUM_BYTES)


class Kept(NamedTuple):
    """A file that a host has. `sums` has the SHA-256 of each extent."""

    entry: Entry
    sums: Tuple[bytes, ...]


class Manifest(NamedTuple):
    """All files that a host has, by path."""

    files: Dict[str, Kept]


def extents(size: int) -> int:
    """Return how many extents a file of this size has."""
    return max(1, -(-size // EXTENT))


def extent(size: int, number: int) -> Tuple[int, int]:
    """Return (offset, length) of an extent, in bytes."""
    offset = number * EXTENT
    return offset, min(EXTENT, size - offset)


def listing_id(entries: Sequence[Entry]) -> str:
    """Return 16 hexadecimal digits that say which version of the source this listing is."""
    digest = hashlib.sha256()
    for at in range(0, len(entries), _ROWS):
        digest.update(b"".join(map(_identity, entries[at : at + _ROWS])))
    return digest.hexdigest()[:_ID_DIGITS]


def version(entries: Sequence[Entry]) -> Version:
    """Return which version of the source this listing is. The entries are sorted by path."""
    return Version(listing_id(entries), len(entries), sum(entry.size for entry in entries))


def is_id(value: Any) -> bool:
    """Return whether this can be what `listing_id` returns."""
    return isinstance(value, str) and len(value) == _ID_DIGITS and not set(value) - set("0123456789abcdef")


def key(entry: Entry) -> str:
    """Return the name of an unfinished file: the same for the same version of a file, and for no other."""
    return hashlib.blake2b(_identity(entry), digest_size=16).hexdigest()


def _identity(entry: Entry) -> bytes:
    text = "%s\0%d\0%d\0%s\0" % (entry.path, entry.size, entry.mtime, entry.md5)
    return text.encode("utf-8", "surrogateescape")


def same(one: Entry, other: Entry) -> bool:
    """Return whether this is one version of a file. A source may know an MD5 at one time, and not at another."""
    return one[:3] == other[:3] and (one.md5 == other.md5 or not one.md5 or not other.md5)


def entry_of(value: Any) -> Entry:
    """Return the entry that came as JSON. Raises SourceError (source-name) for a bad path, ValueError for the rest."""
    if not isinstance(value, list) or len(value) not in (3, 4):
        raise ValueError("this is not an entry of a listing")
    path, size, mtime = value[:3]
    md5 = value[3] if len(value) > 3 else ""
    if not isinstance(path, str) or type(size) is not int or type(mtime) is not int or not isinstance(md5, str):
        raise ValueError("this is not an entry of a listing")
    if not 0 <= size <= 1 << 50 or abs(mtime) >= 1 << 63 or len(md5) not in (0, 32):
        raise ValueError("this is not an entry of a listing")
    check_path(path)
    return Entry(path, size, mtime, md5)


def columns(entries: Sequence[Entry]) -> List[List[Any]]:
    """Return entries in short, as five lists. Paths that follow each other begin alike, and times are close.

    They have for each entry: how many letters of its path are those of the path before, the others, the size, the time
    less the one before, and the MD5. The last list is empty if no entry has one.
    """
    shared, rest, times = [], [], []
    path, time = "", 0
    for entry in entries:
        same_letters = _alike(path, entry.path)
        shared.append(same_letters)
        rest.append(entry.path[same_letters:])
        times.append(entry.mtime - time)
        path, time = entry.path, entry.mtime
    md5s = [entry.md5 for entry in entries]
    return [shared, rest, [entry.size for entry in entries], times, md5s if any(md5s) else []]


def entries_of(columns: Sequence[Any]) -> List[Entry]:
    """Return the entries that `columns` has in short. Raises as `entry_of`, and ValueError for other lists."""
    shared, rest, sizes, times, md5s = columns
    md5s = md5s or [""] * len(rest)
    if not len(shared) == len(rest) == len(sizes) == len(times) == len(md5s):
        raise ValueError("these are not the columns of a listing")
    result = []
    path, time = "", 0
    for same_letters, others, size, later, md5 in zip(shared, rest, sizes, times, md5s):
        path, time = path[:same_letters] + others, time + later
        result.append(entry_of([path, size, time, md5]))
    return result


def _alike(one: str, other: str) -> int:
    """Return with how many equal letters two paths begin."""
    count = 0
    for letter, another in zip(one, other):
        if letter != another:
            break
        count += 1
    return count


def write(folder: str, kept: Sequence[Kept], summary: Dict[str, Any]) -> None:
    """Write manifest.json, and then staged.json. Raises OSError."""
    replace(os.path.join(folder, MANIFEST), _text(kept))
    replace(os.path.join(folder, SUMMARY), [json.dumps(summary)])


def _text(kept: Sequence[Kept]) -> Iterator[str]:
    """Yield the parts of manifest.json: of many files, all of it at once would take much memory."""
    yield '{"version": %d, "files": [' % VERSION
    for at in range(0, len(kept), _ROWS):
        part = [[*item.entry, [digest.hex() for digest in item.sums]] for item in kept[at : at + _ROWS]]
        yield (", " if at else "") + json.dumps(part)[1:-1]
    yield "]}"


def spoil(folder: str, paths: Sequence[str]) -> None:
    """Mark files whose bytes are wrong, so that the next staging brings them again. Raises OSError."""
    mark.drop(folder)
    path = os.path.join(folder, MANIFEST)
    with open(path) as file:
        value = json.load(file)
    bad = set(paths)
    for item in value["files"]:
        if item[0] in bad:
            item[4] = [SPOILED.hex()] * len(item[4])
    replace(path, [json.dumps(value)])


def read(folder: str) -> Optional[Manifest]:
    """Return the manifest of a host; None if it has no readable one."""
    try:
        with open(os.path.join(folder, MANIFEST)) as file:
            value = json.load(file)
        if value["version"] != VERSION:
            return None
        files = {}
        for item in value["files"]:
            entry = entry_of(item[:4])
            sums = tuple(map(bytes.fromhex, item[4]))
            if len(sums) != extents(entry.size) or any(len(digest) != SUM_BYTES for digest in sums):
                return None
            files[entry.path] = Kept(entry, sums)
        return Manifest(files)
    except (OSError, ValueError, LookupError, TypeError, SourceError):
        return None


def rows(folder: str) -> Optional[List[Any]]:
    """Return the files of the manifest as [path, size, mtime, …], unchecked; None if one of them is spoiled."""
    try:
        with open(os.path.join(folder, MANIFEST)) as file:
            text = file.read()
        result: List[Any] = json.loads(text)["files"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return None if SPOILED.hex() in text else result


def summary(folder: str) -> Dict[str, Any]:
    """Return staged.json, or {}."""
    try:
        with open(os.path.join(folder, SUMMARY)) as file:
            value = json.load(file)
        return value if isinstance(value, dict) else {}
    except (OSError, ValueError):
        return {}


def replace(path: str, parts: Iterable[str]) -> None:
    """Write a file so that another process finds the old text or all of the new, also after a power failure."""
    new = path + ".new"
    try:
        with open(new, "w") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.rename(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise
    sync_folder(os.path.dirname(path))


def sync_folder(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
