"""What `kit run -it` can do, and the words for both sides of its terminal (images/lib/kitrun/terminal.py)."""

from __future__ import annotations

from collections.abc import Sequence

from kit.errors import InputError
from kit.model import names
from kit.model.launch import RunRequest

_PROGRAM = ("python3", "-IS", f"{names.IMAGE_BIN}/kit-terminal")
# Rank 0 of such a run.
HOLD = (*_PROGRAM, "hold")


def join(run_id: str, command: Sequence[str]) -> tuple[str, ...]:
    """Return the words that start the command in a terminal of rank 0's container."""
    return (*_PROGRAM, "join", run_id, *command)


def check(request: RunRequest) -> None:
    """Raise InputError for options that make no sense with a terminal."""
    if not request.terminal:
        return
    if request.np != 1:
        raise InputError("-it is for a run of one rank", hint="write: kit run -it --np 1 -- bash")
    policy = request.policy
    # What the command prints goes to the terminal, past the run's log.
    others = {
        "--detach": request.detach,
        "--keep": policy.operator == "keep",
        "--retries": policy.retries,
        "--stall-timeout": policy.stall_timeout,
        "--launcher": request.launcher != "mpi",
    }
    if used := [name for name, value in others.items() if value]:
        raise InputError(f"{used[0]} has no meaning with -it", hint=f"remove {used[0]}, or run it without -it")
