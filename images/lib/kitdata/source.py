"""Where a data set comes from: a list of files with ranges that can be read, whatever holds them.

The stager knows only this. kitdata.folder reads a folder that this host sees, kitdata.rclone an object store.
"""

from typing import Callable, Iterable, Iterator, List, NamedTuple, Optional, Sequence

# Linux: the longest name of a file, and the longest path less room for the folder that a host keeps the data in.
LONGEST_NAME = 255
LONGEST_PATH = 3840


class SourceError(Exception):
    """What went wrong with a source: one line of plain English without secrets.

    `kind` is one of: source-missing (it is not there), source-refused (it does not let us in), source-lost (it does not
    answer; another try may succeed), source-changed (a file is not what the list says), source-name (a path that no
    host can have), source-file (a mount needs a folder, and it is a file).
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class Entry(NamedTuple):
    """One file of a source.

    `path` is relative and has / between its parts. Bytes that are no UTF-8 are surrogates, as os.fsdecode makes them.
    `size` is in bytes, and `mtime` in nanoseconds since 1970. `md5` is 32 hexadecimal digits, or '' if the source
    does not know it without reading the file.
    """

    path: str
    size: int
    mtime: int
    md5: str = ""


class Version(NamedTuple):
    """One version of a source: an id that no other version has, and how many files and bytes it has."""

    id: str
    files: int
    bytes: int


# Gets how many files and bytes have been seen so far.
Counted = Callable[[int, int], None]


class Source:
    """What all sources can do. All calls may come from several threads at once.

    Every call raises SourceError. Those of kind source-lost are worth another try.
    """

    # For people: what kit.yaml says.
    label = ""
    # How many small files to read at once: more where an answer takes its time, whatever its size.
    parallel = 1
    # Whether each MD5 is the ETag of an object, which may look like an MD5 without being one.
    etags = False
    # Whether to compare MD5s. False after one of them has turned out not to be an MD5.
    compares = True

    def version(self, counted: Counted) -> Optional[Version]:  # noqa: ARG002
        """Return which version of the source this is, by manifest.version; None where only the list can tell."""
        return None

    def entries(self) -> Iterator[Entry]:
        """Yield the files while the source lists them, in any order. `arranged` sorts and checks them."""
        raise NotImplementedError

    def entry(self, path: str) -> Entry:
        """Return what the source says now of one file. source-changed if it is gone."""
        raise NotImplementedError

    def read(self, entry: Entry, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes of the file. source-changed if the file is no longer what `entry` says."""
        raise NotImplementedError

    def files(self, entries: Sequence[Entry]) -> Optional[bytes]:  # noqa: ARG002
        """Return the bytes of all these files, one after the other, at most 4 MiB. Raises as `read`.

        None from a source for which a question for each file is as quick.
        """
        return None

    def close(self) -> None:
        """Let go of everything. Calls that are under way fail."""


def arranged(entries: Iterable[Entry]) -> List[Entry]:
    """Return the entries sorted by path. Raises SourceError (source-name) for paths that no host can have."""
    result = sorted(entries)
    files = {entry.path for entry in result}
    before = None
    for entry in result:
        check_path(entry.path)
        if entry.path == before:
            raise SourceError("source-name", "%s is in the source twice" % shown(entry.path))
        before = entry.path
        at = entry.path.rfind("/")
        while at > 0:
            if entry.path[:at] in files:
                raise SourceError(
                    "source-name",
                    "%s is a file and a folder in the source, because it also has %s"
                    % (shown(entry.path[:at]), shown(entry.path)),
                )
            at = entry.path.rfind("/", 0, at)
    return result


def check_path(path: str) -> None:
    """Raise SourceError (source-name) if no host can have this path below a folder."""
    why = ""
    try:
        raw = path.encode("utf-8", "surrogateescape")
        parts = raw.split(b"/")
        if b"\0" in raw:
            why = "has a zero byte"
        elif not raw or b"" in parts:
            why = "has an empty part"
        elif b"." in parts or b".." in parts:
            why = "has a part . or .."
        elif max(map(len, parts)) > LONGEST_NAME:
            why = "has a part of more than %d bytes" % LONGEST_NAME
        elif len(raw) > LONGEST_PATH:
            why = "has more than %d bytes" % LONGEST_PATH
    except UnicodeEncodeError:
        why = "has characters that UTF-8 cannot hold"
    if why:
        raise SourceError("source-name", "no host can have the path %s: it %s" % (shown(path), why))


def shown(path: str, most: int = 200) -> str:
    """Return a path for people: one line, nothing that a terminal obeys, and not longer than `most` characters."""
    text = "".join(letter if letter.isprintable() else "\\x%02x" % ord(letter) for letter in path)
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= most else text[: most - 20] + "..." + text[-17:]
