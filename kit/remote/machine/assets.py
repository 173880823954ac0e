"""Where images/ is: in a checkout it stands beside the package, in a wheel inside it."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]


def images_dir() -> Path:
    """The folder images/ with the Dockerfile templates, sshd's configuration and the scripts."""
    packaged = _PACKAGE / "images"
    return packaged if packaged.is_dir() else _PACKAGE.parent / "images"


def read_images() -> dict[str, bytes]:
    """Every file below images/, by its path there (`bin/start.sh`), but the lab's and what Python leaves behind."""
    folder = images_dir()
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    return {
        name: path.read_bytes()
        for name, path in names.items()
        if not name.startswith("lab/") and "__pycache__" not in path.parts
    }
