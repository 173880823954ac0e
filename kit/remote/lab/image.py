"""The images of lab hosts: their content, from images/lab and images/lab-bare."""

from __future__ import annotations

import re
from pathlib import Path

from kit.errors import ImageError
from kit.model.image import ImageContent
from kit.remote.machine.assets import images_dir

_PROGRAMS = frozenset({"init", "link-rate", "boot"})
# What a bare host shares with the others.
_SHARED = ("prepare", "link-rate")


def content() -> ImageContent:
    """Return the image of a host with an engine."""
    files = _files(images_dir() / "lab")
    executables = _PROGRAMS | {path for path in files if path.startswith("bin/")}
    return ImageContent(repository="kit-lab", flavour="trixie", files=files, executables=executables)


def bare_content(system: str, base: str) -> ImageContent:
    """Return the image of a host without an engine. `base` is the image of its system's user space."""
    shared = _files(images_dir() / "lab")
    files = _files(images_dir() / "lab-bare") | {name: shared[name] for name in _SHARED}
    dockerfile = re.sub(r"(?m)^FROM \S+", f"FROM {base}", files["Dockerfile"].decode())
    files["Dockerfile"] = dockerfile.encode()
    return ImageContent(repository="kit-lab", flavour=f"bare-{system}", files=files, executables=_PROGRAMS)


def _files(folder: Path) -> dict[str, bytes]:
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    if "Dockerfile" not in files:
        raise ImageError(f"{folder} has no Dockerfile", hint="this installation of kit is incomplete: install it again")
    return files
