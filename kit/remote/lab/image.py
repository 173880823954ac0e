"""The image of a lab host: its content, from images/lab."""

from __future__ import annotations

from kit.errors import ImageError
from kit.model.image import ImageContent
from kit.remote.machine.assets import images_dir

_PROGRAMS = frozenset({"init", "link-rate"})


def content() -> ImageContent:
    folder = images_dir() / "lab"
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    if "Dockerfile" not in files:
        raise ImageError(f"{folder} has no Dockerfile", hint="this installation of kit is incomplete: install it again")
    executables = _PROGRAMS | {path for path in files if path.startswith("bin/")}
    return ImageContent(repository="kit-lab", flavour="trixie", files=files, executables=executables)
