"""The content of an image, which defines its tag and its Dockerfile. Builds nothing."""

from __future__ import annotations

from kit.model.image import ImageContent
from kit.model.spec import ImageSpec


def content(spec: ImageSpec) -> ImageContent:
    """Return what the image is made of; the same on every machine."""
    from kit.plan.image import image_content  # noqa: PLC0415  (Jinja2)
    from kit.remote.machine.assets import read_images  # noqa: PLC0415

    return image_content(spec, read_images())
