"""The folders that a wheel carries inside the package, and that a checkout has beside it: images/ and scripts/."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]


def images_dir() -> Path:
    """Return the folder images/: Dockerfile templates, sshd's configuration, and what runs inside."""
    packaged = _PACKAGE / "images"
    return packaged if packaged.is_dir() else _PACKAGE.parent / "images"


def scripts_dir() -> Path:
    """Return the folder with the programs that prepare this machine: `engine` and `base`."""
    packaged = _PACKAGE / "scripts"
    return packaged if packaged.is_dir() else _PACKAGE.parent / "scripts"


def read_images() -> dict[str, bytes]:
    """Return every file below images/ by its path there (`bin/start.sh`), except the lab's and Python's caches."""
    folder = images_dir()
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    return {
        name: path.read_bytes()
        for name, path in names.items()
        if not name.startswith("lab/") and "__pycache__" not in path.parts
    }
