"""What the record of a run says about a snapshot's place in the history of git.

To compare a large work tree with its commit, git looks at each file once more. So the difference is kept in your cache,
and used again while the snapshot, the commit and git's index are the same.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable
from pathlib import Path

from kit.model.code import GitFacts
from kit.remote.code import git
from kit.remote.code.git import Difference, Head
from kit.remote.code.listing import Listing
from kit.remote.machine.cache import cache, keep_latest, write

_HEAD = b"kit-diff 5 "
_FOLDERS = 20


def facts(folder: Path, head: Head, files: Listing, digest: str, is_same: Callable[[], bool]) -> tuple[GitFacts, bool]:
    """Return what git says about the folder, whose snapshot has this digest, and whether that is of the same files.

    `is_same` looks whether the files are still those of the snapshot, after git has compared them.
    """
    if not head.commit:
        return _facts(head, Difference(b"", cut=False), dirty=True), True
    if (known := _known(folder, head, files, digest)) is not None:
        return _facts(head, known, dirty=files.untracked), True
    diff = git.diff(folder, head.commit)
    same = is_same()
    if same and not diff.failed:
        _remember(folder, head, files, digest, diff)
    return _facts(head, diff, dirty=files.untracked or not same), same


def _facts(head: Head, diff: Difference, *, dirty: bool) -> GitFacts:
    # If git failed, the files may have changes that it could not show.
    dirty = dirty or diff.cut or bool(diff.text)
    return GitFacts(commit=head.commit, branch=head.branch, dirty=dirty, diff=diff.text, cut=diff.cut, url=head.url)


def _place(folder: Path, head: Head, files: Listing, digest: str) -> tuple[Path, bytes] | None:
    """Return the file of the cache, and the key that it must have. None if the cache does not help."""
    root = cache(os.environ)
    if root is None or head.index is None or not files.whole:
        # The digest does not say whether a file that .kitignore leaves out has changed.
        return None
    file = root / "code" / "diffs" / hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    key = hashlib.sha256(repr((digest, head.commit, head.index)).encode()).hexdigest().encode()
    return file, key


def _known(folder: Path, head: Head, files: Listing, digest: str) -> Difference | None:
    place = _place(folder, head, files, digest)
    if place is None:
        return None
    file, key = place
    try:
        first, _, rest = file.read_bytes().partition(b"\n")
    except OSError:
        return None
    return Difference(rest[1:], cut=rest.startswith(b"+")) if first == _first(key, rest) else None


def _remember(folder: Path, head: Head, files: Listing, digest: str, diff: Difference) -> None:
    if place := _place(folder, head, files, digest):
        file, key = place
        rest = (b"+" if diff.cut else b"=") + diff.text
        write(file, [_first(key, rest), b"\n", rest])
        keep_latest(file.parent, _FOLDERS)


def _first(key: bytes, rest: bytes) -> bytes:
    return _HEAD + key + b" %08x" % zlib.crc32(rest)
