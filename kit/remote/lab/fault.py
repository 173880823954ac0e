"""The faults that a lab host can have: one shell file each in faults/, after the functions of fault.sh."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

Action = Literal["inject", "mend", "list", "shaped"]

# The last line of each answer. Each action may be repeated.
END = "kit-lab-fault ends"
_FOLDER = Path(__file__).resolve().parent


@cache
def names() -> tuple[str, ...]:
    """Return the names of all faults. Each is the ID of a check of kit doctor."""
    return tuple(sorted(path.stem for path in (_FOLDER / "faults").glob("*.sh")))


def purpose(name: str) -> str:
    """Return what a fault does, from its first comment."""
    lines = _read(f"faults/{name}.sh").splitlines()
    return next(line.removeprefix("# ") for line in lines if not line.startswith("# shellcheck"))


def argv(action: Action, name: str = "", argument: str = "") -> list[str]:
    """Return the command that a lab host runs. Values are words of it, and no part of the program."""
    fault = _read(f"faults/{name}.sh") if name else ""
    program = f'{_read("fault.sh")}\n{fault}\nmain "$@"\n'
    return ["bash", "-c", program, "kit-lab-fault", action, name, argument]


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
