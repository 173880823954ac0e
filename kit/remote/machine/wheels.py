"""The wheels of a folder: their names and digests. Your cache has the digests, because a wheel may be large."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from kit.errors import InputError
from kit.model.image import Wheel
from kit.remote.machine import cache

_KEPT = 100
_DIGEST = 64


def wheels_of(folder: Path, environ: Mapping[str, str]) -> tuple[Wheel, ...]:
    """Return the wheels in the order of their names. Raises InputError if it has no wheel or cannot be read."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".whl" and path.is_file())
        if not paths:
            raise InputError(
                f"{folder} has no wheel",
                hint="put *.whl files into it, or remove wheels: below image: in kit.yaml",
            )
        return tuple(Wheel(name=path.name, digest=_digest(path, environ)) for path in paths)
    except OSError as error:
        raise InputError(
            f"the folder of image.wheels cannot be read: {error.filename}: {error.strerror}",
            hint="image.wheels in kit.yaml names a folder with *.whl files, relative to kit.yaml",
        ) from error


def _digest(path: Path, environ: Mapping[str, str]) -> str:
    """Return the SHA-256 of a file, in hex. A file with the same size and time as before has the same digest."""
    facts = path.stat()
    key = hashlib.sha256(f"{path}\0{facts.st_size}\0{facts.st_mtime_ns}\0{facts.st_ino}".encode()).hexdigest()[:32]
    root = cache.cache(environ)
    known = root / "wheels" / key if root else None
    try:
        text = known.read_text() if known else ""
    except (OSError, ValueError):
        text = ""
    if len(text) == _DIGEST:
        return text
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if known:
        cache.write(known, [digest.encode()])
        cache.keep_latest(known.parent, _KEPT)
    return digest
