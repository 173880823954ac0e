"""The content of an image, which defines its tag and its Dockerfile. Builds nothing."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from kit.model.spec import ImageSpec
from kit.remote.machine import cache
from kit.remote.machine.assets import read_images

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kit.model.image import ImageContent

_TAG = re.compile(r"[a-z]+:[a-z-]+-[0-9a-f]{12}")
_KEPT = 20


def content(spec: ImageSpec) -> ImageContent:
    """Return what the image is made of; the same on every machine."""
    from kit.plan.image import image_content  # noqa: PLC0415  (Jinja2)

    return image_content(spec, read_images())


def tag_of(spec: ImageSpec) -> str:
    """Return the image's tag. Your cache has the tags of what kit rendered before: Jinja2 is slow to import."""
    from kit.plan import image  # noqa: PLC0415

    files = read_images()
    digest = _digest(spec, {**files, "image.py": Path(image.__file__).read_bytes()})
    root = cache.cache(os.environ)
    try:
        tag = (root / "tags" / digest).read_text() if root else ""
    except (OSError, ValueError):
        tag = ""
    if not _TAG.fullmatch(tag):
        tag = image.image_content(spec, files).tag
        if root:
            cache.write(root / "tags" / digest, [tag.encode()])
            cache.keep_latest(root / "tags", _KEPT)
    return tag


def _digest(spec: ImageSpec, files: Mapping[str, bytes]) -> str:
    """Return a digest of everything that the tag depends on."""
    digest = hashlib.sha256(repr(spec).encode())
    for path, data in sorted(files.items()):
        digest.update(f"\0{path}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()
