"""The shell scripts of kit setup, one file each, behind what they share. Values reach them as arguments."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path


@cache
def _text(name: str) -> str:
    folder = Path(__file__).parent
    return (folder / "common.sh").read_text(encoding="utf-8") + (folder / f"{name}.sh").read_text(encoding="utf-8")


def program(name: str, *arguments: str) -> Sequence[str]:
    """Return the argv that runs a script of this folder with these arguments."""
    return ["sh", "-c", _text(name), f"kit-setup-{name}", *arguments]
