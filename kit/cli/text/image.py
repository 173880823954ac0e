"""Results of kit image as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.model.text import size

if TYPE_CHECKING:
    from kit.flows.image.build import ImageResult
    from kit.flows.image.push import PushResult
    from kit.flows.image.sbom import SbomResult


def image(value: ImageResult) -> str:
    what = f"built in {value.seconds:.1f} s" if value.built else "already here"
    return f"{value.tag}  {size(value.size_bytes)}  {what}"


def push(value: PushResult) -> str:
    return f"{value.image}  {size(value.size_bytes)}  {value.digest}  in {value.seconds:.1f} s"


def sbom(value: SbomResult, name: str) -> str:
    """Return what the document in the file `name` lists."""
    listed = f"{name}: {value.debian} Debian packages, {value.python} Python packages, {value.files} files of kit"
    odd = "".join(f"\nnot listed, because it is not readable: {path}" for path in value.unreadable)
    return listed + odd
