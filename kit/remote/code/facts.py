"""What the record of a run says about a snapshot's place in the history of git.

To compare a large work tree with its commit, git looks at each file once more. So the difference is kept in your cache,
and used again while the snapshot, the commit and git's index are the same.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from pathlib import Path

from kit.model.code import GitFacts
from kit.remote.code import git
from kit.remote.code.git import Head
from kit.remote.code.listing import Listing
from kit.remote.machine.cache import cache, keep_latest, write

_HEAD = b"kit-diff 4 "
_FOLDERS = 20


def facts(folder: Path, head: Head, files: Listing, digest: str) -> GitFacts:
    """Return what git says about the folder, whose snapshot has this digest."""
    diff, cut = _difference(folder, head, files, digest) if head.commit else (b"", False)
    return GitFacts(
        commit=head.commit,
        branch=head.branch,
        dirty=bool(diff) or files.untracked or not head.commit,
        diff=diff,
        cut=cut,
        url=head.url,
    )


def _difference(folder: Path, head: Head, files: Listing, digest: str) -> tuple[bytes, bool]:
    root = cache(os.environ)
    if root is None or head.index is None or not files.whole:
        # The digest does not say whether a file that .kitignore leaves out has changed.
        return git.diff(folder)
    file = root / "code" / "diffs" / hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    key = hashlib.sha256(repr((digest, head.commit, head.index)).encode()).hexdigest().encode()
    try:
        first, _, rest = file.read_bytes().partition(b"\n")
        if first == _first(key, rest):
            return rest[1:], rest.startswith(b"+")
    except OSError:
        pass
    diff, cut = git.diff(folder)
    rest = (b"+" if cut else b"=") + diff
    write(file, [_first(key, rest), b"\n", rest])
    keep_latest(file.parent, _FOLDERS)
    return diff, cut


def _first(key: bytes, rest: bytes) -> bytes:
    return _HEAD + key + b" %08x" % zlib.crc32(rest)
