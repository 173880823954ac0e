"""The shell scripts that run on a VM, one file each. Values reach them as arguments, never by templating."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path


@cache
def _text(name: str) -> str:
    return (Path(__file__).parent / f"{name}.sh").read_text(encoding="utf-8")


def script(name: str, *arguments: str) -> Sequence[str]:
    """The argv that runs a script of this folder with these arguments."""
    return ["sh", "-c", _text(name), f"kit-{name}", *arguments]
