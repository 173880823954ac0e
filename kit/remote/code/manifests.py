"""The manifests of the last snapshots, in your cache: a host that has one of them needs only what differs from it."""

from __future__ import annotations

import os
from pathlib import Path

from kit.remote.machine.cache import cache, keep_latest, write
from kit.remote.ship.porter import manifest
from kit.remote.ship.porter.names import is_digest

_KEPT = 20


def remember(digest: str, text: bytes) -> None:
    """Keep the manifest of a snapshot as the latest. A cache that cannot be written is no error."""
    folder = _folder()
    if folder is None:
        return
    file = folder / digest
    try:
        if file.stat().st_size == len(text):
            os.utime(file)
            return
    except OSError:
        pass
    write(file, [text])
    keep_latest(folder, _KEPT)


def recall(digest: str) -> bytes | None:
    """Return the manifest with this digest, or None if it is not in the cache."""
    folder = _folder()
    # The digest may come from a host.
    if folder is None or not is_digest(digest):
        return None
    try:
        text = (folder / digest).read_bytes()
    except OSError:
        return None
    return text if manifest.digest(text) == digest else None


def has_folder(text: bytes, path: str) -> bool:
    """Return whether the manifest `text` has this folder. A link counts, because it may lead to one."""
    wanted = os.fsencode(path)
    for line in text.split(b"\n")[1:-1]:
        name = manifest.path_of(line)
        if name.startswith(wanted + b"/") or (name == wanted and line[:1] in b"dl"):
            return True
        if line[:1] == b"l" and wanted.startswith(name + b"/"):
            return True
    return False


def _folder() -> Path | None:
    root = cache(os.environ)
    return root / "code" / "manifests" if root else None
