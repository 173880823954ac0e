"""Which files of a folder belong to its snapshot.

In a git work tree these are the tracked files and the new ones that git does not ignore. Elsewhere they are all files.
In both, `.kitignore` at the top of the folder leaves out more, and nothing below a `.git` or `.kit` comes along.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct

from kit.remote.code import faults, git, patterns
from kit.remote.code.limits import MOST_FILES, too_long, too_many
from kit.remote.code.patterns import Ignored
from kit.remote.ship.porter.manifest import shown

IGNORE = ".kitignore"
# .kit has a lab's private key.
_NEVER = (b".git", b".kit")
# At the top: what `kit pull` brought home. git ignores it, because it has a .gitignore.
_PULLED = re.compile(rb"kit-\d{8}-\d{6}-[0-9a-f]{4}")
# At the top: the files of `kit timeline`, of up to hundreds of MB. In a work tree, git decides.
_TIMELINE = re.compile(rb"kit-timeline-\d{8}-\d{6}-[0-9a-f]{4}(?:-\d+)?\.json")
# In bench/: the sessions of `kit bench`. They would grow the code of each later run. In a work tree, git decides.
_BENCH = b"bench"
_SESSION = re.compile(rb"\d{8}-\d{6}-[a-z]+(?:-\d+)?")
# kit stops listing a folder after this many files: it may be a whole disk.
_STOP = 20 * MOST_FILES

# Returns the names of the files and links in a folder, and those of its folders. None if it is gone.
Scan = Callable[[bytes], "tuple[list[bytes], list[bytes]] | None"]


class Listing(Struct, frozen=True, kw_only=True):
    """Paths below a folder. `empty` has folders without entries.

    `git`: git listed them, `untracked` some as new. `whole`: kit has left out nothing that git lists.
    """

    paths: list[bytes]
    empty: list[bytes]
    git: bool
    untracked: bool
    whole: bool


def listing(folder: Path, *, plain: bool = False) -> Listing:
    """Return what belongs to the snapshot of the folder. `plain`: do not ask git. Raises InputError."""
    ignored = _ignored(folder / IGNORE)
    known = git.listed(folder) if not plain and git.has_repository(folder) else None
    if known is None:
        paths, empty = _walk(str(folder), _on_disk(folder), ignored)
        return Listing(paths=paths, empty=empty, git=False, untracked=False, whole=True)
    paths = known.paths
    text = b"\0".join([*paths, b""])
    if any(name + end in text for name in _NEVER for end in (b"/", b"\0")):
        paths = [path for path in paths if not set(path.split(b"/")) & set(_NEVER)]
    lost = known.lost
    if ignored:
        leave_out = _below(ignored)
        paths = [path for path in paths if not leave_out(path)]
        lost = [path for path in lost if not leave_out(path)]
    if lost:
        raise faults.no_repository(str(folder / os.fsdecode(lost[0])))
    return Listing(paths=paths, empty=[], git=True, untracked=known.untracked, whole=len(paths) == len(known.paths))


def _ignored(file: Path) -> Ignored | None:
    """Return the test of `.kitignore`, or None without one. A folder's path ends with a slash."""
    try:
        # A repository of a stranger may have a link to a device there. /dev/zero has no end, and a FIFO makes kit wait.
        if not stat.S_ISREG(file.stat().st_mode):
            raise faults.no_file(str(file))
        return _patterns(file.read_bytes(), str(file))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise faults.unreadable(str(file), error.strerror or str(error)) from error


def _patterns(text: bytes, name: str) -> Ignored:
    """Return the test of a `.kitignore` with this text. Raises InputError."""
    if error := too_long(name, len(text)):
        raise error
    try:
        return patterns.ignored(text)
    except ValueError as error:
        raise faults.bad_pattern(name, str(error)) from error


def _below(ignored: Ignored) -> Ignored:
    """Return a test that also leaves out what is below an ignored folder, as git does, whatever follows it."""
    folders: dict[bytes, bool] = {b"": False}

    def folder(path: bytes) -> bool:
        if path not in folders:
            folders[path] = folder(path.rpartition(b"/")[0]) or ignored(path + b"/")
        return folders[path]

    return lambda path: folder(path.rpartition(b"/")[0]) or ignored(path)


def chosen(
    name: str, paths: Iterable[bytes], empty: Iterable[bytes], ignore: bytes | None
) -> tuple[list[bytes], list[bytes]]:
    """Return what of these files and links belongs to a snapshot: their paths, and folders without entries.

    They, and the folders `empty`, are all that a folder called `name` has, which may be on another machine. `ignore` is
    the text of its `.kitignore`. Raises InputError.
    """
    names: dict[bytes, list[bytes]] = {b"": []}
    folders: dict[bytes, list[bytes]] = {b"": []}

    def add(folder: bytes) -> None:
        while folder not in names:
            names[folder] = []
            folders.setdefault(folder, [])
            above, _, last = folder.rpartition(b"/")
            folders.setdefault(above, []).append(last)
            folder = above

    for folder in empty:
        add(folder)
    for path in paths:
        above, _, last = path.rpartition(b"/")
        add(above)
        names[above].append(last)
    ignored = None if ignore is None else _patterns(ignore, f"{name}/{IGNORE}")
    return _walk(name, lambda here: (names[here], folders[here]), ignored)


def _on_disk(folder: Path) -> Scan:
    top = os.fsencode(folder) + b"/"

    def scan(here: bytes) -> tuple[list[bytes], list[bytes]] | None:
        try:
            with os.scandir(top + here) as entries:
                # Short loops, because there may be 50,000 entries, and somebody waits.
                inside = list(entries)
                folders = [entry.name for entry in inside if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return None
        except OSError as error:
            raise faults.unreadable(shown(top + here), error.strerror or str(error)) from error
        others = set(folders)
        return [name for entry in inside if (name := entry.name) not in others], folders

    return scan


def _walk(name: str, scan: Scan, ignored: Ignored | None) -> tuple[list[bytes], list[bytes]]:
    """Return all files and links below the folder of this name, and the folders without entries."""
    paths: list[bytes] = []
    empty: list[bytes] = []
    ahead = [b""]
    while ahead:
        here = ahead.pop()
        before = here + b"/" if here else here
        inside = scan(here)
        if inside is None:
            continue
        files = [one for one in inside[0] if one not in _NEVER]
        if not here:
            files = [one for one in files if not _TIMELINE.fullmatch(one)]
        own = {one for one in inside[1] if _own(here, one)}
        folders = [one for one in inside[1] if one not in _NEVER and one not in own]
        files = _kept([before + one for one in files], ignored)
        folders = _kept([before + one for one in folders], ignored, b"/")
        if here and not files and not folders and not own:
            empty.append(here)
        paths += files
        ahead += folders
        if len(paths) > _STOP:
            fault = too_many(name, [os.fsdecode(path) for path in paths], more=True)
            if fault:
                raise fault
    return paths, empty


def _own(here: bytes, folder: bytes) -> bool:
    """Return whether kit made this folder in `here`, b"" for the top, with what runs or sessions measured or made."""
    return bool((not here and _PULLED.fullmatch(folder)) or (here == _BENCH and _SESSION.fullmatch(folder)))


def _kept(paths: list[bytes], ignored: Ignored | None, end: bytes = b"") -> list[bytes]:
    """Return the paths of one folder that belong to the snapshot. `end` is that of a folder."""
    return [path for path in paths if not ignored(path + end)] if ignored else paths
