"""The launcher torchrun: one torchrun on each host, which starts and restarts the ranks there.

images/bin/kit-torchrun writes torchrun's command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from kit.errors import InputError
from kit.model.launch import RunRequest

# torchrun sets these for each rank, so a user cannot set them for all ranks.
_OWN = frozenset({"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK"})
# torchrun reads its options from variables with this prefix.
MAX_RESTARTS = "PET_MAX_RESTARTS"


def check(request: RunRequest, command: Sequence[str]) -> None:
    """Raise InputError for options that conflict."""
    if request.launcher != "torchrun":
        if request.max_restarts is not None:
            raise InputError(
                f"--max-restarts {request.max_restarts} has no effect without torchrun",
                hint=f"use --launcher torchrun --max-restarts {request.max_restarts}; or --retries, which starts the "
                "whole run again",
            )
        return
    if command and PurePosixPath(command[0]).name == "torchrun":
        raise InputError(
            "--launcher torchrun starts torchrun on each host, and the command starts another one",
            hint="write the script alone: kit run --launcher torchrun -- python train.py",
        )
    for name, _ in request.env:
        if name in _OWN:
            raise InputError(f"-x {name}: torchrun sets this variable", hint=f"remove -x {name}")


def variables(request: RunRequest) -> dict[str, str]:
    """Return the variables that are options of torchrun."""
    return {} if request.max_restarts is None else {MAX_RESTARTS: str(request.max_restarts)}
