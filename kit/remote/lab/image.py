"""The image of a lab host: its content, from images/lab."""

from __future__ import annotations

from kit.errors import ImageError
from kit.model.image import ImageContent
from kit.remote.machine.assets import images_dir


def content() -> ImageContent:
    folder = images_dir() / "lab"
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
    if "Dockerfile" not in files:
        raise ImageError(f"{folder} has no Dockerfile", hint="this installation of kit is incomplete: install it again")
    return ImageContent(
        repository="kit-lab", flavour="trixie", files=files, executables=frozenset({"init", "link-rate"})
    )
