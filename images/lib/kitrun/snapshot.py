"""A snapshot of code as its manifest in the store lists it: entries, folders, and how two snapshots differ.

kit/remote/ship/porter/manifest.py defines what a manifest is.
"""

import hashlib
import os
from typing import Dict, List, NamedTuple, Optional, Tuple

from kitrun.marks import NOTHING, TOP, Mark, Marks

FILE, LINK, FOLDER = b"f", b"l", b"d"
_ESCAPES = ((b"\\t", b"\t"), (b"\\n", b"\n"), (b"\\r", b"\r"))


class NoCode(Exception):
    """The working folder cannot be seeded here."""


class Numbered(NamedTuple):
    """Marks as lists: `entries` in the order of a snapshot's lines, `folders` in the order of its `inside`."""

    entries: List[Mark]
    folders: List[Mark]


class Snapshot:
    """The entries of a snapshot. Names and paths are bytes.

    `lines` are the entries, in the manifest's order. `names` has the last part of each entry's path. `inside` maps each
    folder to the numbers of its files and links, and `below` to the names of its folders. A folder comes after the one
    that it is in. They are made when they are first used, because most runs do not need them.

    Raises NoCode if the snapshot is not here, or damaged.
    """

    lines: List[bytes]
    names: List[bytes]
    inside: Dict[bytes, List[int]]
    below: Dict[bytes, List[bytes]]

    def __init__(self, digest: str, stores: str) -> None:
        self.digest, self.stores = digest, stores
        self._text = _manifest(digest, stores)

    def __getattr__(self, name: str) -> object:
        """Make the attributes that are not there from the start."""
        if name == "lines":
            self.lines = self._text.split(b"\n")[1:-1]
        elif name in ("names", "inside", "below"):
            self._find_folders()
        else:
            raise AttributeError(name)
        return self.__dict__[name]

    @property
    def count(self) -> int:
        """The number of entries, without a look at each."""
        return self._text.count(b"\n") - 1

    def difference(self, other: "Snapshot") -> Tuple[List[bytes], List[bytes]]:
        """Return the lines that the other snapshot lacks, and those that it has beyond this one."""
        lines, others = (set(part.split(b"\n")) for part in _different(self._text, other._text))
        return list(lines - others), list(others - lines)

    def _find_folders(self) -> None:
        self.names, self.inside, self.below = [], {}, {}
        self._add_folder(TOP)
        # There may be 50,000 lines, and a run waits for this loop.
        before, here = TOP, self.inside[TOP]
        for number, line in enumerate(self.lines):
            folder, name = place(line)
            self.names.append(name)
            if folder != before:
                if folder not in self.inside:
                    self._add_folder(folder)
                before, here = folder, self.inside[folder]
            if line.startswith(FOLDER):
                self._add_folder(folder + b"/" + name if folder else name)
            else:
                here.append(number)

    def _add_folder(self, path: bytes) -> None:
        parts = path.split(b"/") if path else []
        for length in range(len(parts) + 1):
            folder = b"/".join(parts[:length])
            if folder not in self.inside:
                self.inside[folder], self.below[folder] = [], []
                if length:
                    self.below[b"/".join(parts[: length - 1])].append(parts[length - 1])

    def marks(self, entries: List[Mark], folders: List[Mark]) -> Marks:
        """Return these marks, which are in the order of `lines` and of `inside`."""
        marks = Marks(self.digest)
        for (folder, inside), own in zip(self.inside.items(), folders):
            marks.put(folder, [(self.names[number], entries[number]) for number in inside], own)
        return marks

    def in_order(self, marks: Marks) -> Optional[Numbered]:
        """Return the marks in the order of `lines` and of `inside`, or None if they are those of other entries."""
        entries = [NOTHING] * len(self.lines)
        if marks.digest != self.digest or set(marks.names) != set(self.inside):
            return None
        for folder, inside in self.inside.items():
            if marks.names[folder] != [self.names[number] for number in inside]:
                return None
            for number, own in zip(inside, marks.pairs(folder)):
                entries[number] = own
        return Numbered(entries, [marks.folders[folder] for folder in self.inside])


def _different(one: bytes, other: bytes) -> Tuple[bytes, bytes]:
    """Return the lines of two texts without those with which both begin, and those with which both end.

    A run waits for this, and of 50,000 lines few differ. So it compares long parts, and looks at no line alone.
    """
    shortest = min(len(one), len(other))
    start = one.rfind(b"\n", 0, _shared(one, other, shortest)) + 1
    end = _shared(one, other, shortest - start, backward=True)
    # A line of which only the end is alike is different.
    newline = one.find(b"\n", len(one) - end)
    end = len(one) - newline - 1 if newline >= 0 else 0
    return one[start : len(one) - end], other[start : len(other) - end]


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


def place(line: bytes) -> Tuple[bytes, bytes]:
    """Return the folder and the name of an entry."""
    path = line.split(b"\t", 5)[4]
    folder, _, name = (plain(path) if b"\\" in path else path).rpartition(b"/")
    return folder, name


def stored(line: bytes, stores: str) -> Tuple[str, int, int]:
    """Return the path of a file's object in the store, its size and its mode."""
    _, mode, name, size, _ = line.split(b"\t", 4)
    digest = name.decode("ascii")
    return os.path.join(stores, "objects", digest[:2], digest), int(size), int(mode, 8)


def plain(text: bytes) -> bytes:
    """Return a path of a manifest's line without its escapes."""
    if b"\\" not in text:
        return text
    return b"\\".join(_unescaped(part) for part in text.split(b"\\\\"))


def _unescaped(text: bytes) -> bytes:
    for escape, letter in _ESCAPES:
        text = text.replace(escape, letter)
    return text


def _manifest(digest: str, stores: str) -> bytes:
    try:
        with open(os.path.join(stores, "manifests", digest), "rb") as file:
            data = file.read()
    except OSError as error:
        raise NoCode("the snapshot %s of the code is not here (%s)" % (digest[:12], error.strerror)) from error
    if hashlib.sha256(data).hexdigest() != digest:
        raise NoCode("the snapshot %s of the code is damaged here" % digest[:12])
    return data
