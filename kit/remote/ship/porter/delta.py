"""What turns one manifest into another: its entries that go, and those that come."""

from typing import List, NamedTuple, Tuple

from .manifest import DIGEST, BadManifest, escaped_path, is_line, join, lines_of, path_of, shown, size_of, unescape


class Delta(NamedTuple):
    """What turns one manifest into another.

    `removed` are escaped paths of the base, `added` are lines without their newline, both in the manifest's order.
    `objects` are (SHA-256, size) of the files that no entry of the base has, each once and sorted.
    """

    removed: List[bytes]
    added: List[bytes]
    objects: List[Tuple[str, int]]


def between(base: bytes, new: bytes) -> Delta:
    """Return what turns the manifest `base` into `new`. Both are valid."""
    old_lines, new_lines = lines_of(base), lines_of(new)
    old_set, new_set = set(old_lines), set(new_lines)
    removed = [escaped_path(line) for line in sorted(old_set - new_set, key=path_of)]
    added = sorted(new_set - old_set, key=path_of)
    sizes = {line[DIGEST]: size_of(line) for line in added if line.startswith(b"f")}
    if sizes:
        for known in {line[DIGEST] for line in old_lines} & set(sizes):
            del sizes[known]
    return Delta(removed, added, [(name.decode(), sizes[name]) for name in sorted(sizes)])


def merge(base: bytes, removed: List[bytes], added: List[bytes]) -> bytes:
    """Return the manifest that a delta's `removed` and `added` make of `base`. Raises BadManifest if they do not fit.

    It reads only the lines that it needs, so compare the result's digest with the expected one before you trust it.
    """
    lines = lines_of(base)
    changes: List[Tuple[int, int, bytes]] = []
    at, before = 0, b""
    for escaped in removed:
        path = unescape(escaped)
        at = _position(lines, path, _after(before, path, at))
        if at == len(lines) or path_of(lines[at]) != path:
            raise BadManifest("the base has no entry to remove at %s" % shown(path))
        changes.append((at, 1, b""))
        before = path
    gone = {index for index, _, _ in changes}
    at, before = 0, b""
    for line in added:
        if not is_line(line):
            raise BadManifest("this is not an entry: %s" % shown(line))
        path = path_of(line)
        at = _position(lines, path, _after(before, path, at))
        if at < len(lines) and at not in gone and path_of(lines[at]) == path:
            raise BadManifest("the base already has an entry at %s" % shown(path))
        changes.append((at, 0, line))
        before = path
    # Lines that are added at the same place keep their order, and come before the one that is removed there.
    merged: List[bytes] = []
    kept = 0
    for index, skip, line in sorted(changes, key=lambda change: change[:2]):
        merged += lines[kept:index]
        if line:
            merged.append(line)
        kept = index + skip
    merged += lines[kept:]
    return join(merged)


def _position(lines: List[bytes], path: bytes, low: int) -> int:
    """Return the index of the first line from `low` on whose path is not before `path`."""
    high = len(lines)
    while low < high:
        middle = (low + high) // 2
        if path_of(lines[middle]) < path:
            low = middle + 1
        else:
            high = middle
    return low


def _after(before: bytes, path: bytes, at: int) -> int:
    """Return `at`, where the search for `path` starts. Raises BadManifest if it does not come after `before`."""
    if path <= before:
        raise BadManifest("%s is out of order" % shown(path))
    return at
