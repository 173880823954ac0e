"""The content of an image, which defines its tag and its Dockerfile. Builds nothing."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from kit.model.image import HashedFile
from kit.model.spec import ClusterSpec
from kit.model.values import replace
from kit.plan.bases import LOCK, UNLOCKED, lock_text, read_lock
from kit.remote.machine import cache
from kit.remote.machine.assets import read_images
from kit.remote.machine.bases import agreed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kit.model.image import ImageContent, Wheel
    from kit.model.spec import ImageSpec

_TAG = re.compile(r"[a-z]+:[a-z-]+-[0-9a-f]{12}")
_KEPT = 20


def content(spec: ClusterSpec) -> ImageContent:
    """Return what the image is made of; the same on every machine.

    Raises InputError, or InputErrors, if the file that `requirements:` names is missing, if pip would refuse a line of
    it, or if `image.wheels` names no folder with wheels.
    """
    from kit.plan.image import image_content  # noqa: PLC0415  (Jinja2)

    return image_content(_image(spec), _images(), requirements=_requirements(spec), wheels=_wheels(spec))


def wheel_files(spec: ClusterSpec, content: ImageContent) -> dict[str, HashedFile]:
    """Return the wheels that the content lists, by their paths in the build context, with its digests.

    They do not come from the folder again, whose wheels may have changed since the content was read.
    """
    from kit.plan.image import context_path, listed_wheels  # noqa: PLC0415

    folder = Path(spec.image.wheels or "")
    return {
        context_path(wheel.name): HashedFile(path=folder / wheel.name, digest=wheel.digest)
        for wheel in listed_wheels(content)
    }


def definite(spec: ClusterSpec) -> ClusterSpec:
    """Return the spec with a definite flavor: that of this machine's GPUs, if kit.yaml leaves it open."""
    return replace(spec, image=_image(spec))


def _image(spec: ClusterSpec) -> ImageSpec:
    from kit.plan.flavour import OPEN, with_flavour  # noqa: PLC0415

    if spec.image.flavour not in OPEN:
        return spec.image
    if spec.image.flavour != "auto":
        return with_flavour(spec.image, gpus=True)
    from kit.remote.machine.gpus import has_gpus  # noqa: PLC0415  (only if kit.yaml leaves the flavor open)

    return with_flavour(spec.image, gpus=has_gpus())


def tag_of(spec: ClusterSpec, image: ImageSpec | None = None) -> str:
    """Return the tag of the spec's image, or of `image`. Raises what `content` raises.

    If kit.yaml leaves the flavor open, and no image is given, this machine's GPUs decide it. Your cache has the tags of
    what kit rendered before, because Jinja2 is slow to import.
    """
    from kit.plan import image as plan  # noqa: PLC0415

    image = image or _image(spec)
    files, requirements, wheels = _images(), _requirements(spec), _wheels(spec)
    own = {} if requirements is None else {plan.REQUIREMENTS_PATH: requirements}
    own |= {f"{plan.WHEELS_LIST}/{wheel.name}": wheel.digest.encode() for wheel in wheels}
    digest = _digest(image, {**files, **own, "image.py": Path(plan.__file__).read_bytes()})
    root = cache.cache(os.environ)
    try:
        tag = (root / "tags" / digest).read_text() if root else ""
    except (OSError, ValueError):
        tag = ""
    if not _TAG.fullmatch(tag):
        tag = plan.image_content(image, files, requirements=requirements, wheels=wheels).tag
        if root:
            cache.write(root / "tags" / digest, [tag.encode()])
            cache.keep_latest(root / "tags", _KEPT)
    return tag


def locked_bases() -> dict[str, str]:
    """Return the digest of each base in the lock, less those that you agreed to take without it.

    With KIT_UNLOCKED_BASES, it has none.
    """
    return read_lock(_images().get(LOCK, b"").decode())


def _images() -> dict[str, bytes]:
    """Return the files of images/, with the lock of the bases as far as it holds on this machine."""
    files = read_images()
    if os.environ.get(UNLOCKED):
        files.pop(LOCK, None)
    elif LOCK in files and (without := agreed(os.environ)):
        locked = read_lock(files[LOCK].decode())
        files[LOCK] = lock_text({base: digest for base, digest in locked.items() if base not in without}).encode()
    return files


def _requirements(spec: ClusterSpec) -> bytes | None:
    if spec.requirements is None:
        return None
    from kit.config.requirements import read_requirements  # noqa: PLC0415  (only if kit.yaml names such a file)

    return read_requirements(Path(spec.requirements))


def _wheels(spec: ClusterSpec) -> tuple[Wheel, ...]:
    if spec.image.wheels is None:
        return ()
    from kit.remote.machine.wheels import wheels_of  # noqa: PLC0415  (only if kit.yaml names such a folder)

    return wheels_of(Path(spec.image.wheels), os.environ)


def _digest(image: ImageSpec, files: Mapping[str, bytes]) -> str:
    """Return a digest of everything that the tag depends on."""
    digest = hashlib.sha256(repr(image).encode())
    for path, data in sorted(files.items()):
        digest.update(f"\0{path}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()
