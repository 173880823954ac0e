"""The shell scripts of kit setup, one file each, behind what they share. Values reach them as arguments."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kit.remote import scripts


@cache
def _text(name: str) -> str:
    folder = Path(__file__).parent
    files = (Path(scripts.__file__).with_name("clock.sh"), folder / "common.sh", folder / f"{name}.sh")
    return "".join(file.read_text(encoding="utf-8") for file in files)


def program(name: str, *arguments: str) -> Sequence[str]:
    """Return the argv that runs a script of this folder with these arguments."""
    return ["sh", "-c", _text(name), f"kit-setup-{name}", *arguments]
