"""A snapshot's manifest: the files, links and empty folders of a code folder, as bytes whose SHA-256 is its digest.

The first line is `kit-code 1`. Each other line is one entry, and the lines are sorted by the bytes of their paths:

    f  644|755  SHA-256  size  path            a file
    l  777      -        0     path  target    a symbolic link
    d  755      -        0     path            a folder without entries

A TAB separates the fields. A path writes a backslash, TAB, newline and carriage return as \\\\, \\t, \\n and \\r.
The same entries always give the same bytes, so every other way of writing them is refused.
"""

import hashlib
import re
from typing import Dict, List, NamedTuple, Set

HEADER = b"kit-code 1\n"
# The manifest of an empty folder, and the base of a pack that has everything.
EMPTY = HEADER
FILE, LINK, FOLDER = "f", "l", "d"

_TEXT = rb"[^\t\n\r\0\\]*(?:\\[\\tnr][^\t\n\r\0\\]*)*"
_LINE = re.compile(
    rb"^(?:f\t(644|755)\t([0-9a-f]{64})\t(0|[1-9][0-9]{0,17})\t(%s)|l\t777\t-\t0\t(%s)\t(%s)|d\t755\t-\t0\t(%s))$"
    % (_TEXT, _TEXT, _TEXT, _TEXT),
    re.MULTILINE,
)
_MODES = {b"644": 0o644, b"755": 0o755}
_ESCAPED = {b"\\\\": b"\\", b"\\t": b"\t", b"\\n": b"\n", b"\\r": b"\r"}
_ESCAPE = re.compile(rb"\\[\\tnr]")
# Where the SHA-256 is in the line of a file, and which fields of each line are the size and the path.
DIGEST = slice(6, 70)
_SIZE, _PATH = 3, 4
# Linux gives up after as many links.
_MOST_LINKS = 40


class BadManifest(ValueError):
    """These bytes are no manifest, or do not fit the base that they change."""


class Entry(NamedTuple):
    """One entry. `digest` and `target` are empty where the kind has none. Paths are relative to the snapshot."""

    kind: str
    mode: int
    digest: str
    size: int
    path: bytes
    target: bytes


def digest(manifest: bytes) -> str:
    """Return the manifest's name: the SHA-256 of its bytes, in hexadecimal."""
    return hashlib.sha256(manifest).hexdigest()


def escape(path: bytes) -> bytes:
    """Return the path as a line has it."""
    path = path.replace(b"\\", b"\\\\").replace(b"\t", b"\\t")
    return path.replace(b"\n", b"\\n").replace(b"\r", b"\\r")


def unescape(text: bytes) -> bytes:
    """Return the path that `escape` wrote."""
    if b"\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: _ESCAPED[match.group()], text)


def write(entries: List[Entry]) -> bytes:
    """Return the manifest of these entries, in whatever order they come. It does not check them; `parse` does."""
    return join([_line(entry) for entry in sorted(entries, key=_path_of_entry)])


def join(lines: List[bytes]) -> bytes:
    """Return the manifest of these lines, which are sorted by their paths and have no newline."""
    return HEADER + b"".join([line + b"\n" for line in lines])


def file_line(mode: int, content: str, size: int, path: bytes) -> bytes:
    """Return the line of one file, without a newline."""
    return b"f\t%o\t%s\t%d\t%s" % (mode, content.encode(), size, escape(path))


def link_line(path: bytes, target: bytes) -> bytes:
    """Return the line of one symbolic link, without a newline."""
    return b"l\t777\t-\t0\t%s\t%s" % (escape(path), escape(target))


def folder_line(path: bytes) -> bytes:
    """Return the line of one folder without entries, without a newline."""
    return b"d\t755\t-\t0\t%s" % escape(path)


def path_of(line: bytes) -> bytes:
    """Return the path of a line. Raises BadManifest if the line has none."""
    return unescape(escaped_path(line))


def digest_of(line: bytes) -> str:
    """Return the SHA-256 in the line of a file."""
    return line[DIGEST].decode()


def is_line(line: bytes) -> bool:
    """Return whether these bytes are the line of an entry."""
    return _LINE.fullmatch(line) is not None


def size_of(line: bytes) -> int:
    """Return the size in the line of a file."""
    return int(line.split(b"\t", _PATH)[_SIZE])


def target_of(line: bytes) -> bytes:
    """Return the target in the line of a symbolic link."""
    return unescape(line.split(b"\t", _PATH + 1)[_PATH + 1])


