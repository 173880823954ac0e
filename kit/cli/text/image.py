"""Results of kit image as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.model.text import size

if TYPE_CHECKING:
    from kit.flows.image.build import ImageResult
    from kit.flows.image.push import PushResult


def image(value: ImageResult) -> str:
    what = f"built in {value.seconds:.1f} s" if value.built else "already here"
    return f"{value.tag}  {size(value.size_bytes)}  {what}"


def push(value: PushResult) -> str:
    return f"{value.image}  {size(value.size_bytes)}  {value.digest}  in {value.seconds:.1f} s"
