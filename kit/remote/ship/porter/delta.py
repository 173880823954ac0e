"""What turns one manifest into another: its entries that go, and those that come.

A manifest may have 50,000 lines, and a run waits for this. So nothing here looks at every line if few differ.
"""

import json
from typing import List, NamedTuple, Optional, Set, Tuple

from .manifest import DIGEST, HEADER, BadManifest, check_ends, escaped_path, is_line, path_of, shown, size_of, unescape

# Up to this number of files, to search the base for each is faster than to know all that it has.
_FEW = 8
PACK = 1


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
    check_ends(base)
    check_ends(new)
    old_lines, new_lines = (set(lines) for lines in different(base, new))
    removed = [escaped_path(line) for line in sorted(old_lines - new_lines, key=path_of)]
    added = sorted(new_lines - old_lines, key=path_of)
    sizes = {line[DIGEST]: size_of(line) for line in added if line.startswith(b"f")}
    for known in _known(base, set(sizes)) if sizes else ():
        del sizes[known]
    return Delta(removed, added, [(name.decode(), sizes[name]) for name in sorted(sizes)])


def pack_head(digest: str, base: Optional[str], delta: Delta) -> bytes:
    """Return all lines of a pack (porter.code). The bytes of the objects follow them.

    `digest` names the snapshot, and `base` the one that the pack builds on, or is None.
    """
    first = {
        "kit-pack": PACK,
        "digest": digest,
        "base": base,
        "remove": len(delta.removed),
        "add": len(delta.added),
        "objects": len(delta.objects),
    }
    objects = ["{} {}".format(name, size).encode() for name, size in delta.objects]
    return b"".join(line + b"\n" for line in (json.dumps(first).encode(), *delta.removed, *delta.added, *objects))


def different(one: bytes, other: bytes) -> Tuple[List[bytes], List[bytes]]:
    """Return the lines of two texts without those with which both begin, and those with which both end."""
    shortest = min(len(one), len(other))
    start = one.rfind(b"\n", 0, _shared(one, other, shortest)) + 1
    end = _shared(one, other, shortest - start, backward=True)
    # A line of which only the end is alike is different.
    newline = one.find(b"\n", len(one) - end)
    end = len(one) - newline - 1 if newline >= 0 else 0
    return one[start : len(one) - end].split(b"\n")[:-1], other[start : len(other) - end].split(b"\n")[:-1]


def _shared(one: bytes, other: bytes, most: int, *, backward: bool = False) -> int:
    """Return with how many bytes, up to `most`, both begin; or end, if `backward`."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if backward:
            alike = one[len(one) - middle : len(one) - low] == other[len(other) - middle : len(other) - low]
        else:
            alike = one[low:middle] == other[low:middle]
        if alike:
            low = middle
        else:
            high = middle - 1
    return low


def _known(base: bytes, wanted: Set[bytes]) -> Set[bytes]:
    """Return those SHA-256 that a file of the manifest has."""
    if len(wanted) > _FEW:
        return wanted.intersection(line[DIGEST] for line in base.split(b"\n"))
    heads = (b"\nf\t644\t", b"\nf\t755\t")
    return {name for name in wanted if any(head + name + b"\t" in base for head in heads)}


def merge(base: bytes, removed: List[bytes], added: List[bytes]) -> bytes:
    """Return the manifest that a delta's `removed` and `added` make of `base`. Raises BadManifest if they do not fit.

    It reads only the lines that it needs, so compare the result's digest with the expected one before you trust it.
    """
    check_ends(base)
    # Where each change is in the text, how many bytes go there, and the line that comes.
    changes: List[Tuple[int, int, bytes]] = []
    at, before = len(HEADER), b""
    for escaped in removed:
        path = unescape(escaped)
        at = _position(base, path, _after(before, path, at))
        end = base.find(b"\n", at) + 1
        if at == len(base) or path_of(base[at : end - 1]) != path:
            raise BadManifest("the base has no entry to remove at %s" % shown(path))
        changes.append((at, end - at, b""))
        before = path
    gone = {at for at, _, _ in changes}
    at, before = len(HEADER), b""
    for line in added:
        if not is_line(line):
            raise BadManifest("this is not an entry: %s" % shown(line))
        path = path_of(line)
        at = _position(base, path, _after(before, path, at))
        if at < len(base) and at not in gone and path_of(base[at : base.find(b"\n", at)]) == path:
            raise BadManifest("the base already has an entry at %s" % shown(path))
        changes.append((at, 0, line + b"\n"))
        before = path
    # Lines that are added at the same place keep their order, and come before the one that is removed there.
    merged: List[bytes] = []
    kept = 0
    for at, size, line in sorted(changes, key=lambda change: change[:2]):
        merged += [base[kept:at], line]
        kept = at + size
    return b"".join([*merged, base[kept:]])


def _position(text: bytes, path: bytes, low: int) -> int:
    """Return where the first line begins, from the line at `low` on, whose path is not before `path`."""
    high = len(text)
    while low < high:
        middle = text.rfind(b"\n", low, (low + high) // 2) + 1 or low
        end = text.find(b"\n", middle)
        if path_of(text[middle:end]) < path:
            low = end + 1
        else:
            high = middle
    return low


def _after(before: bytes, path: bytes, at: int) -> int:
    """Return `at`, where the search for `path` starts. Raises BadManifest if it does not come after `before`."""
    if path <= before:
        raise BadManifest("%s is out of order" % shown(path))
    return at