def parse(manifest: bytes) -> List[Entry]:
    """Return the entries in the manifest's order. Raises BadManifest with the line and what is wrong with it."""
    fields = _LINE.findall(manifest, len(HEADER))
    if not manifest.startswith(HEADER):
        raise BadManifest("the first line is not %s" % HEADER.decode().strip())
    if len(fields) != manifest.count(b"\n") - 1 or not manifest.endswith(b"\n"):
        raise BadManifest(_bad_line(manifest))
    entries = []
    for mode, content, size, path, link, target, folder in fields:
        if mode:
            entries.append(Entry(FILE, _MODES[mode], content.decode(), int(size), unescape(path), b""))
        elif folder:
            entries.append(Entry(FOLDER, 0o755, "", 0, unescape(folder), b""))
        else:
            entries.append(Entry(LINK, 0o777, "", 0, unescape(link), unescape(target)))
    _check_paths(entries)
    _check_sizes(entries)
    _check_links(entries)
    return entries


def leads_out(path: bytes, target: bytes, links: Dict[bytes, bytes]) -> bool:
    """Return whether the link at `path` leads out of the snapshot, also by way of the snapshot's other `links`."""
    if target.startswith(b"/"):
        return True
    at = path.split(b"/")[:-1]
    ahead = target.split(b"/")[::-1]
    hops = 0
    while ahead:
        part = ahead.pop()
        if part in (b"", b"."):
            continue
        if part == b"..":
            if not at:
                return True
            at.pop()
            continue
        at.append(part)
        onward = links.get(b"/".join(at))
        if onward is None:
            continue
        hops += 1
        if hops > _MOST_LINKS:
            # A link that leads in a circle leads nowhere.
            return False
        if onward.startswith(b"/"):
            return True
        at.pop()
        ahead.extend(onward.split(b"/")[::-1])
    return False


def _path_of_entry(entry: Entry) -> bytes:
    return entry.path


def _line(entry: Entry) -> bytes:
    if entry.kind == FILE:
        return file_line(entry.mode, entry.digest, entry.size, entry.path)
    if entry.kind == LINK:
        return link_line(entry.path, entry.target)
    return folder_line(entry.path)


def check_ends(manifest: bytes) -> None:
    """Raise BadManifest if the first line is not the header, or the last one is cut."""
    if not manifest.startswith(HEADER):
        raise BadManifest("the first line is not %s" % HEADER.decode().strip())
    if not manifest.endswith(b"\n"):
        raise BadManifest("the last line is cut")


def escaped_path(line: bytes) -> bytes:
    """Return the path of a line, still escaped. Raises BadManifest if the line has none."""
    fields = line.split(b"\t", _PATH + 1)
    if len(fields) <= _PATH:
        raise BadManifest("this is not an entry: %s" % shown(line))
    return fields[_PATH]


def _bad_line(manifest: bytes) -> str:
    """Return which line is not an entry."""
    lines = manifest.split(b"\n")
    for number, line in enumerate(lines[1:-1], start=2):
        if not _LINE.fullmatch(line):
            return "line %d is not an entry: %s" % (number, shown(line))
    return "line %d is cut: %s" % (len(lines), shown(lines[-1]))


def _check_paths(entries: List[Entry]) -> None:
    before = b""
    folders: Set[bytes] = set()
    for entry in entries:
        path = entry.path
        parts = path.split(b"/")
        if b"" in parts or b"." in parts or b".." in parts:
            raise BadManifest("this is not a path below the folder: %s" % shown(path))
        if path <= before:
            raise BadManifest("%s is %s" % (shown(path), "there twice" if path == before else "out of order"))
        before = path
        folder = path.rpartition(b"/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition(b"/")[0]
    for entry in entries:
        if entry.path in folders:
            raise BadManifest("entries are below %s, which is not a folder with entries" % shown(entry.path))


def _check_sizes(entries: List[Entry]) -> None:
    sizes: Dict[str, int] = {}
    for entry in entries:
        if entry.kind == FILE and sizes.setdefault(entry.digest, entry.size) != entry.size:
            raise BadManifest("%s has another size than a file with the same SHA-256" % shown(entry.path))


def _check_links(entries: List[Entry]) -> None:
    links = {entry.path: entry.target for entry in entries if entry.kind == LINK}
    for path, target in links.items():
        if not target:
            raise BadManifest("the link %s has no target" % shown(path))
        if leads_out(path, target, links):
            raise BadManifest("the link %s leads out of the folder: %s" % (shown(path), shown(target)))


def shown(text: bytes, most: int = 200) -> str:
    """Return bytes for a message: on one line, and not longer than a person reads."""
    whole = escape(text).decode("utf-8", "backslashreplace")
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in whole)
    return shown if len(shown) <= most else shown[:most] + "…"
