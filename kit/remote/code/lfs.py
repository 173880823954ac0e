"""The files of Git LFS in a commit: git has a pointer for each, and git-lfs fetches what it names.

git-lfs only fetches. kit reads the pointers, checks each object by its hash, and writes the files itself.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct

from kit.errors import InputError, KitError
from kit.model.repository import without_login
from kit.model.text import size as size_text
from kit.remote.code.limits import MOST_BYTES

# git's pattern for the paths whose attributes give them to git-lfs.
PATHS = ":(attr:filter=lfs)"
# A pointer without extensions, which only their own programs can undo.
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\noid sha256:(?P<oid>[0-9a-f]{64})\nsize (?P<size>[0-9]{1,15})\n?"
)
_LARGEST_POINTER = 1024
_WEB = re.compile(r"(?:https?|ssh)://[A-Za-z0-9_\[]")
# The start of the note that becomes untrue when somebody installs git-lfs.
NOT_INSTALLED = "git-lfs is not installed here"
_NAMED = 3
_NOISE = ("fetch: ", "warning: ", "error: failed to fetch some objects", "Check that you have")
_OID = re.compile(r"\[[0-9a-f]{64}\] ")


class Pointer(Struct, frozen=True, kw_only=True):
    """A file below a folder in which git has only the SHA-256 and the size (bytes) of the content."""

    path: str
    oid: str
    size: int


def pointers(files: Path, paths: Iterable[str]) -> tuple[list[Pointer], list[str]]:
    """Return the pointers among these paths of the folder, and those that only a program of their own can read."""
    entries, other = [], []
    for path in paths:
        file = files / path
        if not _is_file(files, path) or file.stat().st_size > _LARGEST_POINTER:
            continue
        content = file.read_bytes()
        match = _POINTER.fullmatch(content)
        if match:
            entries.append(Pointer(path=path, oid=match["oid"].decode(), size=int(match["size"])))
        elif content.startswith(b"version https://git-lfs.github.com/spec/"):
            other.append(path)
    return entries, other


def _is_file(files: Path, path: str) -> bool:
    """Return whether the path is a regular file, and no folder on the way to it is a link."""
    try:
        plain = stat.S_ISREG((files / path).lstat().st_mode)
    except OSError:
        return False
    return plain and (files / path).resolve() == files.resolve() / path


def too_large(url: str, entries: Sequence[Pointer]) -> InputError | None:
    """Return the error for files that no snapshot could have, before git-lfs fetches them; or None."""
    total = sum({pointer.oid: pointer.size for pointer in entries}.values())
    if total <= MOST_BYTES:
        return None
    return InputError(
        f"the files of Git LFS in {without_login(url)} have {size_text(total)}; "
        f"kit takes up to {size_text(MOST_BYTES)}",
        hint="data belongs on the hosts: name it in data: of kit.yaml",
    )


def remote(url: str) -> str:
    """Return the URL of a repository as git-lfs takes it: for a folder of this machine, it needs a scheme."""
    return f"file://{quote(url)}" if url.startswith("/") else url


def server(setting: str) -> str:
    """Return the server that .lfsconfig names (`lfs.url`), or ''. Raises InputError if a file may not choose that.

    As for the URL of a submodule, a repository must not let git-lfs read folders of this machine.
    """
    url = setting.strip()
    if url and not _WEB.match(url):
        raise InputError(
            f"the repository's .lfsconfig names a server of Git LFS that kit does not ask: {without_login(url)}",
            hint="clone the repository, and write code: FOLDER",
        )
    return url


def objects(environment: str) -> Path:
    """Return the folder in which git-lfs keeps objects, from what `git lfs env` prints."""
    match = re.search(r"^LocalMediaDir=(.+)$", environment, re.MULTILINE)
    if match is None:
        raise KitError("git-lfs does not say where it keeps files", hint="check its version: git lfs version")
    return Path(match[1])


def why(lines: Sequence[str]) -> str:
    """Return the first line of git-lfs that says what is wrong."""
    errors = [line for line in lines if not line.startswith(_NOISE)]
    return _OID.sub("", (errors or list(lines) or ["git-lfs failed"])[0])


def fill(files: Path, objects: Path, entries: Iterable[Pointer]) -> list[str]:
    """Write the content of each pointer whose object is there. Return the paths of the others.

    Raises KitError if an object is not what its pointer says.
    """
    left = []
    for pointer in entries:
        source = objects / pointer.oid[:2] / pointer.oid[2:4] / pointer.oid
        if not source.is_file() or source.is_symlink():
            left.append(pointer.path)
            continue
        with source.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if (digest, source.stat().st_size) != (pointer.oid, pointer.size):
            source.unlink()
            raise KitError(
                f"git-lfs fetched other bytes for {pointer.path} than its pointer says",
                hint="start the run again, which fetches them again",
            )
        shutil.copyfile(source, files / pointer.path)
    return left


def notes(left: Sequence[str], *, installed: bool) -> list[str]:
    """Return what to say about files that stay pointers: at most one sentence."""
    if not left:
        return []
    names = ", ".join(left[:_NAMED]) + (f" and {len(left) - _NAMED} more" if len(left) > _NAMED else "")
    if installed:
        return [f"git-lfs did not fetch these files of Git LFS, so the ranks see their pointers: {names}"]
    return [
        f"{NOT_INSTALLED}, so the ranks see the pointers of the files of Git LFS: {names}; "
        "install git-lfs, and start the run again"
    ]
